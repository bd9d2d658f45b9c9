"""Row-by-row evaluation over numpy columns, exact by construction.

Every intermediate carries bounds. An operation runs on int64 only where its bounds prove that nothing
overflows, else on Python integers (object dtype), and returns to int64 when the bounds allow it again.
Columns may have any shapes that broadcast together: so the solver evaluates a constraint on a grid without
expanding it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constrint.errors import IntegerOverflowError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import constraint as c
from constrint.model import operations
from constrint.model.expr import Calculation, Const, Expr, Truth, Var
from constrint.model.logic import Element
from constrint.model.operations import BINARY, TABLE, UNARY, Interval, fold
from constrint.model.table import InTable, RowIndex

BoolArray = NDArray[np.bool_]
# First batch of rows of Python integers; doubled while a batch takes less than `_SHORT_SECONDS`.
_FEW_ROWS: Final = 8
# Integers that are read between two looks at the clock.
_PIECE: Final = 1 << 12
_SHORT_SECONDS: Final = 0.002
# In a shorter expression the search for shared subexpressions takes longer than evaluating them twice.
_WORTH_SHARING: Final = 60
Mask = BoolArray | None
Verdict = BoolArray | bool
MAX, MIN = operations.INT64_MAX, operations.INT64_MIN


class ExactColumn(NamedTuple):
    """Values of an expression with proven bounds, and a mask of the rows with a value (None where all have one)."""

    values: Any
    bounds: Interval
    defined: Mask = None


def column_of(values: ArrayLike, what: str = "a column") -> ExactColumn:
    """Convert an integer array (or one integer) to a column with its bounds.

    Raises:
        UsageError: When `values` holds anything but integers; `what` names it.
    """
    array = np.asarray(values)
    if array.dtype.kind == "O":
        numbers = array.ravel().tolist()
        for start in range(0, len(numbers), _PIECE):
            piece = numbers[start : start + _PIECE]
            numbers[start : start + _PIECE] = [v if type(v) is int else operations.as_int(v, what) for v in piece]
            operations.step()
        bounds = (min(numbers), max(numbers)) if numbers else (0, 0)
        fits = bounds[0] >= MIN and bounds[1] <= MAX
        flat = np.array(numbers, dtype=np.int64 if fits else object)
        return ExactColumn(flat.reshape(array.shape), bounds)
    if array.size == 0:
        return ExactColumn(array.astype(np.int64), (0, 0))
    if array.dtype.kind not in "iu":
        raise UsageError(f"{what} must hold integers, got dtype {array.dtype}.")
    bounds = (int(array.min()), int(array.max()))
    return ExactColumn(array.astype(np.int64 if bounds[1] <= MAX else object, copy=False), bounds)


def _joined(a: Mask, b: Mask) -> Mask:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _as_object(values: Any) -> Any:
    return values.astype(object) if isinstance(values, np.ndarray) else values


def _elementwise(function: Callable[..., int], arity: int) -> Callable[..., Any]:
    lifted: Callable[..., Any] = np.frompyfunc(function, arity, 1)

    def in_pieces(*operands: Any) -> Any:
        """Applies the function in batches: a row of long numbers may take milliseconds, and callers may interrupt."""
        shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
        if math.prod(shape) <= _FEW_ROWS:
            operations.step()
            return lifted(*operands)
        flat = [np.broadcast_to(np.asarray(x).astype(object), shape).reshape(-1) for x in operands]
        result = np.empty(len(flat[0]), dtype=object)
        start, rows = 0, _FEW_ROWS
        while start < len(result):
            began = time.perf_counter()
            result[start : start + rows] = lifted(*(x[start : start + rows] for x in flat))
            start += rows
            rows = max(_FEW_ROWS, 2 * rows if time.perf_counter() - began < _SHORT_SECONDS else rows // 4)
            operations.step()
        return result.reshape(shape)

    return in_pieces


_EXACT: Final = {rule.name: _elementwise(rule.exact, 1 if rule.name in UNARY else 2) for rule in TABLE}


def _fits(*intervals: Interval) -> bool:
    # MIN itself counts as outside, so that negation and absolute value of a fitting number fit as well.
    for low, high in intervals:  # noqa: SIM110 - a generator costs as much as the whole operation on few rows
        if low <= MIN or high > MAX:
            return False
    return True


def _in_words(values: Any) -> Any:
    """Converts an array of small Python integers to int64: numpy's operations on objects may differ."""
    if isinstance(values, np.ndarray) and values.dtype.hasobject:
        return values.astype(np.int64)
    return values


