"""Choosing one of several items by an index, and what that means for whether expressions have values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from constrint.errors import UndefinedValueError, UsageError
from constrint.model import intmath
from constrint.model.expr import Expr, Operation, add, as_expr, mul, neg


class Element(Operation):
    """The item that an index selects, counted from 0; no value where there is no such item.

    Only the selected item is looked at: that another one has no value does not matter.
    """

    __slots__ = ()

    def __init__(self, args: tuple[Expr, ...]) -> None:
        super().__init__("element", args)

    def value(self, assignment: Mapping[str, int]) -> int:
        """Evaluates the index, then the item."""
        at = self._args[0].value(assignment)
        if not 0 <= at < len(self._args) - 1:
            raise UndefinedValueError(f"there is no item {intmath.shown(at)} among {len(self._args) - 1}")
        return self._args[1 + at].value(assignment)


def rebuilt(expr: Operation, args: tuple[Expr, ...]) -> Expr:
    """The same operation on other operands; sums and products stay flat."""
    if expr.op in ("add", "mul"):
        return add(*args) if expr.op == "add" else mul(*args)
    if isinstance(expr, Element):
        return Element(args)
    return neg(args[0]) if expr.op == "neg" else Operation(expr.op, args)


def element(index: object, items: Iterable[object]) -> Expr:
    """The item at an index, counted from 0: `element(i, [10, 20, x]) <= 20`.

    There is no value where the index is negative or beyond the last item.
    """
    listed = tuple(as_expr(item) for item in items)
    if not listed:
        raise UsageError("element needs at least one item.")
    return Element((as_expr(index), *listed))
