"""A GEMM in CUDA C++ for Hopper whose tile, cluster and schedule are free: what each of them is worth, measured."""
