"""Configurations of kernels: `solve` ranks them, `verify` compiles the best."""
