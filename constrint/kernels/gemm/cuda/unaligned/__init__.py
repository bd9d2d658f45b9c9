"""The GEMM in CUDA C++ for operands whose rows start anywhere: the same consumers, a producer that copies nothing."""
