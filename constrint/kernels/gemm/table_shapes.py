"""Shapes (m, n, k) for which tables of configurations keep the best ones (`tables.py`). No torch."""

from __future__ import annotations

from itertools import product as combinations

#: Shapes for which the best configurations are kept, first the better part of the space for a few, then the best of
#: those for many. Between them the best one changes little by little. The three lists after the grid hold shapes with a
#: side of one tile, where it changes most. Of 80 shapes drawn log-uniformly, 1372x17x16434 reaches 0.90 (A100), 0.91
#: (B200) and 0.96 (MI300X) of the whole space's best without the last list, and at least 0.96 with it; without all
#: three some shapes, 1x152x1 on an H200 say, have no valid row at all. `test_first_choice.py` draws others.
COARSE_SHAPES = (
    *combinations((16, 144, 1024, 8192), (16, 256, 2048, 16384), (512, 4096)),
    *((16, 16, 32), (256, 256, 64), (16, 4096, 64), (2048, 16, 64), (4096, 4096, 64), (16, 16, 8192)),
    *((2048, 48, 16384), (2048, 16, 16384), (64, 4096, 16), (2048, 1024, 16)),
    *((1408, 32, 16384), (800, 16, 8192), (5600, 16, 96), (5600, 32, 1024), (16, 16, 640), (16, 16, 16)),
)
FINE_SHAPES = (
    *combinations(
        (16, 48, 64, 128, 144, 272, 512, 1024, 2048, 4096, 16384),
        (16, 256, 1024, 3072, 4096, 12288),
        (256, 768, 2048, 8192),
    ),
    *COARSE_SHAPES,
)
COARSE_KEPT = 150
FINE_KEPT = 5
#: Stages of a table: shapes, and how many configurations are kept for each.
Shapes = tuple[tuple[int, int, int], ...]
Stages = tuple[tuple[Shapes, int], ...]
#: The shape whose space a table is made of: whatever is valid for some size is valid for it.
USUAL_SAMPLES: Shapes = ((1 << 16, 1 << 16, 1 << 16),)
USUAL_STAGES: Stages = ((COARSE_SHAPES, COARSE_KEPT), (FINE_SHAPES, FINE_KEPT))


def spread_shapes(number: int, first: int) -> tuple[tuple[int, int, int], ...]:
    """Shapes all over the range of sizes, evenly by their logarithms (Halton's sequence): m from 1, n and k from 8.

    For kernels whose best tile depends on the divisibility of sizes, which round shapes do not show.
    """
    drawn = (tuple(_halton(place, base) for base in (2, 3, 5)) for place in range(first, first + number))
    return tuple((round(2 ** (14 * m)), _multiple(3 + 11 * n), _multiple(3 + 12 * k)) for m, n, k in drawn)


def _multiple(exponent: float) -> int:
    """The multiple of 8 next to a power of two."""
    return max(8, 8 * round(2**exponent / 8))


def _halton(place: int, base: int) -> float:
    """The digits of a number behind the point, in reverse order."""
    value, weight = 0.0, 1.0
    while place:
        weight /= base
        value += weight * (place % base)
        place //= base
    return value
