"""Constraints as numbers in postfix order, the form in which the compiled core takes them.

Every operation is three numbers: its place in `OPERATIONS`, how many operands it takes off the stack, and a value
(a variable's place, a number, or how many listed numbers follow).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from constrint.model.constraint import AllOf, AnyOf, Comparison, Constraint, Divides, Implies, IsIn, Not
from constrint.model.expr import Const, Expr, Operation, Var

# The order is that of `Op` in the core's model.hpp.
OPERATIONS: Final = (
    *("var", "const", "add", "mul", "neg", "abs", "floordiv", "ceildiv", "div", "mod", "pow", "min", "max", "gcd"),
    *("lcm", "==", "!=", "<=", "<", "divides", "in list", "in range", "and", "or", "not"),
)
_CODE: Final = {name: place for place, name in enumerate(OPERATIONS)}
_VAR, _CONST, _LIST, _RANGE = _CODE["var"], _CODE["const"], _CODE["in list"], _CODE["in range"]
_AND, _OR, _NOT, _DIVIDES = _CODE["and"], _CODE["or"], _CODE["not"], _CODE["divides"]


def encode(constraint: Constraint, places: Mapping[str, int]) -> list[int]:
    """Encodes a constraint.

    Args:
        constraint: Any constraint; numbers of any size (the core declines those that it cannot hold).
        places: The place of every variable in the list of domains.
    """
    code: list[int] = []
    _condition(constraint, places, code)
    return code


def encode_expression(expr: Expr, places: Mapping[str, int]) -> list[int]:
    """Encodes an expression in the same way."""
    code: list[int] = []
    _expression(expr, places, code)
    return code


def _condition(item: Constraint, places: Mapping[str, int], code: list[int]) -> None:
    if isinstance(item, Comparison):
        op, left, right = item.op, item.left, item.right
        if op in (">=", ">"):
            op, left, right = "<=" if op == ">=" else "<", right, left
        _expression(left, places, code)
        _expression(right, places, code)
        code += (_CODE[op], 2, 0)
    elif isinstance(item, Divides):
        _expression(item.divisor, places, code)
        _expression(item.number, places, code)
        code += (_DIVIDES, 2, 0)
    elif isinstance(item, IsIn):
        _expression(item.expr, places, code)
        domain = item.domain
        if domain.listed is not None:
            code += (_LIST, 1, len(domain.listed), *sorted(domain.listed))
        else:
            code += (_RANGE, 1, 3, domain.lower, domain.upper, domain.step)
    elif isinstance(item, (AllOf, AnyOf)):
        for part in item.parts:
            _condition(part, places, code)
        code += (_AND if isinstance(item, AllOf) else _OR, len(item.parts), 0)
    elif isinstance(item, Not):
        _condition(item.part, places, code)
        code += (_NOT, 1, 0)
    else:
        assert isinstance(item, Implies)
        _condition(item.condition, places, code)
        code += (_NOT, 1, 0)
        _condition(item.consequence, places, code)
        code += (_OR, 2, 0)


def _expression(expr: Expr, places: Mapping[str, int], code: list[int]) -> None:
    if isinstance(expr, Operation):
        args = expr.args
        for arg in args:
            _expression(arg, places, code)
        code += (_CODE[expr.op], len(args), 0)
    elif isinstance(expr, Var):
        code += (_VAR, 0, places[expr.name])
    else:
        assert isinstance(expr, Const)
        code += (_CONST, 0, expr.number)
