"""The same frame on NVIDIA GPUs: variants in CUDA and Triton, and library calls, checked and timed on one device.

Host code only at import; CuPy, Triton and PyTorch are imported by the bench worker. docs/add-a-gpu-variant.md.
"""
