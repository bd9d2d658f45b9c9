"""Constraints composed of others: equivalence, exclusive or, counting; choice of an item by index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from constrint.errors import UndefinedValueError, UsageError
from constrint.model import operations
from constrint.model.constraint import Comparison, Constraint, all_of, any_of, as_condition, negate
from constrint.model.expr import Calculation, Expr, Node, Truth, add, as_expr, mul, neg

_SIGNS = {"bitand": "&", "bitor": "|", "bitxor": "^"}


def listed_items(items: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments, or the items of the only argument where that is a collection."""
    if len(items) == 1 and isinstance(items[0], Iterable) and not isinstance(items[0], (Node, str, bytes)):
        return tuple(items[0])
    return items


def iff(first: object, second: object) -> Constraint:
    """Build the constraint that both conditions hold or neither does, `(x > 1) == (y > 1)`."""
    return _agree(first, "==", second, "iff")


def xor(first: object, second: object) -> Constraint:
    """Build the constraint that exactly one of two conditions holds, `(x > 1) ^ (y > 1)`."""
    return _agree(first, "!=", second, "xor")


def _agree(first: object, op: str, second: object, where: str) -> Constraint:
    return Comparison(Truth(as_condition(first, where)), op, Truth(as_condition(second, where)))


def count(*conditions: object) -> Expr:
    """Count the conditions that hold, as an expression: `count(x > 1, y > 1, z > 1) <= 2`."""
    held = [Truth(as_condition(c, "count")) for c in listed_items(conditions)]
    return add(*held) if held else as_expr(0)


def if_then_else(condition: object, then: object, otherwise: object) -> Any:
    """Select one of two conditions or of two numbers.

    Args:
        condition: The condition that selects.
        then: Value where the condition holds.
        otherwise: Value elsewhere; a number exactly if `then` is one. The value not selected may be undefined.
    """
    test = as_condition(condition, "if_then_else")
    branches = (then, otherwise)
    if all(isinstance(b, Constraint) or getattr(b, "is_condition", False) for b in branches):
        yes, no = (as_condition(b, "if_then_else") for b in branches)
        return any_of(all_of(test, yes), all_of(negate(test), no))
    return Element((Truth(test), as_expr(otherwise), as_expr(then)))


def junction(sign: str, left: object, right: object) -> Constraint:
    """Join conditions by `& | ^ ~`; at least one side is a condition."""
    if sign == "not":
        return negate(as_condition(left, "~"))
    where = f"`{_SIGNS[sign]}` beside a condition"
    first, second = as_condition(left, where), as_condition(right, where)
    if sign == "bitxor":
        return xor(first, second)
    return (all_of if sign == "bitand" else any_of)(first, second)


class Element(Calculation):
    """The item at an index, counted from 0; undefined for an index out of range.

    Only the selected item is evaluated: others may be undefined.
    """

    __slots__ = ()

    def __init__(self, args: tuple[Expr, ...]) -> None:
        super().__init__("element", args)

    def value(self, assignment: Mapping[str, int]) -> int:
        """Evaluates the index, then the item."""
        at = self._args[0].value(assignment)
        if not 0 <= at < len(self._args) - 1:
            raise UndefinedValueError(f"there is no item {operations.shown(at)} among {len(self._args) - 1}")
        return self._args[1 + at].value(assignment)


def rebuilt(expr: Calculation, args: tuple[Expr, ...]) -> Expr:
    """Rebuild an operation on other operands; sums and products stay flat."""
    if expr.op in ("add", "mul"):
        return add(*args) if expr.op == "add" else mul(*args)
    if isinstance(expr, Element):
        return Element(args)
    return neg(args[0]) if expr.op == "neg" else Calculation(expr.op, args)


def element(index: object, items: Iterable[object]) -> Expr:
    """Select the item at an index, counted from 0: `element(i, [10, 20, x]) <= 20`.

    Of two dimensions it takes two indices and a list of rows: `element((i, j), [[10, 20], [30, x]])`. The expression is
    undefined where an index is negative or beyond the last item.
    """
    if isinstance(index, tuple):
        first, *others = index
        if others:
            place = others[0] if len(others) == 1 else tuple(others)
            return element(first, [element(place, row) for row in items])  # type: ignore[arg-type]
        index = first
    listed = tuple(as_expr(item) for item in items)
    if not listed:
        raise UsageError("element needs at least one item.")
    return Element((as_expr(index), *listed))
