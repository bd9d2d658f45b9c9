"""The rule for operands that are copied before the TMA unit loads them, for tensors and for workloads. No torch."""

from __future__ import annotations

from typing import NamedTuple

from constrint.kernels.gemm.units import LINE_BYTES, SECTOR_BYTES


class Copying(NamedTuple):
    """Whether an operand is copied, and whether the copy is contiguous along K; else it keeps its order of axes."""

    is_copied: bool
    is_k_major: bool


def copying_of(row_bytes: int, *, is_k_major: bool, needs_k_major: bool, is_loadable: bool) -> Copying:
    """Whether an operand is copied, and the order of axes of the copy.

    Args:
        row_bytes: Bytes of one of its rows in memory, without the gap behind it.
        is_k_major: Whether it is contiguous along K.
        needs_k_major: Whether matrix instructions take its type along K alone.
        is_loadable: Whether the TMA unit can load it as it lies.
    """
    along_k = is_k_major or needs_k_major or _is_short(row_bytes)
    return Copying(not is_loadable or along_k != is_k_major, along_k)


def _is_short(row_bytes: int) -> bool:
    """Whether rows across K are copied along K, if need be.

    The TMA unit takes as long for a short row as for a line, and longer where rows straddle lines: on an H200 copying
    8, 24 or 48 elements of 16 bits along K first was faster, copying 16 or 32 was not.
    """
    return row_bytes < LINE_BYTES and row_bytes not in (SECTOR_BYTES, 2 * SECTOR_BYTES)
