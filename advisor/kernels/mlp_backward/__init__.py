"""Gradients of the gated MLP by its input and its weights."""