def wide(values: Any) -> Any:
    """Converts a 32-bit column to 64 bits."""
    if isinstance(values, np.ndarray) and values.dtype == np.int32:
        return values.astype(np.int64)
    return values


def _fits_32(*intervals: Interval) -> bool:
    for low, high in intervals:  # noqa: SIM110
        if low <= -(2**31) or high >= 2**31:
            return False
    return True


def _back_to_int64(values: Any, bounds: Interval) -> Any:
    if not _fits(bounds):
        return values
    return values.astype(np.int64) if isinstance(values, np.ndarray) else int(values)


def _guard(op: str, a: ExactColumn, b: ExactColumn) -> tuple[ExactColumn, ExactColumn, Mask]:
    """Replaces operands for which `op` is undefined by harmless ones; the mask marks the defined rows."""
    defined = _joined(a.defined, b.defined)
    low, high = b.bounds
    if op != "pow" and BINARY[op].partial and low <= 0 <= high:
        divisor = np.asarray(b.values)
        nonzero = divisor != 0
        safe = np.where(nonzero, divisor, 1)
        b = ExactColumn(safe, (min(low, 1), max(high, 1)))
        defined = _joined(defined, nonzero)
    elif op == "pow" and low < 0:
        exponent = np.asarray(b.values)
        usable = exponent >= 0
        b = ExactColumn(np.where(usable, exponent, 0), (0, max(high, 0)))
        defined = _joined(defined, usable)
    if op == "pow" and defined is not None:
        # Undefined operands hold placeholders; 0 keeps their powers small.
        a, b = (ExactColumn(_or_0(x, defined), (min(x.bounds[0], 0), max(x.bounds[1], 0))) for x in (a, b))
    return a, b, defined


def _or_0(column: ExactColumn, defined: BoolArray) -> Any:
    # numpy needs dtype=object for Python integers beyond 64 bits.
    values = column.values if _fits(column.bounds) else np.asarray(column.values, dtype=object)
    return np.where(defined, values, 0)


def binary(op: str, a: ExactColumn, b: ExactColumn) -> ExactColumn:
    """Applies a two-operand operation exactly."""
    operations.step()
    a, b, defined = _guard(op, a, b)
    rule = BINARY[op]
    bounds = rule.bounds(a.bounds, b.bounds)
    if bounds is not None and _fits(a.bounds, b.bounds, bounds):
        x, y = _in_words(a.values), _in_words(b.values)
        if not _fits_32(a.bounds, b.bounds, bounds):
            x, y = wide(x), wide(y)
        values = rule.array(x, y)
    else:
        # An inexact quotient is rounded here and masked below.
        values = _EXACT["floordiv" if op == "div" else op](_as_object(a.values), _as_object(b.values))
        if bounds is None:
            flat = np.asarray(values, dtype=object).ravel()
            bounds = (min(flat), max(flat)) if flat.size else (0, 0)
        values = _back_to_int64(values, bounds)
    if op == "div":
        exact = binary("mod", a, b).values == 0
        defined = _joined(defined, np.asarray(exact, dtype=bool))
    return ExactColumn(values, bounds, defined)


