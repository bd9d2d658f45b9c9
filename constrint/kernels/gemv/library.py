"""The `library` implementation: torch's own product, which is cuBLAS on NVIDIA's GPUs and rocBLAS on AMD's.

The library has no parameters. Its time is that of the bytes at the shares of the copy bandwidth that were measured
(`measured.json`, by `python -m benchmarks.vectors --fit`); on other GPUs it is no candidate by prediction, and the
first calls try it. No torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemv.shape import MatrixShape
from constrint.kernels.gemv.workload import GemvBase
from constrint.model import Problem
from constrint.select.candidate import Config
from constrint.select.cost import PARTS, CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

LIBRARY = "gemv.library"
MEASURED = Path(__file__).with_name("measured.json")


class GemvLibrarySpec(GemvBase):
    """The product by the operator that a user of torch would call."""

    name = "library"
    summary = "y[M] = alpha * A[M,N] x[N] + beta * y[M] by torch's own operator (cuBLAS, rocBLAS)"
    dtypes = ("fp32", "bf16", "fp16", "fp64")

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError where its time was not measured."""
        super().check_dtype(gpu, workload)
        if library_s(gpu, workload) is None:
            raise UnsupportedError(f"{self.full_name}: torch's own product was not measured on {gpu.name}.")

    def params(self, gpu: GpuModel, workload: Workload) -> Sequence[Param]:
        """None: the library chooses."""
        return ()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None."""
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        """None: the library does not say which kernels it launches."""
        return None

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """One point."""
        return Problem(self.full_name)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """The measured time, interpolated; the library does not say what binds it."""
        seconds = library_s(gpu, workload) or float("inf")
        return CostColumns(np.array([seconds]), dict.fromkeys((*PARTS, "spilling"), 0.0) | {"latency": seconds})

    def evidence(self, gpu: GpuModel, workload: Workload) -> str:
        """The file that the time comes from."""
        return f"times of {self.full_name} are interpolated between products in {MEASURED.name}, measured on {gpu.name}"

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one call."""
        from constrint.kernels.gemv.by_torch import GemvByTorch
        from constrint.kernels.gemv.launch import call_of_inputs

        return [GemvByTorch(call_of_inputs(inputs, outputs))]


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Any]:
    return dict(json.loads(MEASURED.read_text())) if MEASURED.is_file() else {}


def library_s(gpu: GpuModel, workload: Workload) -> float | None:
    """Seconds of torch's own product: of the nearest measured shapes by size and by aspect; None where none is."""
    rows = _tables().get(gpu.name)
    if not rows or workload.dtype == "fp8":
        return None
    shape = MatrixShape.of(workload)
    kind = [workload.dtype, int(shape.by_columns)]
    near = [row for row in rows if [row["dtype"], row["transposed"]] == kind]
    if not near:
        return None
    place = np.log2([float(shape.m) * shape.batch, float(shape.n)])
    distances = [float(np.sum((np.log2([row["m"], row["n"]]) - place) ** 2)) + 1e-3 for row in near]
    weights = np.array([1.0 / distance**2 for distance in distances])
    # What is interpolated is the rate: bytes over the time beyond a launch.
    rates = np.log([row["bytes"] / max(row["seconds"] - _START_S, 1e-7) for row in near])
    rate = float(np.exp(np.sum(weights * rates) / np.sum(weights)))
    return _START_S + shape.moved_bytes / rate


#: Seconds of the smallest product between two events.
_START_S = 2.0e-6
