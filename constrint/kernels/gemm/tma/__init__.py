"""Shared by kernels that load through the TMA unit: which operands it can load, and copies of the others."""
