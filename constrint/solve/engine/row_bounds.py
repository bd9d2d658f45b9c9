"""Row-by-row interval reasoning: which partial assignments can still satisfy a comparison.

A variable that is not assigned yet stands for the range of its values. The answer is sound: a row that is ruled out has
no completion that satisfies the comparison. Example: `2 * x + y <= 10` rules out x = 6 where y is at least 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.model import Comparison, Const, Element, Expr, Operation, Truth, Var
from constrint.model.columns import MAX, MIN, Column, evaluate, wide
from constrint.model.intervals import Interval
from constrint.model.operations import BINARY, UNARY, fold


class _Unknown(Exception):
    """Raised where no useful bounds exist; the comparison then rules nothing out."""


class _Range(NamedTuple):
    """Bounds of an expression per row, and over all rows."""

    low: Any
    high: Any
    bounds: Interval


def may_hold(rule: Comparison, assigned: Mapping[str, Column], open_bounds: Mapping[str, Interval]) -> Any:
    """Marks the rows whose completions may satisfy `rule`; None where nothing can be said."""
    try:
        left = _range(rule.left, assigned, open_bounds)
        right = _range(rule.right, assigned, open_bounds)
    except _Unknown:
        return None
    op = rule.op
    if op in (">=", ">"):
        left, right, op = right, left, "<=" if op == ">=" else "<"
    if op == "<=":
        return left.low <= right.high
    if op == "<":
        return left.low < right.high
    if op == "==":
        return np.logical_and(left.low <= right.high, right.low <= left.high)
    return None


def _range(expr: Expr, assigned: Mapping[str, Column], open_bounds: Mapping[str, Interval]) -> _Range:
    if isinstance(expr, Const):
        return _Range(expr.number, expr.number, _small((expr.number, expr.number)))
    if isinstance(expr, Var):
        column = assigned.get(expr.name)
        if column is not None:
            return _Range(column.values, column.values, column.bounds)
        low, high = open_bounds[expr.name]
        return _Range(low, high, (low, high))
    if isinstance(expr, Truth) and not all(n in assigned for n in expr.variables):
        return _Range(0, 1, (0, 1))
    if isinstance(expr, Element) and not all(n in assigned for n in expr.variables):
        raise _Unknown
    assert isinstance(expr, (Operation, Truth))
    if all(n in assigned for n in expr.variables):
        column = evaluate(expr, assigned)
        return _Range(column.values, column.values, _small(column.bounds))
    assert isinstance(expr, Operation)
    return fold(expr.op, [_range(a, assigned, open_bounds) for a in expr.args], _unary, _binary)


def _small(bounds: Interval) -> Interval:
    if bounds[0] <= MIN // 4 or bounds[1] >= MAX // 4:
        raise _Unknown
    return bounds


def _unary(op: str, a: _Range) -> _Range:
    bounds = UNARY[op].bounds(_small(a.bounds))
    if op == "neg":
        return _Range(-a.high, -a.low, bounds)
    if a.bounds[0] >= 0:
        return a
    return _Range(*bounds, bounds)


def _binary(op: str, a: _Range, b: _Range) -> _Range:
    # A small result does not make its operands small: min(x, 2 ^ 70).
    known = BINARY[op].bounds(_small(a.bounds), _small(b.bounds))
    if known is None:
        raise _Unknown
    bounds = _small(known)
    low_a, low_b = wide(a.low), wide(b.low)
    # Where an operand is known exactly its two bounds are one array.
    high_a = low_a if a.high is a.low else wide(a.high)
    high_b = low_b if b.high is b.low else wide(b.high)
    if op == "add":
        low = low_a + low_b
        return _Range(low, low if high_a is low_a and high_b is low_b else high_a + high_b, bounds)
    if op == "mul":
        if a.bounds[0] >= 0 and b.bounds[0] >= 0:
            low = low_a * low_b
            return _Range(low, low if high_a is low_a and high_b is low_b else high_a * high_b, bounds)
        corners = [low_a * low_b, low_a * high_b, high_a * low_b, high_a * high_b]
        return _Range(_fold(np.minimum, corners), _fold(np.maximum, corners), bounds)
    if op in ("min", "max"):
        function = np.minimum if op == "min" else np.maximum
        return _Range(function(low_a, low_b), function(high_a, high_b), bounds)
    if op == "floordiv" and a.bounds[0] >= 0 and b.bounds[0] > 0:
        return _Range(low_a // high_b, high_a // low_b, bounds)
    if op == "ceildiv" and a.bounds[0] >= 0 and b.bounds[0] > 0:
        return _Range(-(-low_a // high_b), -(-high_a // low_b), bounds)
    return _Range(*bounds, bounds)


def _fold(function: Any, values: list[Any]) -> NDArray[Any]:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return np.asarray(result)
