"""The model's first choice for one product, in about a millisecond: every kernel's space boiled down to a table.

A table is made once for each GPU, kernel, dtype and width of loads: every valid configuration is priced for a grid of
shapes, and those that are among the best for some shape are kept. For a new shape only the table's few hundred rows are
priced; a repeated shape is looked up. No torch, no triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu, occupancy
from constrint.kernels.gemm.grid_rules import COLUMNS, end_rules, grid_rules
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES, unit
from constrint.kernels.registry import load_kernel
from constrint.model import Comparison, Var
from constrint.select.first_choice import Choice, Refusal
from constrint.select.spec import Config, Param, Workload
from constrint.solve import enumerate_space

#: Shapes for which the best configurations are kept, first the better part of the space for a few, then the best of
#: those for many. Between them the best one changes little by little. The three lists after the grid hold shapes with a
#: side of one tile, where it changes most. Of 80 shapes drawn log-uniformly, 1372x17x16434 reaches 0.90 (A100), 0.91
#: (B200) and 0.96 (MI300X) of the whole space's best without the last list, and at least 0.96 with it; without all
#: three some shapes, 1x152x1 on an H200 say, have no valid row at all. `test_first_choice.py` draws others.
COARSE_SHAPES = (
    *combinations((16, 144, 1024, 8192), (16, 256, 2048, 16384), (512, 4096)),
    *((16, 16, 32), (256, 256, 64), (16, 4096, 64), (2048, 16, 64), (4096, 4096, 64), (16, 16, 8192)),
    *((2048, 48, 16384), (2048, 16, 16384), (64, 4096, 16), (2048, 1024, 16)),
    *((1408, 32, 16384), (800, 16, 8192), (5600, 16, 96), (5600, 32, 1024), (16, 16, 640), (16, 16, 16)),
)
FINE_SHAPES = (
    *combinations(
        (16, 48, 64, 128, 144, 272, 512, 1024, 2048, 4096, 16384),
        (16, 256, 1024, 3072, 4096, 12288),
        (256, 768, 2048, 8192),
    ),
    *COARSE_SHAPES,
)
COARSE_KEPT = 150
FINE_KEPT = 5
#: Relative difference of predicted times below which the preferred configuration wins.
TIE = 2e-3
#: What devices refused, by GPU and product.
_REFUSED: dict[tuple[str, Product], tuple[tuple[str, Refusal], ...]] = {}


@dataclass(frozen=True)
class Table:
    """Configurations of one kernel in order of preference, as columns, with what their blocks take."""

    spec: GemmSpec
    params: tuple[Param, ...]
    columns: Mapping[str, NDArray[np.int64]]
    blocks_per_sm: NDArray[np.int64]
    smem_bytes: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> Table:
        """These rows alone."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Table(self.spec, self.params, columns, self.blocks_per_sm[rows], self.smem_bytes[rows])

    def config(self, row: int) -> dict[str, int]:
        """One row as a configuration, without the order of tiles and the compiler's knobs."""
        return {name: int(column[row]) for name, column in self.columns.items()}


def choose(gpu: GpuModel, product: Product) -> Choice:
    """The configuration with the least predicted time.

    Raises:
        UnsupportedError: When the GPU has no unit for the dtype.
        InfeasibleError: When no configuration of the tables is valid.
    """
    return _choose(gpu.name, product)


@lru_cache(maxsize=65536)
def _choose(gpu_name: str, product: Product) -> Choice:
    gpu = load_gpu(gpu_name)
    leaders = []
    for place, table in enumerate(_tables(gpu, product)):
        rows, seconds = _price(gpu, table, product)
        if len(rows):
            leaders.append((float(seconds.min()), place, table, rows, seconds))
    if not leaders:
        raise InfeasibleError(f"no config of 'gemm' on {gpu.name} is valid for {product}.")
    least = min(leader[0] for leader in leaders)
    near = []
    for _, place, table, rows, seconds in leaders:
        tied = rows[seconds <= (1 + TIE) * least]
        if len(tied):
            row = int(tied.min())
            near.append((_preference(table, row), place, table, row))
    _, _, table, row = min(near, key=lambda item: item[:2])
    config = _ordered(gpu, product, table, row)
    return Choice(gpu, table.spec.full_name, config, least, product.workload)


