"""What the tests propose for: a kernel as facts alone, and products on an H200."""

from __future__ import annotations

from copy import copy
from functools import cache

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.select.candidates import Candidates
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.records import PredictedConfig, TaskKernel, TaskParam
from constrint.tune.search.llm.resolve import Resolver
from tests.tune.search.llm.in_order import InOrder

TOY = TaskKernel(
    name="toy.fast",
    summary="adds",
    params=(
        TaskParam(name="tile_m", values=(64, 32, 128), meaning="rows"),
        TaskParam(name="tile_n", values=(64, 32, 128), meaning="columns"),
        TaskParam(name="num_stages", values=(3, 2, 4), meaning="depth"),
    ),
    actions={"tile": ("tile_m", "tile_n"), "pipeline": ("num_stages",)},
)
GPU = load_gpu("h200")


@cache
def product_task(m: int = 4096, n: int = 4096, k: int = 4096) -> SearchTask:
    """A product, by all of its kernels."""
    return SearchTask(load_kernel("gemm"), GPU, Workload("gemm", {"m": m, "n": n, "k": k}, "bf16"))


@cache
def product_candidates() -> Candidates:
    """Its configurations."""
    task = product_task()
    return Candidates.of(task.operation, task.gpu, task.workload)


def pointer_choice() -> PredictedConfig:
    """The model's first choice of the kernel that has the most parameters."""
    return next(choice for choice in product_resolver().facts.ranking if choice.kernel == "gemm.pointer")


@cache
def _used_once() -> Resolver:
    return Resolver(product_task(), product_candidates(), InOrder(product_candidates()))


def product_resolver() -> Resolver:
    """A new resolver that proposes in the model's order; its facts are made once."""
    resolver = copy(_used_once())
    order = resolver._order
    assert isinstance(order, InOrder)
    resolver.strategies, resolver._order = {}, order.fresh()
    return resolver
