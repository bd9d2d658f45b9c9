"""Register estimates for any kernel: the model as an expression, and its fitted weights, which `data/` keeps.

A kernel states the terms of its register count; nothing here knows a particular kernel. `benchmarks/registers.py` fits
the weights to a sample of compiled kernels, and compares the estimates with others.
"""
