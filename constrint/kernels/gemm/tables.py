"""Tables of configurations: the rows of a kernel's whole space that may win, each priced within microseconds.

A table is made once for each GPU, kernel, dtype and width of loads, and stored on disk: every valid configuration is
priced for a grid of shapes, and those among the best for some shape stay. For a product only the table's few hundred
rows are priced. No torch, no triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import product as combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint import cache
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.rules import COLUMNS, end_rules
from constrint.kernels.gemm.spec import GemmSpec, kind_of
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES
from constrint.model import Var
from constrint.select.candidate import Config
from constrint.select.limits import BROKEN_SHARE, BlockColumns, chance_of_broken, slowdown
from constrint.select.spec import Param, Rule
from constrint.select.tile_work import PreparedColumns, PreparedRow
from constrint.select.toolchain import key_of
from constrint.select.workload import Workload

#: Relative difference of predicted times below which the preferred configuration wins.
TIE = 2e-3
#: Rows left out from which on pricing the valid rows alone is faster than pricing the whole table.
MANY_ROWS = 6000
#: Chances are stored as integers, in millionths.
MILLION = 1_000_000
_KIND = "gemm-tables"


class ConfigTable:
    """Configurations of one kernel on one GPU in order of preference, as columns, with the resources of their blocks.

    Args:
        gpu: The hardware model.
        spec: The kernel.
        params: All its parameters.
        columns: Values of the closed parameters; the order of tiles and the compiler's knobs stay open.
        blocks_per_sm: Blocks that reside on one SM.
        smem_bytes: Shared memory of a block.
        spill_ppm: The chance that a plain product spills, in millionths.
        share_ppm: Estimated registers over those that a thread may have, in millionths.
    """

    def __init__(
        self, gpu: GpuModel, spec: GemmSpec, params: tuple[Param, ...], columns: Mapping[str, NDArray[np.int64]],
        blocks_per_sm: NDArray[np.int64], smem_bytes: NDArray[np.int64], spill_ppm: NDArray[np.int64],
        share_ppm: NDArray[np.int64],
    ) -> None:  # fmt: skip
        self.gpu, self.spec, self.params = gpu, spec, params
        self.columns = PreparedColumns(columns, blocks_per_sm)
        self.blocks_per_sm, self.smem_bytes = blocks_per_sm, smem_bytes
        self.spill_ppm, self.share_ppm = spill_ppm, share_ppm
        self._slowdown: NDArray[np.float64] = np.asarray(slowdown(gpu, spill_ppm / MILLION, share_ppm / MILLION))
        opened = {p.name: p.values for p in params if p.name not in columns}
        order = [name for name in spec.order_params if name in opened]
        values = np.array(list(combinations(*(opened[name] for name in order))), dtype=np.int64).T
        self._orders = dict(zip(order, values, strict=True))
        self._free = {name: choices[0] for name, choices in opened.items() if name not in order}
        self._taken: dict[tuple[Any, ...], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        """The number of configurations."""
        return len(self.smem_bytes)

    def take(self, rows: NDArray[Any]) -> ConfigTable:
        """The table of these rows alone."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        figures = (column[rows] for column in (self.blocks_per_sm, self.smem_bytes, self.spill_ppm, self.share_ppm))
        return ConfigTable(self.gpu, self.spec, self.params, columns, *figures)

    @staticmethod
    def joined(tables: Sequence[ConfigTable]) -> ConfigTable:
        """The rows of tables of one kernel on one GPU, each once."""
        first = tables[0]
        if len(tables) == 1:
            return first
        columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in first.columns}
        figures = ("blocks_per_sm", "smem_bytes", "spill_ppm", "share_ppm")
        rest = (np.concatenate([getattr(table, name) for table in tables]) for name in figures)
        _, once = np.unique(np.stack(list(columns.values())), axis=1, return_index=True)
        return ConfigTable(first.gpu, first.spec, first.params, columns, *rest).take(np.sort(once))

    def config(self, row: int) -> dict[str, int]:
        """One row as a configuration, without the order of tiles and the compiler's knobs."""
        return {name: int(column[row]) for name, column in self.columns.items()}

    def price(self, product: Product) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows that are valid for a product and fit, and their predicted seconds, a chance to spill included."""
        valid, over = self._valid(product), self._over(product)
        # Rows that are stated to exceed a block's shared memory are left for products that nothing else computes.
        rows = np.flatnonzero(valid if (valid <= over).all() else valid & ~over)
        if not len(rows):
            return rows, np.empty(0)
        slower = self._slower(product)
        # Pricing all rows reuses what was computed for earlier products, which saves more unless many rows are invalid.
        if len(self) - len(rows) < MANY_ROWS:
            return rows, (self.spec.price(self.gpu, product, self.columns, self.blocks_per_sm).seconds * slower)[rows]
        valid_columns = {name: column[rows] for name, column in self.columns.items()}
        return rows, self.spec.price(self.gpu, product, valid_columns, self.blocks_per_sm[rows]).seconds * slower[rows]

    def _valid(self, product: Product) -> NDArray[np.bool_]:
        """Mask of the rows that satisfy the rules on sizes, and need no more shared memory than a block may have."""
        valid = self._takes(product)[0] <= self.gpu.sm.max_smem_bytes_per_block
        for rule in self._rules(product, self.columns):
            valid &= rule.condition
        return valid

    def _over(self, product: Product) -> NDArray[np.bool_]:
        """Mask of the rows that may take more shared memory than a block may have."""
        return self._takes(product)[1] > self.gpu.sm.max_smem_bytes_per_block

    def _takes(self, product: Product) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shared memory that a block needs for certain, and that it may take, per row."""
        key = kind_of(product)
        if key not in self._taken:
            use = self.spec.product_use(self.gpu, product)
            knobs = {name: np.full(len(self), value, dtype=np.int64) for name, value in self._free.items()}
            named = {**self.columns, **knobs}
            needed, stated = (each.columns(named) for each in (use.smem_needed, use.smem_stated))
            self._taken[key] = needed, stated
        return self._taken[key]

    def _slower(self, product: Product) -> NDArray[np.float64]:
        """Factor of each row's expected time for its chance to spill or not to fit."""
        broken = self._broken(product)
        if broken is None:
            return self._slowdown
        return np.asarray(np.maximum(self._slowdown, slowdown(self.gpu, chance_of_broken(broken), BROKEN_SHARE)))

    def _broken(self, product: Product) -> NDArray[np.int64] | None:
        """Number of estimated rules on the end of the product that each row breaks; None where none is broken."""
        broken = self._over(product).astype(np.int64)
        for rule in () if self.spec.counts_ends else end_rules(self.gpu, product, self.columns):
            broken = broken + ~np.asarray(rule.condition, dtype=bool)
        return broken if broken.any() else None

    def chance(self, product: Product, row: int) -> float:
        """The chance that a row spills, or does not fit, for a product."""
        broken = self._broken(product)
        plain = float(self.spill_ppm[row]) / MILLION
        return plain if broken is None else max(plain, float(chance_of_broken(broken[row])))

    def _rules(self, product: Product, v: Mapping[str, Any]) -> Iterator[Rule]:
        return self.spec.size_rules(self.gpu, product, v, COLUMNS)

    def whole_config(self, product: Product, row: int) -> Config:
        """A row with the order of tiles of the least predicted time, and the preferred values of compiler's knobs."""
        config = self.config(row)
        if not self._orders:
            return config | self._free
        valid = np.ones(len(next(iter(self._orders.values()))), dtype=bool)
        for rule in self._rules(product, config | self._orders):
            valid &= rule.condition
        orders = {name: column[valid] for name, column in self._orders.items()}
        at = self._best_order(product, row, orders)
        return config | {name: int(column[at]) for name, column in orders.items()} | self._free

    def _best_order(self, product: Product, row: int, orders: Mapping[str, NDArray[Any]]) -> int:
        """The order with the least predicted time; where no time depends on it, the largest group of at most eight."""
        group = orders["group_m"]
        if not self.spec.prices_order:
            return int(np.argmax(np.where(group <= 8, group, 0)))
        if len(group) == 1:
            return 0
        alone = product if product.batch == 1 else product.alone
        columns = PreparedRow(self.columns, row, orders)
        seconds = self.spec.price(self.gpu, alone, columns, self.blocks_per_sm[row : row + 1]).seconds
        return int(np.flatnonzero(seconds <= (1 + TIE) * seconds.min())[0])

    # On disk.

    def to_bytes(self) -> bytes:
        """All columns, one below the other."""
        file = BytesIO()
        columns = (*self.columns.values(), self.blocks_per_sm, self.smem_bytes, self.spill_ppm, self.share_ppm)
        np.save(file, np.stack(columns), allow_pickle=False)
        return file.getvalue()

    @staticmethod
    def from_bytes(data: bytes, gpu: GpuModel, spec: GemmSpec, params: tuple[Param, ...]) -> ConfigTable | None:
        """The table that `to_bytes` wrote; None for other bytes."""
        names = [p.name for p in closed_params(spec, params)]
        try:
            rows = np.load(BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, OSError):
            return None
        if not isinstance(rows, np.ndarray) or rows.dtype != np.int64 or rows.ndim != 2 or not rows.size:
            return None
        if len(rows) != len(names) + 4 or rows.min() < 0:
            return None
        *columns, blocks_per_sm, smem_bytes, spill_ppm, share_ppm = rows
        named = dict(zip(names, columns, strict=True))
        return ConfigTable(gpu, spec, params, named, blocks_per_sm, smem_bytes, spill_ppm, share_ppm)


