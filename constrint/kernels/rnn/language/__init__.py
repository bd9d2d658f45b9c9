"""Recurrent cells written in Python: a traced step, its derivative, and what kernels need to know of both. No torch."""
