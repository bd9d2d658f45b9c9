"""Axes: the values of each variable in order, and rows of positions on them as single integer keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import LimitReachedError
from constrint.model import Domain, Expr
from constrint.model.columns import ExactColumn, column_of, evaluate
from constrint.model.operations import step
from constrint.solve.budget import Budget, available_bytes

# Longest axis for which positions are indexed by value.
_MOST_PLACES: Final = 1 << 16
# Long integers that are computed between two looks at the clock.
_PIECE: Final = 1 << 12


@dataclass(slots=True)
class Axis:
    """The values of one variable as an array, in preference order, with their bounds."""

    values: NDArray[Any]
    bounds: tuple[int, int]
    narrow: NDArray[Any] = field(init=False)

    def __post_init__(self) -> None:
        # Arithmetic on 32 bits is twice as fast; it widens by itself where the bounds demand it.
        fits = self.values.dtype != object and self.bounds[0] > -(2**31) and self.bounds[1] < 2**31
        self.narrow = self.values.astype(np.int32) if fits else self.values

    def __len__(self) -> int:
        return len(self.values)

    def keep(self, mask: NDArray[np.bool_]) -> Axis:
        """Returns the axis with only the marked values."""
        return axis_of(self.values[mask])

    def column(self, shape: tuple[int, ...]) -> ExactColumn:
        """The values, reshaped to lie along one axis of a grid."""
        return ExactColumn(self.narrow.reshape(shape), self.bounds)


def position_type(size: int) -> Any:
    """The smallest dtype for positions on an axis of `size` values."""
    return np.uint8 if size <= 1 << 8 else np.uint16 if size <= 1 << 16 else np.int32


def axis_of(values: NDArray[Any]) -> Axis:
    """Wraps an array of values."""
    if len(values) == 0:
        return Axis(values, (0, 0))
    return Axis(values, (int(values.min()), int(values.max())))


def axis_from_domain(domain: Domain) -> Axis:
    """Lists the values of a domain; the caller has checked that there are not too many."""
    fits = domain.lower >= -(2**63) and domain.upper < 2**63
    if domain.listed is None and fits and domain.step < 2**63:
        # Not np.arange(lower, upper, step): it computes the number of values in floating point. Steps wrap around
        # where lower and upper lie more than 2^63 apart, and what is added up is exact again.
        values = np.arange(domain.size, dtype=np.int64)
        values *= domain.step
        values += domain.lower
    else:
        values = np.array(tuple(domain), dtype=np.int64 if fits else object)
    return Axis(values, (domain.lower, domain.upper))


def places_of(domain: Domain, values: NDArray[Any]) -> NDArray[np.intp]:
    """Ranks of a column's values in the order of preference."""
    distinct, inverse = np.unique(values, return_inverse=True)
    if domain.listed is None:
        return inverse.reshape(-1)
    place = {value: at for at, value in enumerate(domain.listed)}
    ranks: NDArray[np.intp] = np.array([place[value] for value in distinct.tolist()], dtype=np.intp)[
        inverse.reshape(-1)
    ]
    return ranks


