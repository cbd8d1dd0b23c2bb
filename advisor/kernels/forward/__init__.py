"""Attention forward: spec.py and its variants."""
