"""Attention forward and backward in one: spec.py and its variants."""
