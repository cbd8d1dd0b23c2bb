"""Predicted against measured, for the attention kernels on this machine's CPUs, beside the figures of the paper."""
