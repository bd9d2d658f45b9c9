"""Sizes of a request for sweeps, and figures that follow from them. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from constrint.kernels.jacobi.shape import ELEMENT_BYTES, PIECE_BYTES
from constrint.kernels.jacobi.star import MOST_RADIUS
from constrint.select.workload import MAX_SIZE, Size, Workload

#: Elements along an axis: a tile that begins in the grid ends at a place that 32 bits hold.
MOST_ALONG = MAX_SIZE - 4096
SIZES = (
    Size("ny", 8192, "rows of the grid", 1, MOST_ALONG),
    Size("nx", 8192, "elements of a row", 1, MOST_ALONG),
    Size("nz", 1, "planes of the grid; 1: a grid of two axes", 1, MOST_ALONG),
    Size("steps", 16, "sweeps"),
)
OPTIONS = (
    Size("radius", 1, "largest offset along each axis", 1, MOST_RADIUS),
    Size("batch", 1, "grids in one call"),
)
DTYPES = ("fp32", "fp64", "fp16", "bf16")


@dataclass(frozen=True)
class Grid:
    """A request in numbers.

    Args:
        slow: Elements along the streaming axis: z, or y of a grid of two axes.
        ny, nx: Elements along y (1 for grids of two axes) and x.
        batch: Grids.
        steps: Sweeps.
        radius: Largest offset along each axis.
        dtype: Type of the elements.
        is_3d: Whether the grid has three axes.
    """

    slow: int
    ny: int
    nx: int
    batch: int
    steps: int
    radius: int
    dtype: str
    is_3d: bool

    @staticmethod
    def of(workload: Workload) -> Grid:
        """The numbers of a workload."""
        s, options = workload.sizes, workload.options
        is_3d = s["nz"] > 1
        slow, ny = (s["nz"], s["ny"]) if is_3d else (s["ny"], 1)
        batch, radius = options.get("batch", 1), options.get("radius", 1)
        return Grid(slow, ny, s["nx"], batch, s["steps"], radius, workload.dtype, is_3d)

    @property
    def is_aligned(self) -> bool:
        """Whether rows are whole pieces of memory."""
        return self.nx * ELEMENT_BYTES[self.dtype] % PIECE_BYTES == 0

    @property
    def points(self) -> int:
        """Elements of u."""
        return self.batch * self.slow * self.ny * self.nx

    @property
    def bytes(self) -> int:
        """Bytes of u."""
        return self.points * ELEMENT_BYTES[self.dtype]

    @property
    def terms(self) -> int:
        """Neighbours in the sum of a point."""
        return 2 * self.radius * (3 if self.is_3d else 2)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Widths of the border along the streaming axis, y and x."""
        return self.radius, self.radius if self.is_3d else 0, self.radius
