"""The recurrence as a loop of matrix products and pointwise steps, by a GEMM library."""
