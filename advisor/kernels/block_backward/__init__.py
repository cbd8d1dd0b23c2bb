"""Gradients of a transformer block by its input and by all of its weights."""
