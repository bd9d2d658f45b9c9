"""Parts of the specifications that all implementations of conjugate gradients share. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.cg.cost import bytes_beyond_chip, first_bytes, iteration_bytes
from constrint.kernels.cg.sizes import OPTIONS, POISSON_NNZ, POISSON_ROWS, SIZES, iterations_of, star_of, system_of
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload


class SystemSpec(KernelSpec):
    """Workloads, checks and operands, the same for all implementations."""

    operation = "cg"
    sizes = SIZES
    options = OPTIONS
    dtypes = ("fp64", "fp32")

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """max(operations / the device's peak, bytes that neither the SMs nor the L2 can hold / DRAM bandwidth)."""
        peak = gpu.peak_flop_per_s(workload.dtype) or float("inf")
        moved = iterations_of(workload) * bytes_beyond_chip(gpu, system_of(workload))
        moved = max(moved, first_bytes(system_of(workload)))
        return max(self.num_operations(workload) / peak, moved / gpu.memory.dram.bandwidth_bytes_per_s)

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
