"""RMSNorm: every row divided by the root of its mean square, times a gain."""
