"""Decode attention: one query against a KV cache of n rows."""
