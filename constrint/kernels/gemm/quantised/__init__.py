"""Products with weights of 4 or 8 bits in groups, for few rows: a GEMM in CUDA C++, and the packing of its weights."""
