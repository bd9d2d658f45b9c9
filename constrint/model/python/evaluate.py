"""Evaluates parts of a restriction as Python would, for all values of their parameters, where floats round."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.operations import MAX_BITS
from constrint.model.table import table_of

Row = Sequence[Any]
Function = Callable[[Row], Any]

#: Exceptions of Python for expressions without a value; a comparison that contains one is false.
NO_VALUE: Final = (ZeroDivisionError, OverflowError, TypeError, ValueError)


class NotEvaluated(Exception):
    """Raised for an unsupported node of the syntax tree, `node`."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node, self.message = node, message


class TooLong(Exception):
    """Raised where a number or a text would become too long."""


def power(base: Any, exponent: Any) -> Any:
    """`base ** exponent` within bounds."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 0:
        bits = (abs(base).bit_length() - 1) * exponent
        if bits > MAX_BITS:
            raise TooLong(f"a power of about {bits} bits; the limit is {MAX_BITS}")
    return base**exponent


def _product(left: Any, right: Any) -> Any:
    if isinstance(left, (str, list, tuple)) or isinstance(right, (str, list, tuple)):
        raise TooLong("text or a list is repeated")
    return left * right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise TooLong("text is formatted by `%`")
    return left % right


def _rounded(value: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > 400:
        raise TooLong(f"rounding to {digits} digits")
    return round(value, digits)


def _shifted(left: Any, right: Any) -> Any:
    if isinstance(right, int) and right > MAX_BITS:
        raise TooLong(f"a shift by {right} bits; the limit is {MAX_BITS}")
    return left << right


#: Python's operators on numbers, by their nodes: sign and function.
ARITHMETIC: Final[dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", _product),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", _remainder),
    ast.Pow: ("**", power),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", _shifted),
    ast.RShift: (">>", operator.rshift),
}
_COMPARED: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
#: The functions of Python that a restriction may call.
CALLS: Final[dict[str, Callable[..., Any]]] = {
    **{f.__name__: f for f in (min, max, abs, sum, int, float, bool, any, all, len)},
    "round": _rounded,
    "pow": power,
}
HINTS: Final[dict[type, str]] = {
    ast.Attribute: "attributes are not supported; use plain parameter names",
    ast.Subscript: 'subscripts are not supported, except p["name"] for a parameter',
    ast.NamedExpr: "`:=` is not supported",
    ast.Is: "`is` is supported with None, True and False only; write ==",
    ast.IsNot: "`is not` is supported with None, True and False only; write !=",
}


def function_of(node: ast.expr, places: Mapping[str, int], name_of: Callable[[ast.expr], str | None]) -> Function:
    """The function of a row of values that computes what Python computes.

    Args:
        node: The expression.
        places: Index of each parameter's value in a row.
        name_of: The parameter that a node names; None for a node that names none.

    Raises:
        NotEvaluated: For a node that a restriction cannot contain.
    """

    def build(node: ast.expr) -> Function:
        name = name_of(node)
        if name is not None:
            return operator.itemgetter(places[name])
        maker = _MAKERS.get(type(node))
        if maker is None:
            raise NotEvaluated(node, HINTS.get(type(node), f"{type(node).__name__} is not supported in a restriction"))
        return maker(node, build)

    return build(node)


Build = Callable[[ast.expr], Function]


def _constant(node: ast.Constant, build: Build) -> Function:
    value = node.value
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise NotEvaluated(node, f"only numbers, text and None are supported, not {type(value).__name__}")
    return lambda row: value


def _unary(node: ast.UnaryOp, build: Build) -> Function:
    operand, apply = build(node.operand), _UNARY[type(node.op)]
    return lambda row: apply(operand(row))


def _binary(node: ast.BinOp, build: Build) -> Function:
    entry = ARITHMETIC.get(type(node.op))
    if entry is None:
        raise NotEvaluated(node, "this operator is not supported")
    left, right, apply = build(node.left), build(node.right), entry[1]
    return lambda row: apply(left(row), right(row))


def _every(node: ast.BoolOp, build: Build) -> Function:
    parts = [build(value) for value in node.values]
    wanted = isinstance(node.op, ast.Or)

    def decide(row: Row) -> Any:
        found = None
        for part in parts:
            found = part(row)
            if bool(found) is wanted:
                break
        return found

    return decide


def _compare(node: ast.Compare, build: Build) -> Function:
    sides = [node.left, *node.comparators]
    for op, left, right in zip(node.ops, sides, node.comparators, strict=False):
        if isinstance(op, (ast.Is, ast.IsNot)) and not any(
            isinstance(side, ast.Constant) and (side.value is None or isinstance(side.value, bool))
            for side in (left, right)
        ):
            raise NotEvaluated(node, HINTS[type(op)])
    first = build(node.left)
    steps = []
    for op, right in zip(node.ops, node.comparators, strict=True):
        is_range = isinstance(op, (ast.In, ast.NotIn)) and is_call(right, "range")
        steps.append((_COMPARED[type(op)], _range(right, build) if is_range else build(right)))

    def decide(row: Row) -> bool:
        value = first(row)
        for apply, other in steps:
            following = other(row)
            if not apply(value, following):
                return False
            value = following
        return True

    return decide


def is_call(node: ast.expr, name: str) -> bool:
    """Says whether a node is a plain call of a function of that name: `name(a, b)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
        and not node.keywords
        and not any(isinstance(arg, ast.Starred) for arg in node.args)
    )


def _range(node: ast.expr, build: Build) -> Function:
    """Represent a range by its membership test, without listing it."""
    assert isinstance(node, ast.Call)
    if not 1 <= len(node.args) <= 3:
        raise NotEvaluated(node, "range takes one to three numbers")
    parts = [build(arg) for arg in node.args]
    return lambda row: range(*(part(row) for part in parts))


def _listed(node: Any, build: Build) -> Function:
    parts = [build(item) for item in node.elts]
    return lambda row: [part(row) for part in parts]


def _chosen(node: ast.IfExp, build: Build) -> Function:
    test, yes, no = build(node.test), build(node.body), build(node.orelse)
    return lambda row: yes(row) if test(row) else no(row)


def _call(node: ast.Call, build: Build) -> Function:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in CALLS or not is_call(node, name):
        raise NotEvaluated(node, f"this call is not supported; only {', '.join(CALLS)} and, after `in`, range are")
    parts, apply = [build(arg) for arg in node.args], CALLS[name]
    return lambda row: apply(*(part(row) for part in parts))


_MAKERS: Final[dict[type, Callable[[Any, Build], Function]]] = {
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.BoolOp: _every,
    ast.Compare: _compare,
    ast.Tuple: _listed,
    ast.List: _listed,
    ast.Set: _listed,
    ast.IfExp: _chosen,
    ast.Call: _call,
}


MAX_NODES: Final = 200


@dataclass(slots=True)
class Trials:
    """Steps left for conditions that are tried on all values."""

    left: int = 2_000_000

    def spend(self, node: ast.expr, num_assignments: int) -> bool:
        """Spend the steps of one condition; False when too few remain."""
        nodes = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
        # A power of integers may be long.
        powers = sum(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow) and not _short(n.right) for n in nodes)
        steps = (len(nodes) + 50 * powers) * num_assignments
        affordable = steps <= self.left and len(nodes) <= MAX_NODES
        self.left -= steps if affordable else 0
        return affordable


def _short(exponent: ast.expr) -> bool:
    return isinstance(exponent, ast.Constant) and isinstance(exponent.value, (int, float)) and exponent.value <= 8


@dataclass(frozen=True, slots=True)
class Answers:
    """Python's results for every combination of the values of some parameters.

    Attributes:
        names: The parameters.
        codes: The combinations, as the integers that code the values.
        holds: Whether the condition holds, for each.
        raised: The exception of the first combination where all combinations raised; "" otherwise.
    """

    names: tuple[str, ...]
    codes: list[tuple[int, ...]]
    holds: list[bool]
    raised: str = ""

    def constraint(self, variable: Callable[[str], e.Expr]) -> c.Constraint:
        """The condition as a table of allowed or of forbidden combinations, whichever is shorter."""
        allowed = sum(self.holds)
        if allowed == len(self.holds):
            return c.AllOf(())
        exprs = tuple(variable(name) for name in self.names)
        listing = 2 * allowed <= len(self.holds)
        rows = [codes for codes, holds in zip(self.codes, self.holds, strict=True) if holds is listing]
        return table_of(exprs, rows) if listing else c.negate(table_of(exprs, rows))


def answers(function: Function, names: Sequence[str], domains: Mapping[str, Domain]) -> Answers:
    """Evaluate a condition in Python for every combination; where Python raises, the condition is false.

    Raises:
        TooLong: Where a number would become too long.
    """
    chosen = [domains[name] for name in names]
    codes = list(itertools.product(*chosen))
    holds: list[bool] = []
    first = ""
    raised = 0
    for row in itertools.product(*(domain.labels or domain for domain in chosen)):
        try:
            holds.append(bool(function(row)))
        except TooLong:
            raise
        except NO_VALUE as error:
            raised += 1
            holds.append(False)
            shown = ", ".join(f"{name} = {value!r}" for name, value in zip(names, row, strict=True))
            first = first or f"{type(error).__name__}: {error}{' for ' if shown else ''}{shown}"
    return Answers(tuple(names), codes, holds, first if raised == len(holds) else "")


def combinations(names: Sequence[str], domains: Mapping[str, Domain]) -> int:
    """Number of combinations of some parameters' values."""
    return math.prod(domains[name].size for name in names)
