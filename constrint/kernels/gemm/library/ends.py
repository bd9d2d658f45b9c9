"""Activations that the library applies to its own sums. No torch."""

from __future__ import annotations

#: Activations that the library applies to its sums, and the most bytes of a result for which it does so exactly, where
#: rows allow accesses of 16 bytes. Its relu makes 0 of NaN in batches of 32-bit results (seen on an H100), and of fp16
#: ones whose rows are not aligned (seen on an H200). Its gelu is the tanh approximation, which nobody has checked on
#: values that are not finite.
IN_PRODUCT = {"relu": 2}


def takes_activation(activation: str | None, output_bytes: int, *, has_aligned_rows: bool) -> bool:
    """Whether the library applies an activation to results of a size as torch does, to their accuracy.

    Args:
        activation: Its name, or none.
        output_bytes: Bytes of one element of the result.
        has_aligned_rows: Whether the rows of A, B and C allow accesses of 16 bytes.
    """
    return not activation or (has_aligned_rows and output_bytes <= IN_PRODUCT.get(activation, 0))
