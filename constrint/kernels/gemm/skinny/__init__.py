"""The GEMM for short sides in CUDA C++: the long operand is read once, as fast as memory gives it."""
