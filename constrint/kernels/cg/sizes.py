"""Sizes of conjugate gradients, and the systems of workloads. No torch."""

from __future__ import annotations

from constrint.errors import UsageError
from constrint.kernels.cg.shape import INDEX_BYTES, LONG_INDEX_BYTES, System
from constrint.kernels.cg.star import StarMatrix
from constrint.select.workload import Size, Workload

POISSON_ROWS, POISSON_NNZ = 2048 * 2048, 5 * 2048 * 2048
#: The most iterations of a workload, and the usual number: enough for systems that are dominant in the diagonal.
MOST_ITERATIONS, ITERATIONS = 10_000, 16

SIZES = (
    Size("rows", POISSON_ROWS, "rows of the matrix"),
    Size("nnz", POISSON_NNZ, "stored elements of a matrix in CSR; points of a star come from the grid"),
)
OPTIONS = (
    Size("nx", 0, "points along x of a grid whose star is the matrix; 0: a matrix in CSR", 0),
    Size("ny", 0, "points along y of a grid; 0: all that rows and nx leave", 0),
    Size("reach", 1, "neighbours of a star on each side of a point along an axis", 1, 4),
    Size("jacobi", 0, "1: the inverse diagonal preconditions", 0, 1),
    Size("long", 0, "1: indices of a matrix in CSR have 64 bits", 0, 1),
    Size("iterations", ITERATIONS, "iterations of the launch", 1, MOST_ITERATIONS),
)


def star_of(workload: Workload) -> StarMatrix | None:
    """The star of a workload: `points` of it along the axes, nearest first; None for a matrix in CSR.

    It is strictly dominant in the diagonal, so that a fixed number of iterations has one answer in every precision.
    """
    nx, ny = workload.options.get("nx", 0), workload.options.get("ny", 0)
    if not nx:
        return None
    rows = workload.sizes["rows"]
    shape = (nx,) if nx == rows else (rows // nx, nx) if ny in (0, rows // nx) else (rows // (nx * ny), ny, nx)
    sides = {(0,) * len(shape): 0.0}
    reach = workload.options.get("reach", 1)
    for axis, size in enumerate(shape):
        for step in range(1, min(reach, size - 1) + 1):
            for sign in (-1, 1):
                sides[tuple(sign * step if other == axis else 0 for other in range(len(shape)))] = -1.0 / step
    sides[(0,) * len(shape)] = 2.0 * sum(map(abs, sides.values())) or 1.0
    return StarMatrix(shape, sides)


def system_of(workload: Workload) -> System:
    """The system of a workload."""
    options = workload.options
    wide = LONG_INDEX_BYTES if options.get("long", 0) else INDEX_BYTES
    star = star_of(workload)
    jacobi = bool(options.get("jacobi", 0)) and star is None
    return System(workload.sizes["rows"], workload.dtype, star, workload.sizes["nnz"], jacobi, wide, wide)


def iterations_of(workload: Workload) -> int:
    """Iterations of a workload's launch."""
    return workload.options.get("iterations", ITERATIONS)


def check_system(workload: Workload) -> None:
    """Refuse sizes that are no system.

    Raises:
        UsageError: When a grid's extents do not divide the rows, and for more elements than a matrix has.
    """
    rows, nnz = workload.sizes["rows"], workload.sizes["nnz"]
    nx, ny = workload.options.get("nx", 0), workload.options.get("ny", 0)
    if nx and rows % (nx * max(1, ny)):
        raise UsageError(f"cg: a grid of nx={nx} and ny={ny} has no {rows} points; rows are a multiple of nx * ny.")
    if ny and not nx:
        raise UsageError("cg: a grid has ny where it has nx.")
    if not nx and nnz > rows * rows:
        raise UsageError(f"cg: a matrix of {rows} rows has no {nnz} elements.")
