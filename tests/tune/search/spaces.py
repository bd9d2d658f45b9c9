"""Small kernels whose times are known, for the tests of searches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.hwmodels.load import load_gpu
from constrint.select import CostColumns, KernelSpec, Operation, Param, Workload
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Rule, Vars
from constrint.select.workload import Size
from constrint.tune.search.interface import Proposal, Search, SearchTask
from constrint.tune.store.record import Figures, TuningRecord

GPU = load_gpu("h200")
#: What the model leaves out: how much longer a tile of 32 takes than predicted.
SURPRISE = 1.5


def predicted_s(columns: Mapping[str, Any], m: int = 1024) -> Any:
    """What the toy's model says of configurations, or of one."""
    tile, warps = (np.asarray(columns[name], dtype=np.float64) for name in ("tile", "warps"))
    return 1e-6 * m * (1.0 + 4.0 / tile) * (1.0 + 0.1 / warps)


class ToySpec(KernelSpec):
    """Its predicted time falls with `tile`; the true one as well, but for the largest tiles."""

    operation = "toy"
    name = "tiled"
    summary = "nothing"
    sizes = (Size("m", 1024, "rows"),)
    dtypes = ("fp32",)
    order_params: tuple[str, ...] = ("order",)
    free_params: tuple[str, ...] = ("knob",)
    tiles: tuple[int, ...] = (1, 2, 4, 8, 16, 32)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (
            Param("tile", self.tiles, "rows of a block", "powers of two"),
            Param("warps", (1, 2, 4, 8), "warps", "powers of two"),
            Param("order", (1, 2), "order of blocks", "two"),
            Param("knob", (0, 1), "a knob of the compiler", "on or off"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        yield Rule(v["warps"] <= v["tile"], "busy", "no warp is without work")

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        return None

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        seconds = predicted_s(columns, workload.sizes["m"])
        return CostColumns(seconds, {"DRAM": 0.5 * seconds, "latency": 0.5 * seconds})


class WideSpec(ToySpec):
    """Twenty million configurations."""

    name = "wide"

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (
            Param("tile", tuple(range(1, 2001)), "rows of a block", "any"),
            Param("warps", tuple(range(1, 101)), "warps", "any"),
            Param("order", tuple(range(10)), "order of blocks", "ten"),
            Param("knob", tuple(range(10)), "a knob of the compiler", "ten"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        yield Rule(v["tile"] % 2 == v["warps"] % 2, "even", "both are even or odd")


class PlainSpec(ToySpec):
    """An implementation without parameters."""

    name = "plain"
    order_params = ()
    free_params = ()

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return ()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        yield from ()

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        return CostColumns(np.full(1, 1e-2), {"DRAM": np.full(1, 1e-2)})


class NoModelSpec(ToySpec):
    """One whose cost model says nothing: not a number everywhere."""

    name = "unknown"

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        nothing = np.full(len(columns["tile"]), np.nan)
        return CostColumns(nothing, {"DRAM": nothing})


TOY = Operation("toy", (ToySpec(), PlainSpec()))


def task_of(operation: Operation = TOY, *, m: int = 1024, **facts: Any) -> SearchTask:
    """A task of a toy."""
    return SearchTask(operation, GPU, Workload("toy", {"m": m}, "fp32"), **facts)


def true_s(config: Mapping[str, int], m: int = 1024) -> float:
    """How long a configuration of the tiled toy takes: the largest tile is a bad surprise, a knob gives 1 %."""
    if not config:
        return 1e-2
    return float(predicted_s(config, m)) * (SURPRISE if config["tile"] >= 32 else 1.0) * (1.0 - 0.01 * config["knob"])


def record_of(config: Mapping[str, Any], seconds: float, *, m: int = 2048, **facts: Any) -> TuningRecord:
    """A record of the tiled toy."""
    told: dict[str, Any] = {"kernel": "toy.tiled", "operation": "toy", "gpu": GPU.name, "dtype": "fp32"}
    told |= {"sizes": {"m": m}, "outcome": "ok", "run": "earlier", "created": 1.0, "config": dict(config)}
    figures = Figures(median_s=seconds, spread_s=0.0, num_rounds=5)
    return TuningRecord(**{**told, "figures": figures, **facts})


def run(search: Search, number: int, *, batch: int = 1, m: int = 1024) -> list[Proposal]:
    """Ask for so many proposals and answer each with its true time."""
    proposals: list[Proposal] = []
    while len(proposals) < number:
        asked = search.ask(min(batch, number - len(proposals)))
        if not asked:
            break
        for proposal in asked:
            search.tell(proposal, true_s(proposal.config, m))
        proposals += asked
    return proposals


def key_of(proposal: Proposal) -> tuple[Any, ...]:
    """What tells a proposal from others."""
    return (proposal.kernel, *sorted(proposal.config.items()))


def best_s(proposals: list[Proposal], m: int = 1024) -> float:
    """The least true time."""
    return min((true_s(proposal.config, m) for proposal in proposals), default=math.inf)
