"""Tables of configurations: priced for a product in a fraction of a millisecond, and kept on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint import cache
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.grid_rules import COLUMNS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.select.disk_key import key_of
from constrint.select.limits import BROKEN_SHARE, chance_of_broken, slowdown
from constrint.select.prepared import PreparedColumns, PreparedRow
from constrint.select.spec import Config, Param, Rule

#: Relative difference of predicted times below which the preferred configuration wins.
TIE = 2e-3
#: Rows whose pricing takes longer than everything that is done once for all rows.
MANY_ROWS = 6000
#: Chances are kept as integers, in millionths.
MILLION = 1_000_000
#: What tables are kept as.
_KIND = "gemm-tables"


class Table:
    """Configurations of one kernel on one GPU in order of preference, as columns, with what their blocks take.

    Args:
        gpu: The hardware model.
        spec: The kernel.
        params: All its parameters.
        columns: Values of those that are decided here; the order of tiles and the compiler's knobs stay open.
        blocks_per_sm: Blocks that reside on one SM.
        smem_bytes: Shared memory of a block.
        spill_ppm: The chance that a plain product spills, in millionths.
        share_ppm: Registers that it is estimated to need over those that a thread may have, in millionths.
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

    def __len__(self) -> int:
        """The number of configurations."""
        return len(self.smem_bytes)

    def take(self, rows: NDArray[Any]) -> Table:
        """These rows alone."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        kept = (column[rows] for column in (self.blocks_per_sm, self.smem_bytes, self.spill_ppm, self.share_ppm))
        return Table(self.gpu, self.spec, self.params, columns, *kept)

    @staticmethod
    def joined(tables: Sequence[Table]) -> Table:
        """The rows of tables of one kernel on one GPU, each once."""
        first = tables[0]
        if len(tables) == 1:
            return first
        columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in first.columns}
        figures = ("blocks_per_sm", "smem_bytes", "spill_ppm", "share_ppm")
        rest = (np.concatenate([getattr(table, name) for table in tables]) for name in figures)
        _, once = np.unique(np.stack(list(columns.values())), axis=1, return_index=True)
        return Table(first.gpu, first.spec, first.params, columns, *rest).take(np.sort(once))

    def config(self, row: int) -> dict[str, int]:
        """One row as a configuration, without the order of tiles and the compiler's knobs."""
        return {name: int(column[row]) for name, column in self.columns.items()}

    def price(self, product: Product) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows that are valid for a product, and their predicted seconds, a chance to spill included."""
        rows = np.flatnonzero(self._valid(product))
        if not len(rows):
            return rows, np.empty(0)
        slower = self._slower(product)
        # What is known of all rows saves more than pricing fewer of them, unless there are many to be left out.
        if len(self) - len(rows) < MANY_ROWS:
            return rows, (self.spec.price(self.gpu, product, self.columns, self.blocks_per_sm).seconds * slower)[rows]
        part = {name: column[rows] for name, column in self.columns.items()}
        return rows, self.spec.price(self.gpu, product, part, self.blocks_per_sm[rows]).seconds * slower[rows]

    def _valid(self, product: Product) -> NDArray[np.bool_]:
        """Which rows satisfy the rules that depend on sizes."""
        valid = np.ones(len(self), dtype=bool)
        for rule in self._rules(product, self.columns):
            valid &= rule.condition
        return valid

    def _slower(self, product: Product) -> NDArray[np.float64]:
        """How many times as long each row is expected to take as if it were sure to fit and not to spill."""
        broken = self._broken(product)
        if broken is None:
            return self._slowdown
        return np.asarray(np.maximum(self._slowdown, slowdown(self.gpu, chance_of_broken(broken), BROKEN_SHARE)))

    def _broken(self, product: Product) -> NDArray[np.int64] | None:
        """How many estimated rules on the end of the product each row breaks; None for a plain product."""
        gpu, spec = self.gpu, self.spec
        added = spec.added_smem_bytes(gpu, product, self.columns, self.smem_bytes)
        rules = list(spec.end_rules(gpu, product, self.columns, self.smem_bytes + added, added, COLUMNS))
        if isinstance(added, int) and added == 0 and not rules:
            return None
        broken = np.asarray(self.smem_bytes + added > gpu.sm.max_smem_bytes_per_block, dtype=np.int64)
        for rule in rules:
            broken = broken + ~np.asarray(rule.condition, dtype=bool)
        return broken

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
        """The order with the least predicted time; where nothing tells, the largest group of up to eight rows."""
        group = orders["group_m"]
        if not self.spec.prices_order:
            return int(np.argmax(np.where(group <= 8, group, 0)))
        if len(group) == 1:
            return 0
        alone = product if product.batch == 1 else product.alone
        columns = PreparedRow(self.columns, row, orders)
        seconds = self.spec.price(self.gpu, alone, columns, self.blocks_per_sm[row : row + 1]).seconds
        return int(np.flatnonzero(seconds <= (1 + TIE) * seconds.min())[0])

    # How a table is kept.

    def to_bytes(self) -> bytes:
        """All columns, one below the other."""
        file = BytesIO()
        columns = (*self.columns.values(), self.blocks_per_sm, self.smem_bytes, self.spill_ppm, self.share_ppm)
        np.save(file, np.stack(columns), allow_pickle=False)
        return file.getvalue()

    @staticmethod
    def from_bytes(data: bytes, gpu: GpuModel, spec: GemmSpec, params: tuple[Param, ...]) -> Table | None:
        """The table that was kept; None where the bytes are none."""
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
        return Table(gpu, spec, params, named, blocks_per_sm, smem_bytes, spill_ppm, share_ppm)


def closed_params(spec: GemmSpec, params: tuple[Param, ...]) -> list[Param]:
    """The parameters that a table decides, first those whose preferred values win ties."""
    closed = [p for p in params if p.name not in {*spec.order_params, *spec.free_params}]
    # Of what takes as long, K in one piece first: it needs no memory for partial sums.
    return sorted(closed, key=lambda p: p.name != "split_k")


class KeptTable:
    """Where the table of a GPU, a kernel, a dtype and the width of loads is kept for other processes.

    Args:
        gpu: The hardware model.
        spec: The kernel.
        params: All its parameters.
        asked: Whatever else the table depends on: numbers and texts.
    """

    def __init__(self, gpu: GpuModel, spec: GemmSpec, params: tuple[Param, ...], *asked: object) -> None:
        self.gpu, self.spec, self.params = gpu, spec, params
        self._key = key_of(gpu, (spec,), *asked)

    def load(self) -> Table | None:
        """The table, if some process has kept it."""
        data = None if self._key is None else cache.load(_KIND, self._key)
        return None if data is None else Table.from_bytes(data, self.gpu, self.spec, self.params)

    def store(self, table: Table) -> None:
        """Keep the table."""
        if self._key is not None:
            cache.store(_KIND, self._key, table.to_bytes())
