"""Gated pairs in Triton, through pointers: for GPUs that the CUDA kernel is not written for."""
