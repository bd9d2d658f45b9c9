"""The GEMM in CUDA C++ for Hopper: its tile, cluster and schedule are a solution, in steps that Triton cannot express."""
