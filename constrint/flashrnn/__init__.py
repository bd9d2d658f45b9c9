"""Fused recurrent layers (not there yet: the layers come with the recurrent kernels)."""
