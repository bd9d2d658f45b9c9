"""How wide loads of an operand's rows can be, from its strides; what of that the pointer kernel has to be told.

Triton finds out by itself that a size or stride is a multiple of 16, or nothing. Needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from torch import Tensor

from constrint.kernels.gemm.units import ALIGNED_ELEMENTS, LINE_BYTES, WIDEST_BYTES


@dataclass(frozen=True)
class Rows:
    """Rows in memory of a (batch, M, K), (batch, K, N) or (batch, M, N) tensor.

    Args:
        width_bytes: The widest aligned access that all rows allow, a power of two up to 16.
        step_bytes: Bytes, up to a line of the L2, that their starts are multiples of.
        is_transposed: Whether they run along the second axis.
        hint: Elements that the compiler has to be told their starts and lengths to be multiples of; 1: nothing.
    """

    width_bytes: int
    step_bytes: int
    is_transposed: bool
    hint: int


def rows_of(t: Tensor) -> Rows:
    """How the rows of a tensor of three axes lie in memory."""
    element = t.element_size()
    is_transposed = t.stride(2) != 1
    along, across = (1, 2) if is_transposed else (2, 1)
    if t.stride(along) != 1 or t.data_ptr() % WIDEST_BYTES:
        return Rows(element, element, is_transposed, 1)
    # The length decides, too: loads wrap around at the last row and column, and are masked at the end of K.
    strides = [t.stride(axis) for axis in (0, across) if t.shape[axis] > 1]
    figures = [t.shape[along], *strides]
    width = gcd(WIDEST_BYTES, *(figure * element for figure in figures))
    step = gcd(LINE_BYTES, t.data_ptr(), *(stride * element for stride in strides))
    is_seen = all(figure % ALIGNED_ELEMENTS == 0 for figure in (*figures, t.stride(across)))
    return Rows(width, step, is_transposed, 1 if is_seen else width // element)


def settled(t: Tensor) -> Tensor:
    """The same tensor; where it is a single row or column, the stride across, which nothing uses, is an aligned one."""
    for across, along in ((1, 2), (2, 1)):
        if t.shape[across] == 1 and t.stride(along) == 1 and t.stride(across) % ALIGNED_ELEMENTS:
            strides = list(t.stride())
            strides[across] = -(-t.shape[along] // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS
            return t.as_strided(t.shape, strides)
    return t
