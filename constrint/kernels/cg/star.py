"""Constant-coefficient stars on grids: matrices that are never stored. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from constrint.errors import UsageError

#: Most axes of a grid, and most points of a star.
MAX_AXES, MAX_POINTS = 3, 27

Offset = tuple[int, ...]


@dataclass(frozen=True)
class StarMatrix:
    """The matrix of a symmetric star with constant coefficients on a grid whose borders are zero (Dirichlet).

    (A u)[i] = sum over offsets o of coefficients[o] * u[i + o]; points outside of the grid are 0.

    Args:
        shape: Points along each axis, one to three of them, the last one contiguous.
        offsets: The coefficient of each offset, which has as many numbers as the grid has axes; offset 0 is the centre.

    Raises:
        UsageError: For a shape or offsets that make no star, and where an offset and its opposite differ.
    """

    shape: tuple[int, ...]
    offsets: Mapping[Offset, float] = field(hash=False)

    def __post_init__(self) -> None:
        shape = tuple(self.shape)
        if not 1 <= len(shape) <= MAX_AXES or not all(_is_whole(size) and size >= 1 for size in shape):
            raise UsageError(f"a star's grid has 1 to {MAX_AXES} axes of at least one point, got {self.shape!r}.")
        if math.prod(shape) >= 2**31:
            raise UsageError(f"a star's grid has fewer than 2^31 points, got {shape}.")
        if not isinstance(self.offsets, Mapping) or not 1 <= len(self.offsets) <= MAX_POINTS:
            raise UsageError(f"a star maps 1 to {MAX_POINTS} offsets to coefficients, got {self.offsets!r}.")
        for offset, value in self.offsets.items():
            if not isinstance(offset, tuple) or len(offset) != len(shape) or not all(map(_is_whole, offset)):
                raise UsageError(
                    f"offsets on a grid of {len(shape)} axes are tuples of as many integers, got {offset!r}."
                )
            if any(abs(step) >= size for step, size in zip(offset, shape, strict=True)) and any(offset):
                raise UsageError(f"the offset {offset} leaves every point of a grid of {shape}.")
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise UsageError(f"the coefficient of {offset} has to be a finite number, got {value!r}.")
            opposite = self.offsets.get(tuple(-step for step in offset))
            if opposite != value:
                raise UsageError(f"the matrix is not symmetric: {offset} has {value}, its opposite {opposite}.")
        object.__setattr__(self, "shape", tuple(int(size) for size in shape))
        object.__setattr__(self, "offsets", {tuple(map(int, o)): float(v) for o, v in self.offsets.items()})

    @property
    def num_rows(self) -> int:
        """Rows of the matrix: points of the grid."""
        return math.prod(self.shape)

    @property
    def centre(self) -> float:
        """The diagonal of the matrix."""
        return self.offsets.get((0,) * len(self.shape), 0.0)

    @property
    def neighbours(self) -> dict[tuple[int, int, int], float]:
        """Coefficients of the offsets (z, y, x) other than 0, in the order of memory."""
        pad = (0,) * (MAX_AXES - len(self.shape))
        return {(*pad, *o): self.offsets[o] for o in sorted(self.offsets) if any(o)}  # type: ignore[misc]

    @property
    def lines(self) -> dict[tuple[int, int], dict[int, float]]:
        """Coefficients by offset along x for each line along x that the star reads, by the line's offsets (z, y).

        A line's offsets follow each other and include 0; coefficients between others are 0.
        """
        found: dict[tuple[int, int], dict[int, float]] = {(0, 0): {0: self.centre}}
        for (z, y, x), value in self.neighbours.items():
            found.setdefault((z, y), {0: 0.0})[x] = value
        return {
            line: {x: found[line].get(x, 0.0) for x in range(min(found[line]), max(found[line]) + 1)}
            for line in sorted(found)
        }

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Coefficients of all lines, one after the other."""
        return tuple(value for line in self.lines.values() for value in line.values())

    @property
    def reach(self) -> int:
        """Largest offset along x."""
        return max((abs(x) for line in self.lines.values() for x in line), default=0)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Points along (z, y, x)."""
        return (*(1,) * (MAX_AXES - len(self.shape)), *self.shape)  # type: ignore[return-value]

    @property
    def halo(self) -> int:
        """Largest distance in memory between a point and a neighbour."""
        _, ny, nx = self.extents
        return max((abs((z * ny + y) * nx + x) for z, y, x in self.neighbours), default=0)


def Poisson(shape: tuple[int, ...], scale: float = 1.0) -> StarMatrix:  # noqa: N802  reads as the matrix that it makes
    """The star of -Laplace on a grid: 2 x axes in the centre, -1 beside it along each axis, times `scale` (1 / h^2).

    Args:
        shape: Points along each axis, one to three of them.
        scale: Factor of all coefficients.

    Raises:
        UsageError: For a shape that makes no grid.
    """
    axes = len(tuple(shape))
    offsets: dict[Offset, float] = {(0,) * axes: 2.0 * axes * scale}
    for axis, step in product(range(axes), (-1, 1)):
        if shape[axis] > 1:
            offsets[tuple(step if other == axis else 0 for other in range(axes))] = -scale
    return StarMatrix(tuple(shape), offsets)


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)