def _unary(op: str, a: ExactColumn) -> ExactColumn:
    rule = UNARY[op]
    bounds = rule.bounds(a.bounds)
    if _fits(a.bounds, bounds):
        return ExactColumn(rule.array(a.values), bounds, a.defined)
    return ExactColumn(_back_to_int64(_EXACT[op](_as_object(a.values)), bounds), bounds, a.defined)


def _keep_freed_memory() -> None:
    """Keeps glibc from giving freed memory back to the system after every column.

    glibc does so beyond a threshold, at first 128 KiB at the top of the heap, and every later column then costs page
    faults again. The threshold rises to twice the size of the largest freed block, so freeing one large block raises
    it for good. The block is never touched and costs no memory. Other C libraries are not affected.
    """
    np.empty(1 << 24, dtype=np.uint8)


_keep_freed_memory()


class _Shared:
    """Results of subexpressions that occur several times in an expression, each kept until its last use."""

    def __init__(self, expr: Expr) -> None:
        self._uses: dict[int, int] = {}
        self._results: dict[int, ExactColumn] = {}
        pending = [expr]
        while pending:
            for part in pending.pop().args:
                if isinstance(part, Calculation):
                    uses = self._uses.get(id(part), 0)
                    self._uses[id(part)] = uses + 1
                    if not uses:
                        pending.append(part)

    def value(self, expr: Calculation, columns: Mapping[str, ExactColumn]) -> ExactColumn:
        # A result is dropped at its last use: memory that is freed and allocated again costs page faults.
        key = id(expr)
        result = self._results.get(key)
        if result is None:
            result = _operation(expr, [evaluate(a, columns, self) for a in expr.args])
            self._uses[key] = self._uses.get(key, 1) - 1
            if self._uses[key]:
                self._results[key] = result
            return result
        self._uses[key] -= 1
        if not self._uses[key]:
            del self._results[key]
        return result


def evaluate(expr: Expr, columns: Mapping[str, ExactColumn], shared: _Shared | None = None) -> ExactColumn:
    """Evaluates an expression on columns that broadcast together."""
    if isinstance(expr, Var):
        return columns[expr.name]
    if isinstance(expr, Const):
        return ExactColumn(expr.number, (expr.number, expr.number))
    if isinstance(expr, Truth):
        return _truth(test(expr.condition, columns))
    assert isinstance(expr, Calculation)
    if shared is None and expr.size >= _WORTH_SHARING:
        shared = _Shared(expr)
    if shared is not None:
        return shared.value(expr, columns)
    return _operation(expr, [evaluate(a, columns) for a in expr.args])


def _truth(verdict: Verdict) -> ExactColumn:
    """A condition as a column of ones and zeros."""
    if isinstance(verdict, bool):
        return ExactColumn(int(verdict), (int(verdict), int(verdict)))
    return ExactColumn(verdict.astype(np.int64), (0, 1))


def _element(index: ExactColumn, items: list[ExactColumn]) -> ExactColumn:
    """Selects one item per row; items that no row selects are ignored."""
    low, high = max(index.bounds[0], 0), min(index.bounds[1], len(items) - 1)
    if low > high:
        return ExactColumn(0, (0, 0), np.asarray(False))
    chosen = items[low : high + 1]
    bounds = min(c.bounds[0] for c in chosen), max(c.bounds[1] for c in chosen)
    inside = index.bounds[0] >= 0 and index.bounds[1] < len(items)
    defined = index.defined if inside else _joined(index.defined, _between(index, low, high))
    places = np.where(True if defined is None else defined, np.asarray(index.values), low).astype(np.intp)
    dtype = np.int64 if _fits(bounds) else object
    if all(np.ndim(c.values) == 0 and c.defined is None for c in chosen):
        listed = np.array([int(c.values) for c in chosen], dtype=dtype)
        return ExactColumn(listed[places - low], bounds, defined)
    values: Any = np.zeros((), dtype=dtype)
    there: Mask = None if all(c.defined is None for c in chosen) else np.asarray(False)
    for place, item in enumerate(chosen, start=low):
        here = places == place
        values = np.where(here, np.asarray(item.values).astype(dtype, copy=False), values)
        if there is not None:
            there = there | (here if item.defined is None else here & item.defined)
    return ExactColumn(values, bounds, _joined(defined, there))


