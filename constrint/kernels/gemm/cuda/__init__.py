"""The GEMM in CUDA C++ for Hopper: tile, cluster and schedule are a solution, in steps that Triton has not."""
