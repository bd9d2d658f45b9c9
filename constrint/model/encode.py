"""Constraints as numbers in postfix order, the form in which the compiled core takes them.

Every operation is three numbers: its place in `OPERATIONS`, the number of operands it pops off the stack, and a value
(a variable's place, a number, the count of listed numbers that follow, or the index of a shared operation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from constrint.model.constraint import AllOf, AnyOf, Comparison, Constraint, Divides, Implies, IsIn, Not
from constrint.model.expr import Calculation, Const, Expr, Truth, Var
from constrint.model.operations import TABLE
from constrint.model.table import InTable

# The order is that of `Op` in the core's model.hpp.
OPERATIONS: Final = (
    *("var", "const", *(rule.name for rule in TABLE), "truth", "element"),
    *("==", "!=", "<=", "<", "divides", "in list", "in range", "table", "and", "or", "not", "again"),
)
_CODE: Final = {name: place for place, name in enumerate(OPERATIONS)}
_VAR, _CONST, _LIST, _RANGE = _CODE["var"], _CODE["const"], _CODE["in list"], _CODE["in range"]
_AGAIN, _TRUTH, _TABLE = _CODE["again"], _CODE["truth"], _CODE["table"]
_AND, _OR, _NOT, _DIVIDES = _CODE["and"], _CODE["or"], _CODE["not"], _CODE["divides"]


def encode(constraint: Constraint, places: Mapping[str, int]) -> list[int]:
    """Encodes a constraint.

    Args:
        constraint: Any constraint; numbers of any size (the core declines those beyond its range).
        places: The place of every variable in the list of domains.
    """
    encoder = _Encoder(places)
    encoder.condition(constraint)
    return encoder.code


def encode_all(constraints: Sequence[Constraint], places: Mapping[str, int]) -> list[int]:
    """Encode the conjunction of constraints as one condition; shared subexpressions are written once."""
    encoder = _Encoder(places)
    encoder.all_of(constraints)
    return encoder.code


def encode_expression(expr: Expr, places: Mapping[str, int]) -> list[int]:
    """Encodes an expression in the same way."""
    encoder = _Encoder(places)
    encoder.expression(expr)
    return encoder.code


class _Encoder:
    """Writes operations in postfix order; a shared one is written once."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self.places = places
        self.code: list[int] = []
        self._count = 0
        self._written: dict[int, int] = {}

    def _add(self, operation: int, operands: int, value: int) -> None:
        self.code += (operation, operands, value)
        self._count += 1

    def condition(self, item: Constraint) -> None:
        """Writes a condition after its operands."""
        if isinstance(item, Comparison):
            op, left, right = item.op, item.left, item.right
            if op in (">=", ">"):
                op, left, right = "<=" if op == ">=" else "<", right, left
            self.expression(left)
            self.expression(right)
            self._add(_CODE[op], 2, 0)
        elif isinstance(item, Divides):
            self.expression(item.divisor)
            self.expression(item.number)
            self._add(_DIVIDES, 2, 0)
        elif isinstance(item, IsIn):
            self.expression(item.expr)
            domain = item.domain
            if domain.listed is not None:
                self._add(_LIST, 1, len(domain.listed))
                self.code += sorted(domain.listed)
            else:
                self._add(_RANGE, 1, 3)
                self.code += (domain.lower, domain.upper, domain.step)
        elif isinstance(item, InTable):
            for expr in item.exprs:
                self.expression(expr)
            self._add(_TABLE, len(item.exprs), len(item.rows) * len(item.exprs))
            for row in item.rows:
                self.code += row
        elif isinstance(item, AllOf):
            self.all_of(item.parts)
        elif isinstance(item, AnyOf):
            for part in item.parts:
                self.condition(part)
            self._add(_OR, len(item.parts), 0)
        elif isinstance(item, Not):
            self.condition(item.part)
            self._add(_NOT, 1, 0)
        else:
            assert isinstance(item, Implies)
            self.condition(item.condition)
            self._add(_NOT, 1, 0)
            self.condition(item.consequence)
            self._add(_OR, 2, 0)

    def all_of(self, parts: Sequence[Constraint]) -> None:
        """Writes conditions and their conjunction."""
        for part in parts:
            self.condition(part)
        self._add(_AND, len(parts), 0)

    def expression(self, expr: Expr) -> None:
        """Writes an expression after its operands."""
        if isinstance(expr, Calculation):
            written = self._written.get(id(expr))
            if written is not None:
                self._add(_AGAIN, 0, written)
                return
            args = expr.args
            for arg in args:
                self.expression(arg)
            self._written[id(expr)] = self._count
            self._add(_CODE[expr.op], len(args), 0)
        elif isinstance(expr, Truth):
            written = self._written.get(id(expr))
            if written is not None:
                self._add(_AGAIN, 0, written)
                return
            self.condition(expr.condition)
            self._written[id(expr)] = self._count
            self._add(_TRUTH, 1, 0)
        elif isinstance(expr, Var):
            self._add(_VAR, 0, self.places[expr.name])
        else:
            assert isinstance(expr, Const)
            self._add(_CONST, 0, expr.number)