class TableKey(NamedTuple):
    """The products that a table serves.

    Args:
        spec: The kernel.
        dtype: Type of A and B.
        width_a, width_b: Bytes of the widest access that rows of A and B allow.
        options: Options of products that the kernel names, and properties of their operands (`a.is_copied`).
    """

    spec: GemmSpec
    dtype: str
    width_a: int
    width_b: int
    options: tuple[tuple[str, int], ...]

    @staticmethod
    def of(spec: GemmSpec, product: Product) -> TableKey:
        """The key of one kernel's table for products like one."""
        options = tuple(spec.table_options(product).items())
        # A property of an operand implies the width of accesses to it.
        is_implied = any("." in name for name, _ in options)
        width_a, width_b = (WIDEST_BYTES if is_implied else each.width_bytes for each in (product.a, product.b))
        return TableKey(spec, product.dtype, width_a, width_b, options)


class Tables:
    """The tables of one GPU model in this process.

    Args:
        gpu: The hardware model; another object is another model.
    """

    def __init__(self, gpu: GpuModel) -> None:
        self.gpu = gpu
        #: Types that the GPU has a unit for.
        self.dtypes: set[str] = set()
        self._tables: dict[TableKey, ConfigTable] = {}

    def table(self, spec: GemmSpec, product: Product) -> ConfigTable:
        """One kernel's table for a product: from memory, from disk, or computed."""
        key = TableKey.of(spec, product)
        if key not in self._tables:
            self._tables[key] = load_or_make(self.gpu, key)
        return self._tables[key]


