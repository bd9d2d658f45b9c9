"""Columns of configurations that are priced for many workloads, with what cost models derived from them alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[Any]]
_Derived = TypeVar("_Derived")
_ByRow = TypeVar("_ByRow", bound="ByRow")
#: Derivations that are kept beside one set of columns.
MAX_DERIVED = 64


class ByRow:
    """An object whose attributes are columns with a value for each configuration, or the same for all."""

    def take(self: _ByRow, rows: slice) -> _ByRow:
        """The same of some configurations alone."""
        part = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, ByRow):
                vars(part)[name] = value.take(rows)
            elif isinstance(value, np.ndarray) and value.ndim:
                vars(part)[name] = value[rows]
        return part


class PreparedColumns(dict[str, NDArray[Any]]):
    """Columns that belong to one kernel on one GPU, and stay as they are.

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
        row: Which configuration.
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
    """What follows from the columns, from what resides on an SM and from a key alone.

    It is kept beside prepared columns; from any other columns it is derived anew.
    """
    if not isinstance(columns, PreparedColumns):
        return derive(columns, blocks_per_sm)
    known: dict[Hashable, _Derived] = columns.derived
    found = known.get(key)
    if found is None:
        found = derive(columns, columns.blocks_per_sm)
        if len(known) >= MAX_DERIVED:
            known.clear()
        known[key] = found
    return found


def derived_by_row(
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    key: Hashable,
    derive: Callable[[Columns, NDArray[Any]], _ByRow],
) -> _ByRow:
    """The same; one prepared row takes its share of what is kept for all."""
    if isinstance(columns, PreparedRow):
        return derived(columns.whole, blocks_per_sm, key, derive).take(columns.row)
    return derived(columns, blocks_per_sm, key, derive)
