"""Configurations that experts found best: whether the space of `gemm.pointer` has them, and at which predicted time.

Experts chose among fewer configurations than we do: kernels with block scales have slices of 128 along K and cannot
split it. Beside the price over our own first choice stands that over the first choice among what the expert's set has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product as combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.elsewhere.data import Expert, experts, model_of
from benchmarks.elsewhere.judge import groups
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.registry import load_spec
from constrint.model import Problem, Var
from constrint.select import Workload
from constrint.select.limits import BlockColumns
from constrint.select.rank import rank
from constrint.select.spec import Columns

#: Parameters of the order of tiles, which experts' kernels have in other forms: the best of the space is taken.
ORDER = ("group_m", "xcd_chunk")
#: A configuration that is priced above our first choice by more than this counts as dear.
DEAR = 1.3


class Priced(NamedTuple):
    """An expert's configuration with its price.

    Args:
        expert: The configuration.
        gpu: Name of the GPU's model.
        is_in_space: Whether the space has it, with whatever order of tiles.
        is_in_order: Whether the space has it with the expert's `group_m`, too.
        price: Its predicted time over that of our first choice of `gemm.pointer`; None where it does not fit.
        own_price: Its predicted time over the least among all combinations of values that its set has, in one order of
            tiles; None where the space does not have it.
        missing: The parameters whose values the space does not have.
    """

    expert: Expert
    gpu: str
    is_in_space: bool
    is_in_order: bool
    price: float | None
    own_price: float | None
    missing: tuple[str, ...]


def priced() -> Iterator[Priced]:
    """Every expert's configuration of a GPU with a model and a product that `gemm.pointer` computes."""
    spec = load_spec("gemm.pointer")
    assert isinstance(spec, GemmSpec)
    first: dict[tuple[object, ...], float] = {}
    every = list(experts())
    choices = {key: _choices(of_set) for key, of_set in groups(every, lambda expert: (expert.gpu, expert.set)).items()}
    for expert in every:
        gpu = model_of(expert.gpu)
        if gpu is None:
            continue
        sizes = {"m": expert.m, "n": expert.n, "k": expert.k}
        workload = Workload("gemm", sizes, expert.dtype, {"transpose_b": 1})
        try:
            key = expert[:5]
            if key not in first:
                first[key] = rank(spec, gpu, workload, top=1).candidates[0].cost.seconds
            yield _priced(spec, gpu, workload, expert, first[key], choices[expert.gpu, expert.set])
        except ConstrintError as error:
            print(f"{expert.gpu} {workload}: {str(error)[:200]}", file=sys.stderr)


def _choices(of_set: Sequence[Expert]) -> dict[str, list[int]]:
    """The values of each parameter in a set, but those of the order of tiles."""
    names = dict.fromkeys(name for expert in of_set for name in expert.config if name not in ORDER)
    return {name: sorted({e.config[name] for e in of_set if name in e.config}) for name in names}


def _priced(
    spec: GemmSpec,
    gpu: GpuModel,
    workload: Workload,
    expert: Expert,
    first_s: float,
    choices: dict[str, list[int]],
) -> Priced:
    problem = spec.problem(gpu, workload)
    stated = {name: value for name, value in expert.config.items() if name in problem.variables}
    if stated.get("matrix_instr_nonkdim") == 0:
        del stated["matrix_instr_nonkdim"]  # the compiler's own choice
    missing = tuple(name for name, value in stated.items() if value not in problem.variables[name])
    preferred = {param.name: param.values[0] for param in spec.params(gpu, workload)}
    config = preferred | {"persistent": 0, "split_k": 1} | stated
    free = {name: list(problem.variables[name]) for name in ORDER if name in problem.variables}
    orders = [config | dict(zip(free, values, strict=True)) for values in combinations(*free.values())]
    valid = (
        []
        if set(missing) - set(ORDER)
        else [each for each in orders if all(c.holds(each) for c in problem.constraints)]
    )
    is_in_order = any(each["group_m"] == config["group_m"] for each in valid)
    try:
        least_s = _least_s(spec, gpu, workload, problem, orders)
    except ConstrintError:  # a value for which an estimate of the space has none
        least_s = None
    price = None if least_s is None else least_s / first_s
    own_price = _own_price(spec, gpu, workload, problem, config, choices) if valid else None
    return Priced(expert, gpu.name, bool(valid), is_in_order, price, own_price, missing)


