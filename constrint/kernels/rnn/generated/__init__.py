"""Device code of cells that are written in Python: a step in CUDA C++, Triton and PyTorch, from its tapes."""
