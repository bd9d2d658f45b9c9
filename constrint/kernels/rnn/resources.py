"""What one program of the recurrent kernels takes, as integer expressions."""

from __future__ import annotations


def depth_parts(depth: int, slices: int) -> tuple[int, int]:
    """Split a dot's depth into one or two powers of two, each at least 16 per slice; the second may reach beyond."""
    least = 16 * slices
    whole = max(least, 1 << (depth - 1).bit_length())
    main = max(least, 1 << (depth.bit_length() - 1))
    if main >= depth:
        return main, 0
    rest = max(least, 1 << (depth - main - 1).bit_length())
    return (whole, 0) if main + rest >= whole else (main, rest)
