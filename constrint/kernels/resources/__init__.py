"""Register estimates for any kernel: a model, its fitted weights, and the samples that they are fitted to.

A kernel states the terms of its register count and a `KernelSample` of compiled configurations (`sample.py`). `fit.py`
fits weights to the sample, `data/` keeps them, `registers.py` states the estimate as an expression, and `check.py`
compares it with compiled kernels. Nothing here knows a particular kernel.
"""
