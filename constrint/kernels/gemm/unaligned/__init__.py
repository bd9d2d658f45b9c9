"""The GEMM in CUDA C++ for operands whose rows start anywhere, which it copies nowhere."""
