"""Attention backward: spec.py and its variants."""
