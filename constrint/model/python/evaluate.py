"""Python's own answer to part of a restriction, for given values of the parameters: what decides where floats round.

A tree of `ast` becomes nested functions of the values. Only what is listed here is known: numbers, text, `None`, lists,
operators, comparisons, `and or not`, `if else`, and a few functions of Python. Nothing else can be reached, no name
is looked up anywhere, and numbers stay within bounds.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from constrint.model.intmath import MAX_BITS

Row = Sequence[Any]
Function = Callable[[Row], Any]

#: What Python raises where an expression has no value; a comparison with such an expression in it is false.
NO_VALUE: Final = (ZeroDivisionError, OverflowError, TypeError, ValueError)


class Refused(Exception):
    """Raised for what is not known here; `node` is where it stands."""

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


#: The operators of numbers: their signs, and what they do.
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
        places: Where in a row the value of each parameter stands.
        name_of: The parameter that a node names; None for a node that names none.

    Raises:
        Refused: For what a restriction cannot hold.
    """

    def build(node: ast.expr) -> Function:
        name = name_of(node)
        if name is not None:
            return operator.itemgetter(places[name])
        maker = _MAKERS.get(type(node))
        if maker is None:
            raise Refused(node, HINTS.get(type(node), f"{type(node).__name__} is not supported in a restriction"))
        return maker(node, build)

    return build(node)


Build = Callable[[ast.expr], Function]


def _constant(node: ast.Constant, build: Build) -> Function:
    value = node.value
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise Refused(node, f"only numbers, text and None are supported, not {type(value).__name__}")
    return lambda row: value


def _unary(node: ast.UnaryOp, build: Build) -> Function:
    operand, apply = build(node.operand), _UNARY[type(node.op)]
    return lambda row: apply(operand(row))


def _binary(node: ast.BinOp, build: Build) -> Function:
    entry = ARITHMETIC.get(type(node.op))
    if entry is None:
        raise Refused(node, "this operator is not supported")
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
            raise Refused(node, HINTS[type(op)])
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
    """A range is only looked into: nothing runs along it."""
    assert isinstance(node, ast.Call)
    if not 1 <= len(node.args) <= 3:
        raise Refused(node, "range takes one to three numbers")
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
        raise Refused(node, f"this call is not supported; only {', '.join(CALLS)} and, after `in`, range are")
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
