"""Products of fp8 with scales of rows and columns, or of blocks of 128: a GEMM in CUDA C++ for Hopper."""
