"""Tables: a constraint that lists the combinations of values that some expressions may have together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from constrint.errors import UndefinedValueError, UsageError
from constrint.model.constraint import AnyOf, Constraint, is_in
from constrint.model.expr import Expr, as_expr
from constrint.model.intmath import as_int

MAX_ROWS: Final = 1 << 20


class Table(Constraint):
    """The values of the expressions, together, are one of the rows; false where one has no value.

    Attributes:
        exprs: The expressions, at least two.
        rows: The allowed combinations, each once, in ascending order.
        index: What `columns` has made of the rows, once it was asked.
    """

    __slots__ = ("_known", "exprs", "index", "rows")

    def __init__(self, exprs: tuple[Expr, ...], rows: Iterable[tuple[int, ...]]) -> None:
        self.exprs = exprs
        self.index: Any = None
        self._known = frozenset(rows)
        self.rows: tuple[tuple[int, ...], ...] = tuple(sorted(self._known))
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
            return tuple(e.value(assignment) for e in self.exprs) in self._known
        except UndefinedValueError:
            return False


def table(exprs: Iterable[object], rows: Iterable[Iterable[object]]) -> Constraint:
    """The values of the expressions together are one of the rows: `table([x, y], [(1, 2), (3, 4)])`.

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
        found: int | None = side.code_of(value)
        return found
    return as_int(value, "a value of the table")


def table_of(exprs: tuple[Expr, ...], rows: Iterable[tuple[int, ...]]) -> Constraint:
    """A table of integers; one of no rows or of one expression becomes what says the same more plainly."""
    listed = list(rows)
    if not listed:
        return AnyOf(())
    if not exprs:
        raise UsageError("a table needs at least one expression.")
    return is_in(exprs[0], sorted({row[0] for row in listed})) if len(exprs) == 1 else Table(exprs, listed)


def _tuples(rows: Iterable[Iterable[object]], width: int) -> Iterable[tuple[Any, ...]]:
    for row in rows:
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise UsageError(f"a row of the table must be a tuple of {width} values, got {row!r}.")
        values = tuple(row)
        if len(values) != width:
            raise UsageError(f"a row of the table has {len(values)} values for {width} expressions: {values!r}.")
        yield values
