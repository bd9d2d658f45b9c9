"""The vector parts of conjugate gradients in Triton, around the library's product with the matrix."""
