"""Device code of cells that are written in Python: bodies of a step for CUDA C++, Triton and torch, from their tapes."""
