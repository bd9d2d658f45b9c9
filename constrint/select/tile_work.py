"""Input of the cost model: work of blocks and grids per configuration, and columns that many workloads share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Power of moving one byte, in operations of the matrix units: from and to shared memory, and from the L2.
#: Assumed, of the order of published energies of 7 nm parts: a bf16 multiply-add some 0.6 pJ, a byte of a small SRAM
#: 1 pJ, of a large one and on the way from there 5 pJ.
SMEM_MOVE_FLOP, L2_MOVE_FLOP = 3.0, 16.0


@dataclass(frozen=True, kw_only=True)
class BlockWork:
    """Work of one block per configuration, independent of the grid; every field is a scalar or a column.

    Args:
        blocks_per_sm: Blocks that reside on one SM at once (at least 1).
        warps_per_block: Warps (waves) of one block.
        flop: Floating or integer operations of one block in one iteration.
        matrix_efficiency: Share of the peak that the chosen instruction can reach.
        smem_bytes: Bytes that one block moves through shared memory in one iteration, both ways.
        load_bytes: Bytes that one block loads from the L2 in one iteration.
        load_instructions: Loads per lane, summed over the lanes of one block, in one iteration.
        store_bytes: Bytes that one block stores at its end.
        is_async: 1 where matrix instructions read operands from shared memory (wgmma, tcgen05), else 0.
        stages_in_flight: Iterations ahead of their use that loads are issued; 0 where nothing is prefetched.
        is_persistent: 1 where blocks walk many tiles, so that only one wave is started, else 0.
        has_matrix_units: Whether matrix units do the arithmetic; else the plain, vector units do.
        dtype: Type of the operands, which decides the sustained share of the peak.
    """

    blocks_per_sm: Any
    warps_per_block: Any
    flop: Any
    matrix_efficiency: Any = 1.0
    smem_bytes: Any
    load_bytes: Any
    load_instructions: Any
    store_bytes: Any
    is_async: Any
    stages_in_flight: Any
    is_persistent: Any = 0.0
    has_matrix_units: bool = True
    dtype: str = "bf16"

    @property
    def flop_of_moves(self) -> Any:
        """Power of moving one iteration's bytes, in operations of the matrix units."""
        return SMEM_MOVE_FLOP * self.smem_bytes + L2_MOVE_FLOP * self.load_bytes


@dataclass(frozen=True, kw_only=True)
class GridWork:
    """Work of a grid of blocks; every field is a scalar or a column over configurations.

    Args:
        num_blocks: Blocks in the grid.
        iterations: Main-loop iterations of one block.
        l2_bytes, last_level_bytes, dram_bytes: Traffic of the whole grid at each level.
        extra_s: Seconds of further kernels (a split-K reduction).
        load_latency_s: Mean seconds from a load's issue to its data, where cache hits are known; else the vendor's.
        l2_bytes_per_s: Bandwidth of all caches together, where no vendor states the L2's.
    """

    num_blocks: Any
    iterations: Any
    l2_bytes: Any
    last_level_bytes: Any
    dram_bytes: Any
    extra_s: Any = 0.0
    load_latency_s: Any = None
    l2_bytes_per_s: Any = None


@dataclass(frozen=True, kw_only=True)
class TileWork(BlockWork, GridWork):
    """A grid and its blocks."""


Columns = Mapping[str, NDArray[Any]]
_Derived = TypeVar("_Derived")
_ByRow = TypeVar("_ByRow", bound="ByRow")
#: Most derived values that are cached beside one set of columns.
MAX_DERIVED = 64


class ByRow:
    """An object whose attributes are columns over configurations, or scalars."""

    def take(self: _ByRow, rows: slice) -> _ByRow:
        """Select configurations."""
        taken = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, ByRow):
                vars(taken)[name] = value.take(rows)
            elif isinstance(value, np.ndarray) and value.ndim:
                vars(taken)[name] = value[rows]
        return taken


class PreparedColumns(dict[str, NDArray[Any]]):
    """Immutable columns of one kernel on one GPU, beside which derived values are cached.

    Args:
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM.
    """

    def __init__(self, columns: Columns, blocks_per_sm: NDArray[Any]) -> None:
        super().__init__(columns)
        self.blocks_per_sm = blocks_per_sm
        self.derived: dict[Hashable, Any] = {}


class PreparedRow(dict[str, NDArray[Any]]):
    """One of the prepared configurations, as columns of the parameters that it leaves open.

    Args:
        whole: The prepared columns.
        row: Index of the configuration.
        opened: Values of the other parameters; each stands for one configuration.
    """

    def __init__(self, whole: PreparedColumns, row: int, opened: Columns) -> None:
        super().__init__(opened)
        self.whole, self.row = whole, slice(row, row + 1)


def derived(
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    key: Hashable,
    derive: Callable[[Columns, NDArray[Any]], _Derived],
) -> _Derived:
    """Values derived from the columns, from the blocks resident on an SM and from a key alone.

    The result is cached beside prepared columns; from other columns it is derived at every call.
    """
    if not isinstance(columns, PreparedColumns):
        return derive(columns, blocks_per_sm)
    by_key: dict[Hashable, _Derived] = columns.derived
    figures = by_key.get(key)
    if figures is None:
        figures = derive(columns, columns.blocks_per_sm)
        if len(by_key) >= MAX_DERIVED:
            by_key.clear()
        by_key[key] = figures
    return figures


def derived_by_row(
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    key: Hashable,
    derive: Callable[[Columns, NDArray[Any]], _ByRow],
) -> _ByRow:
    """Like `derived`; a prepared row takes its values from those of all rows."""
    if isinstance(columns, PreparedRow):
        return derived(columns.whole, blocks_per_sm, key, derive).take(columns.row)
    return derived(columns, blocks_per_sm, key, derive)
