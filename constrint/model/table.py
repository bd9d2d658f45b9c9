"""Tables: a constraint that lists the combinations of values that several expressions may have together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UndefinedValueError, UsageError
from constrint.model.constraint import AnyOf, Constraint, is_in
from constrint.model.expr import Expr, as_expr
from constrint.model.operations import INT64_MAX, INT64_MIN, as_int

MAX_ROWS: Final = 1 << 20


class InTable(Constraint):
    """The constraint that the values of the expressions form one of the rows; false where one has no value.

    Attributes:
        exprs: The expressions, at least two.
        rows: The allowed combinations, each once, in ascending order.
        index: Index of the rows for evaluation over columns, built at its first use.
    """

    __slots__ = ("_row_set", "exprs", "index", "rows")

    def __init__(self, exprs: tuple[Expr, ...], rows: Iterable[tuple[int, ...]]) -> None:
        self.exprs = exprs
        self.index: Any = None
        self._row_set = frozenset(rows)
        self.rows: tuple[tuple[int, ...], ...] = tuple(sorted(self._row_set))
        if len(self.rows) > MAX_ROWS:
            raise UsageError(f"a table of {len(self.rows):,} rows; at most {MAX_ROWS:,} are taken.")
        self._setup(exprs)

    def key(self) -> tuple[Any, ...]:
        """Structure, with the rows."""
        if self._key is None:
            self._key = ("table", tuple(e.key() for e in self.exprs), self.rows)
        return self._key

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Looks the values up."""
        try:
            return tuple(e.value(assignment) for e in self.exprs) in self._row_set
        except UndefinedValueError:
            return False


def table(exprs: Iterable[object], rows: Iterable[Iterable[object]]) -> Constraint:
    """Build the constraint that the expressions' values form one of the rows: `table([x, y], [(1, 2), (3, 4)])`.

    Args:
        exprs: Variables or other expressions.
        rows: The allowed combinations; for a variable of other values than integers its own values.

    Raises:
        UsageError: When a row does not fit the expressions.
    """
    sides = tuple(exprs)
    plain = tuple(side.coded if hasattr(side, "coded") else as_expr(side) for side in sides)
    coded: list[tuple[int, ...]] = []
    for row in _tuples(rows, len(plain)):
        codes = [_code(side, value) for side, value in zip(sides, row, strict=True)]
        if None not in codes:
            coded.append(tuple(code for code in codes if code is not None))
    return table_of(plain, coded)


def _code(side: Any, value: object) -> int | None:
    """The integer that stands for a value of one column; None for a value that the column cannot have."""
    if hasattr(side, "code_of"):
        code: int | None = side.code_of(value)
        return code
    return as_int(value, "a value of the table")


def table_of(exprs: tuple[Expr, ...], rows: Iterable[tuple[int, ...]]) -> Constraint:
    """Build a table of integers; without rows, or of one expression, a simpler equivalent constraint."""
    listed = list(rows)
    if not listed:
        return AnyOf(())
    if not exprs:
        raise UsageError("a table needs at least one expression.")
    return is_in(exprs[0], sorted({row[0] for row in listed})) if len(exprs) == 1 else InTable(exprs, listed)


def _tuples(rows: Iterable[Iterable[object]], width: int) -> Iterable[tuple[Any, ...]]:
    for row in rows:
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise UsageError(f"a row of the table must be a tuple of {width} values, got {row!r}.")
        values = tuple(row)
        if len(values) != width:
            raise UsageError(f"a row of the table has {len(values)} values for {width} expressions: {values!r}.")
        yield values


class RowIndex:
    """The rows of a table as keys: every column's values are numbered, and a row is one number made of these."""

    def __init__(self, rule: InTable) -> None:
        self.levels = [sorted({row[place] for row in rule.rows}) for place in range(len(rule.exprs))]
        self.arrays = [_listed(levels) for levels in self.levels]
        columns = zip(*rule.rows, strict=True)
        places = [np.searchsorted(array, _listed(column)) for array, column in zip(self.arrays, columns, strict=True)]
        self.fits = math.prod(map(len, self.levels)) < 1 << 62
        self.keys: NDArray[Any] = np.sort(self._keys(places)) if self.fits else np.zeros(0, dtype=np.int64)
        self.rows = frozenset(() if self.fits else rule.rows)

    def _keys(self, places: list[Any]) -> Any:
        keys: Any = 0
        for levels, at in zip(self.levels, places, strict=True):
            keys = keys * len(levels) + at
        return keys

    def has(self, columns: list[Any]) -> Any:
        """Mask of the rows of columns (integers of any size) that are in the table."""
        if not self.fits:
            return np.frompyfunc(lambda *row: tuple(map(int, row)) in self.rows, len(columns), 1)(*columns)
        inside: Any = True
        places = []
        for array, values in zip(self.arrays, columns, strict=True):
            if np.asarray(values).dtype == object and array.dtype != object:
                array = array.astype(object)
            at = np.minimum(np.searchsorted(array, values), len(array) - 1)
            inside = inside & (array[at] == values)
            places.append(at)
        keys = self._keys(places)
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return inside & (self.keys[found] == keys)


def _listed(values: Sequence[int]) -> NDArray[Any]:
    return np.array(values, dtype=np.int64 if min(values) >= INT64_MIN and max(values) <= INT64_MAX else object)
