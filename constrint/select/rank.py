"""Rank the valid configurations of a kernel on a GPU by predicted time.

The space stays factored: configurations that differ only in parameters the model cannot tell apart are ranked
once and counted; the order of blocks is decided only for those whose lower bound can still win.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel, Occupancy, occupancy
from constrint.model import Problem
from constrint.select.cost import CostColumns
from constrint.select.spec import (
    Candidate,
    Config,
    CostEstimate,
    KernelSpec,
    Param,
    ResourceUse,
    Workload,
    as_config,
)
from constrint.solve import enumerate_space, minimal_conflict

#: Rows whose block order is decided at once.
CHUNK_ROWS = 256


@dataclass(frozen=True)
class Ranking:
    """The best configurations of one kernel for one workload on one GPU; modelled, not measured.

    Args:
        num_product: Configurations in the full product of all parameters.
        num_valid: Configurations that satisfy every constraint.
        seconds: Wall time of stating, solving and ranking.
        roofline_s: Time that no implementation can beat.
        assumptions: What the cost model assumed for want of a source.
    """

    gpu: GpuModel
    workload: Workload
    problem: Problem
    candidates: tuple[Candidate, ...]
    num_product: int
    num_valid: int
    seconds: float
    roofline_s: float
    assumptions: tuple[str, ...] = field(default=())


def rank(
    spec: KernelSpec,
    gpu: GpuModel,
    workload: Workload | None = None,
    *,
    top: int = 10,
    problem: Problem | None = None,
) -> Ranking:
    """Find the `top` valid configurations with the least predicted time.

    Args:
        spec: The kernel.
        gpu: The hardware model.
        workload: What is asked; the kernel's default workload if None.
        top: How many candidates to return.
        problem: The space, if the caller added constraints to `spec.problem(gpu, workload)`.

    Raises:
        InfeasibleError: When nothing is valid; carries a minimal conflict.
        UsageError: When the workload is not one the kernel or the GPU can take.
    """
    started = time.perf_counter()
    workload = workload or spec.default_workload(gpu)
    spec.check_workload(gpu, workload)
    problem = problem or spec.problem(gpu, workload)
    space = enumerate_space(problem)
    if space.size == 0:
        raise infeasible(spec, gpu, workload, problem)
    params = spec.params(gpu, workload)
    late = {*spec.order_params, *spec.free_params}
    core, _ = space.project([p.name for p in params if p.name not in late])
    use = _Use(spec, gpu, workload, problem)
    core_use = use.of(core)
    bound = spec.cost(gpu, workload, core, core_use.blocks_per_sm).seconds
    order = [p for p in params if p.name in spec.order_params]
    free = [p for p in params if p.name in spec.free_params]
    best = _best_rows(spec, gpu, workload, problem, core, core_use.blocks_per_sm, bound, order, params, top)
    roofline_s = spec.roofline_s(gpu, workload)
    final_use = use.of(best.columns)
    candidates = []
    for row in range(len(best.seconds)):
        config = as_config(best.columns, row)
        chosen, num_equal = _complete(problem, config, free)
        candidates.append(
            Candidate(
                config={p.name: chosen[p.name] for p in params},
                resources=final_use.row(row),
                cost=CostEstimate(
                    seconds=float(best.seconds[row]),
                    bound_by=best.cost.bound_name(row),
                    roofline_share=float(roofline_s / best.seconds[row]),
                    parts_s={n: float(np.broadcast_to(s, best.seconds.shape)[row]) for n, s in best.cost.parts_s.items()},
                ),
                num_equal=num_equal,
            )
        )
    return Ranking(
        gpu=gpu,
        workload=workload,
        problem=problem,
        candidates=tuple(candidates),
        num_product=space.product_size,
        num_valid=space.size,
        seconds=time.perf_counter() - started,
        roofline_s=roofline_s,
        assumptions=spec.assumptions(gpu, workload),
    )


def infeasible(spec: KernelSpec, gpu: GpuModel, workload: Workload, problem: Problem) -> InfeasibleError:
    """Say why no configuration is valid: a minimal conflict with its reasons."""
    conflict = minimal_conflict(problem)
    sizes = " ".join(f"{name}={size}" for name, size in workload.sizes.items())
    return InfeasibleError(
        f"no config of {spec.name!r} fits {gpu.name} for {sizes} {workload.dtype}. {conflict}", conflict
    )


@dataclass(frozen=True)
class _Used:
    threads: NDArray[np.int64]
    registers: NDArray[np.int64]
    smem: NDArray[np.int64]
    occupancy: Occupancy

    @property
    def blocks_per_sm(self) -> NDArray[np.int64]:
        return np.asarray(self.occupancy.blocks_per_sm)

    def row(self, row: int) -> ResourceUse:
        return ResourceUse(
            threads=int(self.threads[row]),
            registers_per_thread=int(self.registers[row]),
            smem_bytes=int(self.smem[row]),
            blocks_per_sm=int(self.blocks_per_sm[row]),
            limited_by=str(np.asarray(self.occupancy.limited_by)[row]),
        )


class _Use:
    """Evaluates a kernel's resource expressions over columns."""

    def __init__(self, spec: KernelSpec, gpu: GpuModel, workload: Workload, problem: Problem) -> None:
        self.gpu, self.use = gpu, spec.use(gpu, workload, problem)

    def of(self, columns: Mapping[str, NDArray[Any]]) -> _Used:
        threads = self.use.warps.columns(columns) * self.gpu.sm.warp_size
        registers = self.use.registers_per_thread.columns(columns)
        smem = self.use.smem_bytes.columns(columns)
        fits = occupancy(
            self.gpu, threads_per_block=threads, registers_per_thread=registers, smem_bytes_per_block=smem
        )
        return _Used(threads, registers, smem, fits)