def _own_price(
    spec: GemmSpec,
    gpu: GpuModel,
    workload: Workload,
    problem: Problem,
    config: dict[str, int],
    choices: dict[str, list[int]],
) -> float | None:
    """The predicted time of a configuration over the least among combinations of its set's values."""
    # Row by row: the order that no grid rules out.
    usual = config | {name: min(problem.variables[name]) for name in ORDER if name in problem.variables}
    domains = {name: problem.variables[name] for name in choices if name in usual}
    free = {name: [value for value in choices[name] if value in domain] for name, domain in domains.items()}
    rows = np.array(list(combinations(*free.values())), dtype=np.int64)
    columns = {name: np.full(len(rows) + 1, value, dtype=np.int64) for name, value in usual.items()}
    for place, name in enumerate(free):
        columns[name][1:] = rows[:, place]
    valid = np.logical_and.reduce([rule.holds_columns(columns) for rule in problem.constraints])
    try:
        seconds = _seconds(spec, gpu, workload, problem, columns)
    except ConstrintError:
        return None
    seconds = np.where(valid, seconds, np.inf)
    return float(seconds[0] / seconds.min()) if np.isfinite(seconds[0]) else None


def _least_s(
    spec: GemmSpec, gpu: GpuModel, workload: Workload, problem: Problem, orders: Sequence[dict[str, int]]
) -> float | None:
    """The least predicted time of a configuration over orders of tiles; None where it does not fit."""
    columns = {name: np.array([each[name] for each in orders], dtype=np.int64) for name in orders[0]}
    least = float(_seconds(spec, gpu, workload, problem, columns).min())
    return least if np.isfinite(least) else None


def _seconds(
    spec: GemmSpec, gpu: GpuModel, workload: Workload, problem: Problem, columns: Columns
) -> NDArray[np.float64]:
    """The predicted time of every row; infinite where it does not fit."""
    product = Product.of(workload)
    use = spec.block_use(gpu, product, {n: Var(n) for n in problem.variables if n not in spec.free_params})
    blocks = BlockColumns.of(gpu, use, columns, problem.estimates)
    seconds = spec.price(gpu, product, columns, blocks.blocks_per_sm).seconds * blocks.slowdown(gpu)
    return np.where(blocks.blocks_per_sm > 0, seconds, np.inf)


def table_lines(rows: Sequence[Priced]) -> Iterator[str]:
    """The table in Markdown: a row per GPU and set of configurations."""
    columns = ("in the space", "with its `group_m`", "fits", "price, median", f"> {DEAR}", "in its set", f"> {DEAR}")
    yield f"| GPU, set (n) | {' | '.join(columns)} | lacks |"
    yield "|---" * (len(columns) + 2) + "|"
    for (gpu, name), of_set in sorted(groups(rows, lambda row: (row.gpu, row.expert.set)).items()):
        prices = [row.price for row in of_set if row.price is not None]
        own = [row.own_price for row in of_set if row.own_price is not None]
        shares = [np.mean([getattr(row, what) for row in of_set]) for what in ("is_in_space", "is_in_order")]
        fits = len(prices) / len(of_set)
        lacks = {f"{n} {row.expert.config[n]}": 0 for row in of_set for n in row.missing if n not in ORDER}
        for row in of_set:
            for n in row.missing:
                if n not in ORDER:
                    lacks[f"{n} {row.expert.config[n]}"] += 1
        most = sorted(lacks, key=lambda text: -lacks[text])[:4]
        shown = " | ".join((*(f"{share:.0%}" for share in (*shares, fits)), *_median_and_dear(prices)))
        yield f"| {gpu} {name} ({len(of_set)}) | {shown} | {' | '.join(_median_and_dear(own))} | {', '.join(most)} |"


def _median_and_dear(prices: Sequence[float]) -> tuple[str, str]:
    if not prices:
        return "-", "-"
    return f"{np.median(prices):.2f}", f"{np.mean([price > DEAR for price in prices]):.0%}"