@dataclass(frozen=True, slots=True)
class LazyAxis:
    """The values lower, lower + step, ... of a variable with too many values to list."""

    lower: int
    step: int
    size: int

    def take(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Values at positions."""
        upper = self.lower + self.step * (self.size - 1)
        if self.lower >= -(2**62) and upper < 2**62:
            return positions.astype(np.int64) * self.step + self.lower
        flat = positions.reshape(-1)
        result: NDArray[Any] = np.empty(len(flat), dtype=object)
        for start in range(0, len(flat), _PIECE):
            result[start : start + _PIECE] = flat[start : start + _PIECE].astype(object) * self.step + self.lower
            step()
        fits = self.lower >= -(2**63) and upper < 2**63
        return (result.astype(np.int64) if fits else result).reshape(positions.shape)

    def position(self, value: int) -> int | None:
        """Position of a value; None if it is not on the axis."""
        at, rest = divmod(value - self.lower, self.step)
        return at if rest == 0 and 0 <= at < self.size else None


def axis_of_free(domain: Domain, budget: Budget) -> Axis | LazyAxis:
    """The axis of a variable that no constraint touches; a long range is not listed."""
    if domain.listed is None and domain.size > min(budget.limits.max_values, 1 << 16):
        return LazyAxis(domain.lower, domain.step, domain.size)
    return axis_from_domain(domain)


@dataclass(slots=True)
class AxisLayout:
    """Maps positions to assignments: axes of variables, fixed values, and derived variables."""

    names: tuple[str, ...]
    axes: dict[str, Axis | LazyAxis]
    fixed: dict[str, int]
    derived: dict[str, Expr] = field(default_factory=dict)
    _places: dict[str, dict[int, int]] = field(default_factory=dict, repr=False)

    @property
    def has_early(self) -> bool:
        """Whether a derived variable is declared before an open one that it is computed from: axes miss its order."""
        place = {name: at for at, name in enumerate(self.names)}
        return any(
            place[other] > place[name] for name in self.derived for other in self.needed([name]) if other in self.axes
        )

    def values(self, name: str, positions: NDArray[Any]) -> NDArray[Any]:
        """Values of a variable at positions on its axis."""
        axis = self.axes[name]
        return axis.take(positions) if isinstance(axis, LazyAxis) else axis.values[positions.astype(np.intp)]

    def size(self, name: str) -> int:
        """Number of values on a variable's axis."""
        axis = self.axes[name]
        return axis.size if isinstance(axis, LazyAxis) else len(axis)

    def narrow_values(self, name: str) -> NDArray[Any]:
        """All values on a variable's axis, in the smallest dtype that holds them."""
        axis = self.axes[name]
        if isinstance(axis, LazyAxis):
            return smallest(axis.take(np.arange(axis.size)))
        return axis.values.astype(dtype_for(*axis.bounds), copy=False)

    def itemsize(self, name: str) -> int:
        """Bytes of one value of a variable in a listing; eight where they are not known beforehand."""
        axis = self.axes.get(name)
        if isinstance(axis, Axis):
            return int(np.dtype(dtype_for(*axis.bounds)).itemsize)
        return int(np.dtype(dtype_for(*(self.fixed[name],) * 2)).itemsize) if name in self.fixed else 8

    def position(self, name: str, value: int) -> int | None:
        """Position of a value on a variable's axis; None if it is not there."""
        axis = self.axes[name]
        if isinstance(axis, LazyAxis):
            return axis.position(value)
        if not axis.bounds[0] <= value <= axis.bounds[1]:
            return None
        if len(axis) > _MOST_PLACES:
            at = np.flatnonzero(axis.values == value)
            return int(at[0]) if len(at) else None
        if name not in self._places:
            self._places[name] = {v: at for at, v in enumerate(axis.values.tolist())}
        return self._places[name].get(value)

    def row_of(self, assignment: Mapping[str, int]) -> Rows | None:
        """Positions of one assignment; None if some value is not on its axis."""
        positions = {name: self.position(name, assignment[name]) for name in self.axes}
        return None if None in positions.values() else {name: np.array([at]) for name, at in positions.items()}

    def positions_of(self, columns: Mapping[str, NDArray[Any]]) -> Rows | None:
        """Positions of columns of values; None if some value is not on its axis."""
        rows: Rows = {}
        for name, axis in self.axes.items():
            # Numpy compares 64 bits with and without a sign as floats.
            values = np.asarray(column_of(columns[name], f"column {name!r}").values)
            if isinstance(axis, LazyAxis):
                positions = [axis.position(v) for v in values.tolist()]
                if None in positions:
                    return None
                rows[name] = np.array(positions)
                continue
            order = np.argsort(axis.values, kind="stable")
            at = np.minimum(np.searchsorted(axis.values[order], values), len(axis) - 1)
            rows[name] = order[at]
            if not bool(np.all(axis.values[rows[name]] == values)):
                return None
        return rows

    def needed(self, names: Sequence[str]) -> set[str]:
        """These variables, and those that derived ones among them are computed from."""
        needed = set(names)
        for name, expr in reversed(self.derived.items()):
            if name in needed:
                needed |= expr.variables
        return needed

    def assignments(self, rows: Rows, num_rows: int, needed: Set[str] | None = None) -> dict[str, NDArray[Any]]:
        """Turns rows of positions into columns of values, in declared order."""
        columns = {name: self.values(name, positions) for name, positions in rows.items()}
        for name, value in self.fixed.items():
            columns[name] = np.full(num_rows, value, dtype=np.int64 if abs(value) < 2**63 else object)
        self._derive(columns, num_rows, needed)
        return {name: columns[name] for name in self.names if name in columns}

    def completed(self, columns: dict[str, NDArray[Any]], num_rows: int) -> dict[str, NDArray[Any]]:
        """Adds fixed and derived variables to columns of values, in declared order and small dtypes."""
        for name, value in self.fixed.items():
            columns[name] = np.full(num_rows, value, dtype=dtype_for(value, value))
        if self.derived:
            self._derive(columns, num_rows, None)
            columns.update({name: smallest(columns[name]) for name in self.derived})
        return {name: columns[name] for name in self.names}

    def derived_column(self, name: str, columns: Mapping[str, NDArray[Any]], num_rows: int) -> NDArray[Any]:
        """Values of a derived variable, given columns of those that it is computed from."""
        return value_column(self.derived[name], columns, num_rows)

    def _derive(self, columns: dict[str, NDArray[Any]], num_rows: int, needed: Set[str] | None) -> None:
        for name in self.derived:
            if needed is None or name in needed:
                columns[name] = self.derived_column(name, columns, num_rows)


def value_column(expr: Expr, known: Mapping[str, NDArray[Any]], num_rows: int) -> NDArray[Any]:
    """Evaluates an expression that is defined in every row; Python integers where 64 bits do not suffice."""
    columns = {n: column_of(known[n]) for n in expr.variables}
    values = np.asarray(evaluate(expr, columns).values)
    wide: NDArray[Any] = np.array(np.broadcast_to(values, (num_rows,)))
    return wide


def dtype_for(low: int, high: int) -> Any:
    """The smallest signed integer dtype that holds low..high; Python integers beyond 64 bits."""
    for dtype, bits in ((np.int8, 7), (np.int16, 15), (np.int32, 31), (np.int64, 63)):
        if -(1 << bits) <= low and high < 1 << bits:
            return dtype
    return object


def smallest(values: NDArray[Any]) -> NDArray[Any]:
    """Converts a column to the smallest signed integer dtype that holds it."""
    if values.dtype == object or len(values) == 0:
        return values
    return values.astype(dtype_for(int(values.min()), int(values.max())), copy=False)


def dicts_of(columns: dict[str, NDArray[Any]], num_rows: int) -> list[dict[str, int]]:
    """Rows of columns as dictionaries."""
    if not columns:
        return [{} for _ in range(num_rows)]
    # Without a loop in Python: this is most of the cost of iterating over a space.
    rows = zip(*(c.tolist() for c in columns.values()), strict=True)
    return list(map(dict, map(zip, repeat(tuple(columns)), rows)))


Keys = NDArray[np.int64]
#: Columns of positions, one per variable; each row is one combination.
Rows = dict[str, NDArray[Any]]
KEY_LIMIT: Final = 1 << 62
# Keys that are sorted 16 bits at a time: quicker than comparing them.
_MANY: Final = 1 << 10
# Listings up to this size are not compared with the available memory.
_FEW_BYTES: Final = 1 << 24


def combine(tables: Sequence[Sequence[NDArray[Any]]], sizes: Sequence[int]) -> tuple[list[Keys], int]:
    """Encodes rows as integers, the same way for every table.

    Args:
        tables: For each table its columns of positions; all tables have the same columns.
        sizes: Number of possible positions of each column.

    Returns:
        One key per row for each table, and an upper bound that every key stays below. Keys order rows
        lexicographically.
    """
    if not sizes:
        raise ValueError("combine needs at least one column")
    keys: list[Keys] = [columns[0].astype(np.int64) for columns in tables]
    bound = sizes[0]
    for i in range(1, len(sizes)):
        if bound * sizes[i] >= KEY_LIMIT:
            keys, bound = _compressed(keys)
        keys = [k * sizes[i] + columns[i] for k, columns in zip(keys, tables, strict=True)]
        bound *= sizes[i]
    return keys, bound


def _compressed(keys: list[Keys]) -> tuple[list[Keys], int]:
    """Renumbers keys densely, keeping their order."""
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    ends = np.cumsum([len(k) for k in keys])[:-1]
    return [part.astype(np.int64) for part in np.split(inverse.reshape(-1), ends)], max(1, len(unique))


def rising(keys: Keys) -> NDArray[np.intp]:
    """The order in which keys rise, equal ones as they stand; many are sorted 16 bits at a time, between looks."""
    if len(keys) < 2 or bool(np.all(keys[1:] >= keys[:-1])):
        return np.arange(len(keys))
    if len(keys) < _MANY:
        return np.argsort(keys, kind="stable")
    order: NDArray[np.intp] = np.arange(len(keys))
    for shift in range(0, int(keys.max()).bit_length(), 16):
        step()
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
    return order


def check_listing(rows: int, row_bytes: int = 8) -> None:
    """Refuse to list rows that would take more than half of the available memory.

    Args:
        rows: Number of rows.
        row_bytes: Bytes of one row.
    """
    needed = rows * row_bytes
    if needed > _FEW_BYTES and needed > available_bytes():
        raise LimitReachedError(
            f"this would list {rows} rows of {row_bytes} bytes; {available_bytes()} bytes, half of the memory left, "
            "may be taken. Project onto fewer variables, restrict, sample or iterate."
        )


def total_type(bound: int) -> Any:
    """The dtype in which sums up to `bound` are exact."""
    return np.int64 if bound < KEY_LIMIT else object


def ranges(starts: NDArray[np.intp], lengths: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Lists start, start + 1, ... for every pair of start and length.

    Returns:
        For each listed number the pair that it comes from, and the number.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    check_listing(total)
    # Counting the ends passed so far is much faster than np.repeat.
    passed = np.bincount(ends[:-1], minlength=total)[:total] if total else np.zeros(0, dtype=np.intp)
    source = np.cumsum(passed, dtype=np.intp)
    numbers = np.arange(total) + (starts - (ends - lengths))[source]
    return source, numbers
