"""Workloads of conjugate gradients, and what all implementations share. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.cg.cost import iteration_bytes
from constrint.kernels.cg.shape import INDEX_BYTES, LONG_INDEX_BYTES, System
from constrint.kernels.cg.star import Star
from constrint.select.spec import KernelSpec
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


def star_of(workload: Workload) -> Star | None:
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
    return Star(shape, sides)


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


class SystemSpec(KernelSpec):
    """What implementations share: workloads, checks and their operands."""

    operation = "cg"
    sizes = SIZES
    options = OPTIONS
    dtypes = ("fp64", "fp32")

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """Bytes that iterations move where the chip holds no vector, at the DRAM's bandwidth of the data sheet."""
        return self.moved_bytes(workload) / gpu.memory.dram.bandwidth_bytes_per_s

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of all iterations where the chip holds no vector."""
        return iteration_bytes(system_of(workload)) * iterations_of(workload)

    def check_memory(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise InfeasibleError where matrix and vectors do not fit the GPU's memory."""
        super().check_memory(
            gpu, Workload(self.operation, workload.sizes, workload.dtype, {**workload.options, "iterations": 1})
        )

    def num_operations(self, workload: Workload) -> int:
        """2 for each element of the matrix and 10 for each row, in every iteration."""
        star, s = star_of(workload), workload.sizes
        nnz = s["nnz"] if star is None else s["rows"] * (len(star.neighbours) + 1)
        return iterations_of(workload) * (2 * nnz + 10 * s["rows"])

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Poisson's equation in two and in three dimensions, as a star and in CSR."""
        for nx, ny, rows in ((2048, 2048, 2048**2), (128, 128, 128**3), (1024, 1024, 1024**2)):
            yield Workload("cg", {"rows": rows, "nnz": 5 * rows}, "fp64", {"nx": nx, "ny": ny})
        yield Workload("cg", {"rows": POISSON_ROWS, "nnz": POISSON_NNZ}, "fp64")

    def num_terms(self, workload: Workload) -> int:
        """Roundings of a solution: those of the last few iterations of a system that is dominant in the diagonal."""
        return 16 * iterations_of(workload)

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """b (n,), and the matrix in CSR: starts, columns, values, and inverse with Jacobi."""
        from constrint.kernels.cg.reference import random_inputs

        return random_inputs(workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """x (n,), empty."""
        return {"x": inputs["b"].new_empty(inputs["b"].shape)}

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The same iterate in fp64."""
        from constrint.kernels.cg.reference import reference_of

        return {"x": reference_of(workload, dict(inputs))}
