"""Products for which the first choice keeps the best configurations: a short side on either side, and any K."""

from __future__ import annotations

from itertools import product as combinations

from constrint.kernels.gemm.table_shapes import Shapes, Stages

#: Short sides: of what lies between two of them the larger one's tile is taken.
SHORT = (1, 2, 4, 8, 16, 32, 64)
#: A long side that is longer than any tile, and a K that is longer than any step.
LARGE = 1 << 16


def _both(shapes: list[tuple[int, int, int]]) -> Shapes:
    """The same with either side of C the short one."""
    return tuple(dict.fromkeys((*shapes, *((n, m, k) for m, n, k in shapes))))


#: Together their spaces are what can be asked for.
SAMPLES: Shapes = _both([(short, LARGE, LARGE) for short in SHORT])
_LONG = (16, 256, 2048, 4096, 6144, 11008, 28672, 50257, 1 << 20)
_COARSE = _both(list(combinations(SHORT, (64, 1000, 4096, 16384, 1 << 18), (64, 768, 4096, 32768))))
_FINE = _both(
    [
        *combinations((1, 2, 4, 8, 16, 32, 64), _LONG, (64, 1024, 4096, 16384)),
        *combinations((1, 8, 16, 32, 64), (1, 16, 64, 100), (4096, 65536, 1 << 20)),
    ]
)
STAGES: Stages = ((_COARSE, 40), (_FINE, 3))
