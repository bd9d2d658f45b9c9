"""torch's own product (cuBLAS, hipBLASLt) as an implementation of the operation."""