def load_or_make(gpu: GpuModel, key: TableKey) -> ConfigTable:
    """The table that some process stored, or a new one, which is then stored."""
    spec = key.spec
    params, place = spec.tile_params(gpu, key.dtype), key_of(gpu, (spec,), *key[1:])
    data = None if place is None else cache.load(_KIND, place)
    table = None if data is None else ConfigTable.from_bytes(data, gpu, spec, params)
    if table is None:
        table = _make(gpu, key)
        if place is not None:
            cache.store(_KIND, place, table.to_bytes())
    return table


def _make(gpu: GpuModel, key: TableKey) -> ConfigTable:
    spec = key.spec
    samples = [_sample(key, shape) for shape in spec.table_samples]
    table = ConfigTable.joined([whole_space(gpu, spec, sample) for sample in samples])
    leading = spec.leading_rows(gpu, samples[0], table.columns)
    table = table if leading is None else table.take(leading)
    for shapes, best_of in spec.stages(gpu):
        table = _among_best(table, [_sample(key, shape) for shape in shapes], best_of)
    return table


def _among_best(table: ConfigTable, products: Sequence[Product], number: int) -> ConfigTable:
    """The rows that are among the `number` best for any of the products."""
    survivors: set[int] = set()
    for product in products:
        rows, seconds = table.price(product)
        survivors.update(rows[_least(seconds, number)].tolist())
    return table.take(np.array(sorted(survivors), dtype=np.int64))


