"""Conjugate gradients: symmetric positive definite systems, the whole iteration in one launch."""
