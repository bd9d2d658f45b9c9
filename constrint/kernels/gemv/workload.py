"""Sizes, options, bytes, inputs and reference that all implementations of matrix-vector products share. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemv.shape import MatrixShape
from constrint.select.spec import KernelSpec
from constrint.select.workload import Size, Workload

DTYPES = ("fp32", "bf16", "fp16", "fp64", "fp8")
SIZES = (
    Size("m", 4096, "results: rows of A"),
    Size("n", 4096, "terms of a result: columns of A"),
)
OPTIONS = (
    Size("transposed", 0, "1: A lies in memory by columns (contiguous along M)", 0, 1),
    Size("batch", 1, "products in one launch", 1),
    Size("beta", 0, "1: beta * y is added", 0, 1),
    Size("width", 0, "bytes of which every row (column) starts at a multiple; 0: rows follow each other", 0, 16),
)
#: Sizes (m, n, transposed) that are tuned by default: square, wide and tall ones.
USUAL = ((4096, 4096, 0), (4096, 4096, 1), (16384, 16384, 0), (8192, 28672, 0), (1 << 20, 64, 0), (64, 1 << 20, 1))


class GemvBase(KernelSpec):
    """Sizes, options and reference of all implementations."""

    operation = "gemv"
    sizes = SIZES
    options = OPTIONS
    dtypes: tuple[str, ...] = DTYPES

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for 8-bit matrices where the GPU does not convert them."""
        width = workload.options.get("width", 0)
        if width & (width - 1):
            raise UnsupportedError(f"{self.full_name}: width is 0 or a power of two up to 16, got {width}.")
        if workload.dtype == "fp8" and "fp8" not in gpu.compute.matrix_flop_per_s:
            raise UnsupportedError(f"{self.full_name}: {gpu.name} does not convert fp8.")
        shape = MatrixShape.of(workload)
        if shape.width < shape.element_bytes:
            raise UnsupportedError(
                f"{self.full_name}: elements of {shape.element_bytes} bytes start at multiples of that, got "
                f"width={shape.width}."
            )

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of all matrices and vectors, each counted once."""
        return MatrixShape.of(workload).moved_bytes

    def num_operations(self, workload: Workload) -> int:
        """2 x batch x M x N."""
        shape = MatrixShape.of(workload)
        return 2 * shape.batch * shape.m * shape.n

    def num_terms(self, workload: Workload) -> int:
        """N, the number of products in the sum of a result."""
        return workload.sizes["n"]

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Square, wide and tall matrices in two types."""
        for dtype in ("fp32", "bf16"):
            for m, n, transposed in USUAL:
                options = {"transposed": 1} if transposed else {}
                yield Workload(self.operation, {"m": m, "n": n}, dtype, options)

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """A (batch, M, N) in its layout, x (batch, N), y (batch, M) where it is added, alpha and beta."""
        from constrint.kernels.gemv.reference import random_inputs

        return random_inputs(workload, fnuz=gpu.arch.target == "gfx942", device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The result (batch, M), empty."""
        return {"out": inputs["x"].new_empty((workload.options.get("batch", 1), workload.sizes["m"]))}

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The result in fp64."""
        from constrint.kernels.gemv.reference import ALPHA, BETA, gemv_reference

        wide = {name: t.double() for name, t in inputs.items()}
        return {"out": gemv_reference(wide["a"], wide["x"], wide.get("y"), ALPHA, BETA)}
