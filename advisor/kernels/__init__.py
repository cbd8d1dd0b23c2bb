"""Kernels (DNF), their variants (ONF), and the frame that builds, checks and times them."""
