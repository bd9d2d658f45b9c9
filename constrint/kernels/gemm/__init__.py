"""Tiled matrix multiplication, C = A @ B."""