@dataclass(frozen=True)
class _Best:
    columns: dict[str, NDArray[Any]]
    cost: CostColumns
    seconds: NDArray[np.float64]


def _best_rows(
    spec: KernelSpec,
    gpu: GpuModel,
    workload: Workload,
    problem: Problem,
    core: Mapping[str, NDArray[Any]],
    blocks_per_sm: NDArray[Any],
    bound: NDArray[np.float64],
    order: list[Param],
    params: tuple[Param, ...],
    top: int,
) -> _Best:
    """The `top` rows of core x order parameters; rows whose bound exceeds the k-th best are never expanded."""
    by_bound = np.argsort(bound, kind="stable")
    kept: dict[str, NDArray[Any]] | None = None
    kept_blocks = blocks_per_sm[:0]
    cost: CostColumns | None = None
    for start in range(0, len(by_bound), CHUNK_ROWS):
        rows = by_bound[start : start + CHUNK_ROWS]
        if cost is not None and len(cost.seconds) >= top and bound[rows[0]] > cost.seconds.max():
            break
        fresh = _expand({n: c[rows] for n, c in core.items()} | {"_row": rows}, order, problem)
        fresh_blocks = blocks_per_sm[fresh.pop("_row")]
        if kept is not None:
            fresh = {n: np.concatenate([kept[n], fresh[n]]) for n in fresh}
            fresh_blocks = np.concatenate([kept_blocks, fresh_blocks])
        full = spec.cost(gpu, workload, fresh, fresh_blocks)
        keep = _first(full.seconds, fresh, params, top)
        kept, kept_blocks = {n: c[keep] for n, c in fresh.items()}, fresh_blocks[keep]
        cost = spec.cost(gpu, workload, kept, kept_blocks)
    assert kept is not None and cost is not None
    return _Best(kept, cost, cost.seconds)


def _first(
    seconds: NDArray[np.float64], columns: Mapping[str, NDArray[Any]], params: tuple[Param, ...], top: int
) -> NDArray[np.int64]:
    """Rows with the least time; equal times in the order of the parameters' preferred values."""
    # Times are compared to a tenth of a percent of a nanosecond's worth: rounding noise must not decide.
    keys: list[NDArray[Any]] = []
    for param in reversed(params):
        if param.name in columns:
            position = {value: i for i, value in enumerate(param.values)}
            values, inverse = np.unique(columns[param.name], return_inverse=True)
            keys.append(np.array([position[int(v)] for v in values])[inverse])
    keys.append(np.round(seconds, 12))
    return np.lexsort(keys)[:top]


def _expand(
    columns: dict[str, NDArray[Any]], params: list[Param], problem: Problem
) -> dict[str, NDArray[Any]]:
    """Every completion of the rows by values of `params` that violates none of their rules."""
    present = {*columns, *(p.name for p in params)}
    for param in params:
        num_rows = len(next(iter(columns.values())))
        columns = {n: np.repeat(c, len(param.values)) for n, c in columns.items()}
        columns[param.name] = np.tile(np.asarray(param.values, dtype=np.int64), num_rows)
    names = {p.name for p in params}
    keep = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for name in names:
        domain = problem.variables[name]
        keep &= np.isin(columns[name], np.asarray(list(domain), dtype=np.int64))
    for constraint in problem.constraints:
        if constraint.variables & names and constraint.variables <= present:
            keep &= constraint.holds_columns(columns)
    return {n: c[keep] for n, c in columns.items()}


def _complete(problem: Problem, config: Config, free: list[Param]) -> tuple[dict[str, int], int]:
    """The preferred values of the parameters the model cannot tell apart, and how many completions there are."""
    if not free:
        return dict(config), 1
    columns = _expand({n: np.array([v], dtype=np.int64) for n, v in config.items()}, free, problem)
    rank_of = [np.array([p.values.index(int(v)) for v in columns[p.name]]) for p in reversed(free)]
    best = int(np.lexsort(rank_of)[0])
    return as_config(columns, best), len(columns[free[0].name])
