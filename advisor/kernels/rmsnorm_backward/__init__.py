"""Gradients of RMSNorm by its input and its gain."""
