"""Register estimates: samples of compiled kernels, the fit of weights to them, and the check of the rules against them.

A kernel states the terms of its register count; its `KernelSample` (`sample.py`; `gemm.py`, `rnn.py`, `rnn_cuda.py`)
states the configurations to compile. `fit.py` fits weights to the sample, `constrint/kernels/resources/data/` keeps
them, and `check.py` compares the estimate with compiled kernels. `benchmarks/registers.py` is the program.
"""
