"""A GEMM in CUDA C++ for products whose one side is short: the other operand is read once, as memory gives it."""