def _between(column: ExactColumn, low: int, high: int) -> BoolArray:
    return np.asarray((np.asarray(column.values) >= low) & (np.asarray(column.values) <= high), dtype=bool)


def _operation(expr: Calculation, args: list[ExactColumn]) -> ExactColumn:
    if isinstance(expr, Element):
        return _element(args[0], args[1:])
    if expr.op == "mul" and len(args) > 2:
        # Small operands first: a grid is only spanned where its axes meet.
        args.sort(key=lambda column: np.size(column.values))
    return fold(expr.op, args, _unary, binary)


def decided(op: str, a: Interval, b: Interval) -> bool | None:
    """Truth of a comparison where the bounds alone decide it."""
    if op in (">=", ">"):
        a, b, op = b, a, "<=" if op == ">=" else "<"
    if op == "<=":
        return True if a[1] <= b[0] else False if a[0] > b[1] else None
    if op == "<":
        return True if a[1] < b[0] else False if a[0] >= b[1] else None
    if a[1] < b[0] or b[1] < a[0]:
        return op == "!="
    return (op == "==") if a[0] == a[1] == b[0] == b[1] else None


def _masked(verdict: Any, defined: Mask) -> Verdict:
    if defined is None:
        return verdict if isinstance(verdict, bool) else np.asarray(verdict, dtype=bool)
    return np.asarray(verdict, dtype=bool) & defined


def _comparison(constraint: c.Comparison, columns: Mapping[str, ExactColumn]) -> Verdict:
    left, right = evaluate(constraint.left, columns), evaluate(constraint.right, columns)
    verdict: Any = decided(constraint.op, left.bounds, right.bounds)
    if verdict is None:
        a, b = left.values, right.values
        if not _fits(left.bounds, right.bounds):
            a, b = _as_object(a), _as_object(b)
        verdict = c.OPERATORS[constraint.op](a, b)
    return _masked(verdict, _joined(left.defined, right.defined))


def _member(column: ExactColumn, domain: Any) -> Verdict:
    values = column.values
    if domain.listed is not None:
        array = np.asarray(values)
        fits = _fits(column.bounds, (domain.lower, domain.upper)) and array.dtype != object
        if fits:
            verdict: Any = np.isin(array, np.array(domain.listed, dtype=np.int64))
        else:
            allowed = frozenset(domain.listed)
            verdict = _elementwise(lambda v: int(v) in allowed, 1)(array)
    else:
        low, high = ExactColumn(domain.lower, (domain.lower,) * 2), ExactColumn(domain.upper, (domain.upper,) * 2)
        fits = _fits(column.bounds, low.bounds, high.bounds)
        array = np.asarray(values) if fits else np.asarray(values).astype(object)
        verdict = (array >= domain.lower) & (array <= domain.upper)
        if domain.step != 1:
            offset = binary("add", ExactColumn(array, column.bounds), ExactColumn(-domain.lower, (-domain.lower,) * 2))
            rest = binary("mod", offset, ExactColumn(domain.step, (domain.step,) * 2))
            verdict = verdict & (rest.values == 0)
    return _masked(verdict, column.defined)


def _tabled(rule: InTable, columns: Mapping[str, ExactColumn]) -> Verdict:
    """Looks rows up in a table."""
    if rule.index is None:
        rule.index = RowIndex(rule)
    sides = [evaluate(expr, columns) for expr in rule.exprs]
    defined: Mask = None
    for side in sides:
        defined = _joined(defined, side.defined)
    verdict = rule.index.has([np.asarray(side.values) for side in sides])
    return _masked(verdict, defined)


