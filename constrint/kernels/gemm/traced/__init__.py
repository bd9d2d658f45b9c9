"""Epilogues that a user writes: traced once to an expression, fused into gemm.cuda or run as one pointwise pass."""
