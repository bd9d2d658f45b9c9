"""Python's own arithmetic on a comparison of a restriction, tried on all values: the judge of rounded quotients.

Walks an `ast` tree of integers, names, arithmetic and `min max abs` that was accepted before; runs no code.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from constrint.model.constraint import OPERATORS, Constraint
from constrint.model.domain import Domain

#: The operators of numbers: their signs, and what they do.
ARITHMETIC: Final[dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_CALLS: Final[dict[str, Callable[..., Any]]] = {"min": min, "max": max, "abs": abs}


def python_value(node: ast.expr, assignment: Mapping[str, int]) -> Any:
    """The number that Python computes: an int or a float."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return assignment[node.id]
    if isinstance(node, ast.UnaryOp):
        value = python_value(node.operand, assignment)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = python_value(node.left, assignment), python_value(node.right, assignment)
        return ARITHMETIC[type(node.op)][1](left, right)
    if isinstance(node, (ast.Tuple, ast.List)):
        return [python_value(item, assignment) for item in node.elts]
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _CALLS[node.func.id](*(python_value(arg, assignment) for arg in node.args))


def first_difference(
    constraint: Constraint, sides: Sequence[ast.expr], sign: str, domains: Mapping[str, Domain]
) -> dict[str, int] | None:
    """First assignment for which Python and the constraint disagree; a single side is compared with 0."""
    names = sorted({n.id for side in sides for n in ast.walk(side) if isinstance(n, ast.Name)} & domains.keys())
    for values in itertools.product(*(domains[name] for name in names)):
        assignment = dict(zip(names, values, strict=True))
        try:
            numbers = [python_value(side, assignment) for side in sides]
            expected = bool(OPERATORS[sign](numbers[0], numbers[1] if len(numbers) > 1 else 0))
        except (ZeroDivisionError, OverflowError):
            expected = False
        if constraint.holds(assignment) is not expected:
            return assignment
    return None