def test(constraint: c.Constraint, columns: Mapping[str, ExactColumn]) -> Verdict:
    """Decides a constraint on columns that broadcast together; one bool where all rows agree."""
    if isinstance(constraint, c.Comparison):
        return _comparison(constraint, columns)
    if isinstance(constraint, c.Divides):
        number, divisor = evaluate(constraint.number, columns), evaluate(constraint.divisor, columns)
        rest = binary("mod", number, divisor)
        return _masked(rest.values == 0, rest.defined)
    if isinstance(constraint, c.IsIn):
        return _member(evaluate(constraint.expr, columns), constraint.domain)
    if isinstance(constraint, InTable):
        return _tabled(constraint, columns)
    if isinstance(constraint, (c.AllOf, c.AnyOf)):
        return _many([test(p, columns) for p in constraint.parts], isinstance(constraint, c.AllOf))
    if isinstance(constraint, c.Not):
        return _inverted(test(constraint.part, columns))
    assert isinstance(constraint, c.Implies)
    condition = _inverted(test(constraint.condition, columns))
    return _many([condition, test(constraint.consequence, columns)], every=False)


def _inverted(verdict: Verdict) -> Verdict:
    return not verdict if isinstance(verdict, bool) else ~verdict


def _many(verdicts: list[Verdict], every: bool) -> Verdict:
    result: Verdict = every
    for verdict in verdicts:
        if isinstance(verdict, bool):
            if verdict != every:
                return verdict
        elif isinstance(result, bool):
            result = verdict
        else:
            result = (result & verdict) if every else (result | verdict)
    return result


def _taken(columns: Mapping[str, ArrayLike], names: frozenset[str]) -> tuple[dict[str, ExactColumn], tuple[int, ...]]:
    for name in sorted(names):
        if name not in columns:
            raise UnknownNameError("column", name, columns, "Pass one integer array for each variable.")
    taken = {name: column_of(columns[name], f"column {name!r}") for name in names}
    shapes = [np.shape(v) for v in columns.values()]
    try:
        return taken, np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(f"{n} {np.shape(v)}" for n, v in columns.items())
        raise UsageError(f"the columns must have one length, got {listed}.") from None


def expression_column(expr: Expr, columns: Mapping[str, ArrayLike]) -> NDArray[np.int64]:
    """Values of an expression in every row; see `Expr.columns`."""
    taken, shape = _taken(columns, expr.variables)
    if 0 in shape:
        return np.zeros(shape, dtype=np.int64)
    result = evaluate(expr, taken, _Shared(expr))
    if result.defined is not None and not np.all(result.defined):
        bad = np.argwhere(~np.broadcast_to(result.defined, shape))[0].tolist()
        raise UndefinedValueError(f"{expr} has no value in row {bad}; guard the rows or evaluate a constraint instead.")
    try:
        values = np.asarray(result.values, dtype=np.int64)
    except OverflowError:
        raise IntegerOverflowError(f"{expr} leaves 64 bits in some row; evaluate it with .value({{...}}).") from None
    return np.array(np.broadcast_to(values, shape))


def constraint_column(constraint: c.Constraint, columns: Mapping[str, ArrayLike]) -> BoolArray:
    """Whether a constraint holds, in every row; see `Constraint.holds_columns`."""
    taken, shape = _taken(columns, constraint.variables)
    if 0 in shape:
        return np.zeros(shape, dtype=bool)
    return np.array(np.broadcast_to(np.asarray(test(constraint, taken), dtype=bool), shape))


def rows_with_value(
    expr: Expr, columns: Mapping[str, NDArray[Any]], num_rows: int
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Rows of columns of integers in which an expression has a value, and the values there."""
    result = evaluate(expr, {name: column_of(column) for name, column in columns.items()})
    values = np.broadcast_to(np.asarray(result.values), (num_rows,))
    if result.defined is None:
        return np.arange(num_rows), values
    rows = np.flatnonzero(np.broadcast_to(result.defined, (num_rows,)))
    return rows, values[rows]
