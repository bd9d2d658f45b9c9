"""Measures on this machine's GPU what no source states, and writes it into a model of the user's own.

`quantities.py` says what is measured, `bench.py` runs it through torch and the kernel of `kernel.py`, `model.py` makes
the model and its file.
"""