def _least(seconds: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Places of the `number` least times in order, the first ones of equal times."""
    if len(seconds) <= number:
        return np.arange(len(seconds))
    # Only times up to the last of them have to be sorted.
    near = np.flatnonzero(seconds <= np.partition(seconds, number - 1)[number - 1])
    return near[np.argsort(seconds[near], kind="stable")[:number]]


def _sample(key: TableKey, shape: tuple[int, int, int]) -> Product:
    """A product of nearly these sizes, whose row-major operands have rows of the key's widths."""
    m, n, k = shape
    element = ELEMENT_BYTES[key.dtype]
    # A little less, not more: a shape stands for everything that is valid up to it.
    less = {width: width // element if width < WIDEST_BYTES else 0 for width in (key.width_a, key.width_b)}
    sizes = {"m": m, "n": max(1, n - less[key.width_b]), "k": max(1, k - less[key.width_a])}
    options = {name: value for name, value in key.options if "." not in name}
    product = Product.of(Workload("gemm", sizes, key.dtype, options))
    if not key.options:
        return product
    # A table for one order of axes has rows along that axis, of the key's width.
    product = replace(product, a=_of_width(product.a, key.width_a), b=_of_width(product.b, key.width_b))
    for name, value in key.options:
        operand, _, fact = name.partition(".")
        if fact:
            stated: dict[str, Any] = {fact: bool(value)}
            product = replace(product, **{operand: replace(getattr(product, operand), **stated)})
    return product


def _of_width(operand: MatrixLayout, width: int) -> MatrixLayout:
    """The same operand with rows of a width."""
    step = operand.step_bytes if width == WIDEST_BYTES else width
    return replace(operand, width_bytes=width, step_bytes=max(step, width))


def whole_space(gpu: GpuModel, spec: GemmSpec, product: Product) -> ConfigTable:
    """Every configuration that is valid for large sizes; the order of tiles and the compiler's knobs stay open."""
    from constrint.solve.enumeration import enumerate_space  # loaded where no table is on disk

    workload = product.workload
    problem = spec.product_problem(gpu, product)
    params = spec.params(gpu, workload)
    closed = closed_params(spec, params)
    for param in params:
        if param.name in spec.free_params:
            # The compiler's knobs have their preferred values, with which a row has to be valid.
            problem.add(Var(param.name) == param.values[0], because="a table has one value of it")
    columns, _ = enumerate_space(problem).project([p.name for p in closed])
    order = np.lexsort([_places(p.values, columns[p.name]) for p in reversed(closed)])
    columns = {name: column[order] for name, column in columns.items()}
    stated = {name: Var(name) for name in problem.variables if name not in spec.free_params}
    use = spec.block_use(gpu, product, stated)
    blocks = BlockColumns.of(gpu, use, columns, problem.estimates)
    spill_ppm, share_ppm = (np.round(MILLION * column).astype(np.int64) for column in (blocks.chances, blocks.shares))
    return ConfigTable(gpu, spec, params, columns, blocks.blocks_per_sm, blocks.smem_bytes, spill_ppm, share_ppm)


def _places(values: tuple[int, ...], column: NDArray[Any]) -> NDArray[Any]:
    """Place of every entry in the order of preference."""
    by_value = np.argsort(values)
    return by_value[np.searchsorted(np.asarray(values)[by_value], column)]


def closed_params(spec: GemmSpec, params: tuple[Param, ...]) -> list[Param]:
    """The parameters that a table's rows have, first those whose preferred values win ties."""
    closed = [p for p in params if p.name not in {*spec.order_params, *spec.free_params}]
    # At equal times K in one piece first: it needs no memory for partial sums.
    return sorted(closed, key=lambda p: p.name != "split_k")
