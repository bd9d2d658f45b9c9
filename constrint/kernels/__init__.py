"""Kernels and their parameter spaces: each operation folder holds spec, reference, kernel and operator."""
