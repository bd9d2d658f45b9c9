"""Tiles of sweeps in CUDA C++: halos, the useful part, the ring of rows in shared memory. No torch.

All figures are arithmetic on the parameters, whether these are expressions, numbers or columns of numbers.
`source/kernel.cu` has the same at compile time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.model import Expr, if_then_else, minimum

#: Bytes of the widest load and store of a thread.
PIECE_BYTES = 16
#: Most values of a thread in a row or plane: bits of a word mark those in the border.
MOST_VALUES = 32
#: Bytes of elements, and of sums and values on the way.
ELEMENT_BYTES: Mapping[str, int] = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
SUM_BYTES: Mapping[str, int] = {"fp64": 8, "fp32": 4, "fp16": 4, "bf16": 4}


def least(one: Any, other: Any) -> Any:
    """The smaller one of two figures."""
    if isinstance(one, Expr) or isinstance(other, Expr):
        return minimum(one, other)
    return np.minimum(one, other)


def if_one(number: Any, then: Any, otherwise: Any) -> Any:
    """One figure where a number is 1, else another one."""
    if isinstance(number, Expr):
        return if_then_else(number == 1, then, otherwise)
    return np.where(np.asarray(number) == 1, then, otherwise)


def up_to(value: Any, step: Any) -> Any:
    """The least multiple of a step that is no less than a value."""
    return (value + step - 1) // step * step


@dataclass(frozen=True)
class SweepTile:
    """A tile of one launch.

    Args:
        steps: Sweeps of the launch.
        vector, rows: Elements of a thread along x and y; one row for grids of two axes.
        lanes, groups: Threads along x and y; in grids of two axes every group has a tile of its own.
        depth: Rows (or planes) that are copied ahead.
        dtype: Type of the elements.
        widths: Widths of the border along the streaming axis, y (0 for grids of two axes) and x.
        is_3d: Whether the grid has three axes.
        has_f: Whether there is a right side.
        aligned: Whether rows are whole pieces; a launch of one step then loads what lies beside a tile.
    """

    steps: Any
    vector: Any
    rows: Any
    lanes: Any
    groups: Any
    depth: Any
    dtype: str
    widths: tuple[int, int, int]
    is_3d: bool
    has_f: bool = True
    aligned: bool = True

    @staticmethod
    def of(
        v: Mapping[str, Any],
        dtype: str,
        widths: tuple[int, int, int],
        *,
        is_3d: bool,
        has_f: bool = True,
        aligned: bool = True,
    ) -> SweepTile:
        """Derive the tile from a configuration's parameters."""
        return SweepTile(
            steps=v["steps_per_launch"],
            vector=v["vector"],
            rows=v["rows"],
            lanes=v["lanes"],
            groups=v["groups"],
            depth=v["depth"],
            dtype=dtype,
            widths=widths,
            is_3d=is_3d,
            has_f=has_f,
            aligned=aligned,
        )

    @property
    def lag(self) -> int:
        """Rows by which a sweep lags behind the one before."""
        return max(1, self.widths[0])

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return self.lanes * self.groups

    @property
    def values(self) -> Any:
        """Values of a thread in a row (or plane)."""
        return self.vector * self.rows

    @property
    def per_piece(self) -> Any:
        """Elements of a load or store."""
        return least(self.vector, PIECE_BYTES // ELEMENT_BYTES[self.dtype])

    @property
    def width(self) -> Any:
        """Elements of a tile along x."""
        return self.lanes * self.vector

    @property
    def height(self) -> Any:
        """Rows of a tile along y."""
        return self.groups * self.rows if self.is_3d else 1

    @property
    def halo_x(self) -> Any:
        """Elements on either side along x that are computed anew: whole pieces."""
        halo = up_to(self.widths[2] * self.steps, self.per_piece)
        return if_one(self.steps, 0, halo) if self.aligned else halo

    @property
    def halo_y(self) -> Any:
        """Rows on either side along y that other tiles own."""
        return self.widths[1] * self.steps if self.is_3d else 0

    @property
    def used_x(self) -> Any:
        """Useful elements of a tile along x."""
        return self.width - 2 * self.halo_x

    @property
    def used_y(self) -> Any:
        """Useful rows of a tile along y."""
        return self.height - 2 * self.halo_y

    @property
    def lead(self) -> Any:
        """Rows (or planes) that a tile takes beyond those that it stores."""
        return self.steps * (self.widths[0] + self.lag)

    @property
    def ring_rows(self) -> Any:
        """Rows (or planes) of u and f in shared memory."""
        of_f = (self.steps - 1) * self.lag + self.depth if self.has_f else 0
        return self.depth + of_f

    @property
    def smem_bytes(self) -> Any:
        """Shared memory of a block."""
        slot = self.values * self.threads * ELEMENT_BYTES[self.dtype]
        edges = 0
        if self.is_3d and self.widths[1]:
            edges = 2 * self.steps * self.groups * 2 * self.widths[1] * self.width * SUM_BYTES[self.dtype]
        element, reach = ELEMENT_BYTES[self.dtype], up_to(self.widths[2], self.per_piece)
        sides = self.depth * self.rows * self.groups * 2 * reach * element
        return self.ring_rows * slot + edges + if_one(self.steps, sides, 0)

    @property
    def state_registers(self) -> Any:
        """32-bit registers of a thread for rows and sums that wait for others."""
        return 2 * self.steps * self.lag * self.values * (SUM_BYTES[self.dtype] // 4)

    def tiles(self, size: Any, used: Any, halo: Any) -> Any:
        """Tiles along an axis; the outermost ones have no halo towards the border."""
        return np.maximum(1, -(-(size - 2 * halo) // used))
