"""One kit for what a kernel takes of the registers: a model, its weights as data, and how they are sampled and fitted.

A kernel gives the terms that its registers are made of and a `Sample` of compiled configurations. The kit knows no
kernel; it fits weights to the sample (`fit.py`), keeps them in `data/` (`weights.py`) and states the figures as
expressions (`registers.py`).
"""