def best(gpu: GpuModel, product: Product, top: int) -> list[Choice]:
    """The `top` configurations of all tables by predicted time, first choice first."""
    priced = []
    for table in _tables(gpu, product):
        rows, seconds = _price(gpu, table, product)
        for at in np.argsort(seconds, kind="stable")[: top + 1]:
            priced.append((float(seconds[at]), table, int(rows[at])))
    chosen = [choose(gpu, product)]
    for seconds_of_row, table, row in sorted(priced, key=lambda item: item[0]):
        config = _ordered(gpu, product, table, row)
        if all((c.kernel, c.config) != (table.spec.full_name, config) for c in chosen):
            chosen.append(Choice(gpu, table.spec.full_name, config, seconds_of_row, product.workload))
        if len(chosen) == top:
            break
    return chosen[:top]


def refuse(product: Product, choice: Choice, refusal: Refusal) -> Choice:
    """Remember that a device refused a choice, and choose again; later calls of `choose` follow.

    Raises:
        InfeasibleError: When nothing else fits.
    """
    if choice.gpu is None:
        raise InfeasibleError(f"{refusal}; without a hardware model there is no other choice.")
    key = choice.gpu.name, product
    _REFUSED[key] = (*_REFUSED.get(key, ()), (choice.kernel, refusal))
    _choose.cache_clear()
    try:
        return choose(choice.gpu, product)
    except InfeasibleError as error:
        raise InfeasibleError(f"{refusal}, and nothing else is left. {error}") from error


def _tables(gpu: GpuModel, product: Product) -> Iterator[Table]:
    """The tables of the kernels that compute a product, in the operation's order."""
    unit(gpu, product.dtype)
    for spec in gemm_specs():
        if not spec.refusal(gpu, product):
            yield _table(gpu.name, spec.full_name, product.dtype, product.a.width_bytes, product.b.width_bytes)


@lru_cache(maxsize=1)
def gemm_specs() -> tuple[GemmSpec, ...]:
    """The operation's kernels, preferred ones first."""
    return tuple(spec for spec in load_kernel("gemm").implementations if isinstance(spec, GemmSpec))


def gemm_spec(full_name: str) -> GemmSpec:
    """One of the operation's kernels by its full name."""
    return next(spec for spec in gemm_specs() if spec.full_name == full_name)


@lru_cache(maxsize=512)
def _table(gpu_name: str, kernel: str, dtype: str, width_a: int, width_b: int) -> Table:
    gpu = load_gpu(gpu_name)
    spec = gemm_spec(kernel)
    table = _whole_space(gpu, spec, _sample(dtype, (1 << 16, 1 << 16, 1 << 16), width_a, width_b))
    for shapes, kept in ((COARSE_SHAPES, COARSE_KEPT), (FINE_SHAPES, FINE_KEPT)):
        table = _among_best(gpu, table, [_sample(dtype, shape, width_a, width_b) for shape in shapes], kept)
    return table


def _among_best(gpu: GpuModel, table: Table, products: list[Product], kept: int) -> Table:
    """The rows that are among the `kept` best for any of the products."""
    survivors: set[int] = set()
    for product in products:
        rows, seconds = _price(gpu, table, product)
        survivors.update(rows[np.argsort(seconds, kind="stable")[:kept]].tolist())
    return table.take(np.array(sorted(survivors), dtype=np.int64))


