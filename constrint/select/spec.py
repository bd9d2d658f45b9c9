"""What a kernel tells the selector: its parameters, their constraints, its resources and its cost.

A `KernelSpec` holds knowledge, never results; `rank` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.model import Problem
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse

Columns = Mapping[str, NDArray[Any]]
Config = Mapping[str, int]


@dataclass(frozen=True)
class Param:
    """One tunable parameter: its admissible values, the preferred ones first.

    Args:
        name: The field's standard name (`tile_m`, `num_warps`).
        values: Values in order of preference; ties in predicted time are settled by this order.
        meaning: What the parameter does, in a phrase.
        because: Why exactly these values.
    """

    name: str
    values: tuple[int, ...]
    meaning: str
    because: str


@dataclass(frozen=True)
class Workload:
    """What is asked of a kernel: sizes and a dtype (never called a problem)."""

    kernel: str
    sizes: Mapping[str, int]
    dtype: str

    def __str__(self) -> str:
        """Render as `gemm m=4096 n=4096 k=4096 bf16`."""
        return f"{self.kernel} {' '.join(f'{n}={v}' for n, v in self.sizes.items())} {self.dtype}"


@dataclass(frozen=True)
class ResourceUse:
    """What one block of a configuration takes, estimated, and what fits on one SM."""

    threads: int
    registers_per_thread: int
    smem_bytes: int
    blocks_per_sm: int
    limited_by: str


@dataclass(frozen=True)
class CostEstimate:
    """A modelled run time, what binds it, and its parts."""

    seconds: float
    bound_by: str
    roofline_share: float
    parts_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A valid configuration with its estimates.

    It is the best of `num_variants` valid ones that differ only in the order of blocks and in parameters that
    the model cannot tell apart.
    """

    config: Config
    resources: ResourceUse
    cost: CostEstimate
    num_variants: int


class KernelSpec(Protocol):
    """The knowledge of one kernel; implemented once per kernel in `kernels/<operation>/spec.py`."""

    name: str
    summary: str
    size_names: tuple[str, ...]
    dtypes: tuple[str, ...]
    order_params: tuple[str, ...]  # change only the traffic between memory levels
    free_params: tuple[str, ...]  # known to the compiler only: the cost model cannot tell their values apart

    def default_workload(self, gpu: GpuModel) -> Workload:
        """The workload that stands for the kernel when the user names none."""

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UsageError for sizes or a dtype that this GPU or kernel cannot take."""

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """The tunable parameters on this GPU."""

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """The parameter space as an integer constraint problem."""

    def use(self, gpu: GpuModel, workload: Workload, problem: Problem) -> BlockUse:
        """What one block takes, as expressions over variables that are neither order nor free parameters."""

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time of every row; without the order parameters, a lower bound over their values."""

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """The least time any implementation could take on this GPU."""

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """What the cost model had to assume because no source states it."""


def as_config(columns: Columns, row: int) -> dict[str, int]:
    """One row of columns as a configuration."""
    return {name: int(np.asarray(column)[row]) for name, column in columns.items()}
