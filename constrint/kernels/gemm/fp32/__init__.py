"""The GEMM of fp32 operands: exact by six products of bf16, or as tf32 in any order of axes, CUDA C++ for Hopper."""