def _sample(dtype: str, shape: tuple[int, int, int], width_a: int, width_b: int) -> Product:
    """A product of nearly these sizes, whose row-major operands have rows of these widths."""
    m, n, k = shape
    element = ELEMENT_BYTES[dtype]
    # A little less, not more: the shapes stand for what is valid up to them.
    less = {width: width // element if width < WIDEST_BYTES else 0 for width in (width_a, width_b)}
    return Product.of(Workload("gemm", {"m": m, "n": n - less[width_b], "k": k - less[width_a]}, dtype))


def _whole_space(gpu: GpuModel, spec: GemmSpec, product: Product) -> Table:
    """Every configuration that is valid for large sizes; the order of tiles and the compiler's knobs stay open."""
    workload = product.workload
    problem = spec.problem(gpu, workload)
    params = spec.params(gpu, workload)
    closed = [p for p in params if p.name not in {*spec.order_params, *spec.free_params}]
    # Of what takes as long, K in one piece first: it needs no memory for partial sums.
    closed.sort(key=lambda p: p.name != "split_k")
    columns, _ = enumerate_space(problem).project([p.name for p in closed])
    order = np.lexsort([_places(p.values, columns[p.name]) for p in reversed(closed)])
    columns = {name: column[order] for name, column in columns.items()}
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    smem = use.smem_bytes.columns(columns)
    fits = occupancy(
        gpu,
        threads_per_block=use.warps.columns(columns) * gpu.sm.warp_size,
        registers_per_thread=use.registers_per_thread.columns(columns),
        smem_bytes_per_block=smem,
    )
    return Table(spec, params, columns, np.asarray(fits.blocks_per_sm), smem)


def _places(values: tuple[int, ...], column: NDArray[Any]) -> NDArray[Any]:
    """Place of every entry in the order of preference."""
    by_value = np.argsort(values)
    return by_value[np.searchsorted(np.asarray(values)[by_value], column)]


def _preference(table: Table, row: int) -> tuple[int, ...]:
    """How far down the order of preference a row is, in what all kernels have, so that kernels compare."""
    config = {**table.spec.fixed, **table.config(row)}
    shared = ("split_k", "tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "persistent")
    return tuple(_shared_places()[name].index(config[name]) for name in shared)


@lru_cache(maxsize=1)
def _shared_places() -> dict[str, tuple[int, ...]]:
    """Values of the parameters that all kernels have, in the order of preference of NVIDIA's kernels."""
    descriptor = gemm_specs()[0]
    gpu = load_gpu("h200")
    params = {p.name: p.values for p in descriptor.tile_params(gpu, "bf16")}
    return params | {"num_stages": (*params["num_stages"], 1)}


def _price(gpu: GpuModel, table: Table, product: Product) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Valid rows of a table and their predicted seconds."""
    spec, columns = table.spec, table.columns
    valid = np.ones(len(table.smem_bytes), dtype=bool)
    added = spec.added_smem_bytes(gpu, product, columns, table.smem_bytes)
    for rule in (
        *grid_rules(gpu, product.sizes, columns, COLUMNS, spec.fixed),
        *end_rules(gpu, product, columns, added, spec.fixed, COLUMNS),
    ):
        valid &= rule.condition
    if not isinstance(added, int):
        valid &= table.smem_bytes + added <= gpu.sm.max_smem_bytes_per_block
    for constraint in _refusal_rules(gpu, spec, product):
        valid &= constraint.holds_columns(columns)
    rows = np.flatnonzero(valid)
    if not len(rows):
        return rows, np.empty(0)
    part = {name: column[rows] for name, column in columns.items()}
    return rows, spec.price(gpu, product, part, table.blocks_per_sm[rows]).seconds


def _refusal_rules(gpu: GpuModel, spec: GemmSpec, product: Product) -> Iterator[Comparison]:
    for kernel, refusal in _REFUSED.get((gpu.name, product), ()):
        if kernel == spec.full_name:
            yield refusal.rule(spec.use(gpu, product.workload, {name: Var(name) for name in refusal.config}))


def _ordered(gpu: GpuModel, product: Product, table: Table, row: int) -> Config:
    """Add the order of tiles with the least predicted time, and the preferred values of the compiler's knobs."""
    spec, config = table.spec, table.config(row)
    open_params = {p.name: p.values for p in spec.tile_params(gpu, product.dtype) if p.name not in config}
    names = [name for name in spec.order_params if name in open_params]
    values = np.array(list(combinations(*(open_params[name] for name in names))), dtype=np.int64).T
    columns = {name: np.full(values.shape[1], value) for name, value in config.items()}
    columns |= dict(zip(names, values, strict=True))
    valid = np.ones(values.shape[1], dtype=bool)
    for rule in grid_rules(gpu, product.sizes, columns, COLUMNS, spec.fixed):
        valid &= rule.condition
    columns = {name: column[valid] for name, column in columns.items()}
    at = _best_order(gpu, product, table, row, columns)
    free = {name: choices[0] for name, choices in open_params.items() if name not in names}
    return {name: int(column[at]) for name, column in columns.items()} | free


def _best_order(gpu: GpuModel, product: Product, table: Table, row: int, columns: Mapping[str, NDArray[Any]]) -> int:
    """The order with the least predicted time; where nothing tells, the largest group of up to eight rows."""
    if not table.spec.prices_order:
        return int(np.argmax(np.where(columns["group_m"] <= 8, columns["group_m"], 0)))
    blocks = np.full(len(columns["group_m"]), int(table.blocks_per_sm[row]))
    seconds = table.spec.price(gpu, product.alone, columns, blocks).seconds
    return int(np.flatnonzero(seconds <= (1 + TIE) * seconds.min())[0])
