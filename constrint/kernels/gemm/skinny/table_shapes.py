"""Products for which the first choice keeps the best configurations: a short side on either side, and any K."""

from __future__ import annotations

from itertools import product as combinations

from constrint.kernels.gemm.table_shapes import Shapes, Stages, spread_shapes

#: Short sides: of what lies between two of them the larger one's tile is taken.
SHORT = (1, 2, 4, 8, 16, 32, 64)
#: A long side that is longer than any tile, and a K that is longer than any step.
LARGE = 1 << 16


def _both(shapes: list[tuple[int, int, int]]) -> Shapes:
    """The same with either side of C the short one."""
    return tuple(dict.fromkeys((*shapes, *((n, m, k) for m, n, k in shapes))))


#: Together their spaces are what can be asked for: many blocks share a tile where there are few tiles.
SAMPLES: Shapes = _both([(short, long, LARGE) for short in SHORT for long in (64, 512, 4096, LARGE)])
#: Long sides and depths all over their range: how many blocks share a tile depends on both.
_SPREAD = tuple((n, k) for _, n, k in spread_shapes(48, 1))
_COARSE = _both(list(combinations((1, 4, 8, 16, 32, 64), (64, 1000, 8192, 1 << 18), (64, 2048, 32768))))
_FINE = _both(
    [
        *((short, n, k) for short in SHORT for n, k in _SPREAD),
        *combinations(SHORT, (4096, 6144, 11008, 28672, 50257, 1 << 20), (64, 1024, 4096, 16384)),
        *combinations(SHORT, (1, 16, 64, 100), (4096, 65536, 1 << 20)),
    ]
)
STAGES: Stages = ((_COARSE, 100), (_FINE, 2))
