"""Spaces in T1, the input format of the autotuning community (github.com/odgaard/TuningSchema, version 1.0.0).

Of a T1 file only the space is read: the parameters with their values, and the conditions, which are Python expressions.
Values are text such as `[1, 2, 4]`, `list(range(1, 9))` or `[2**i for i in range(5)]`; they are read with `ast` and
never evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from constrint.errors import UsageError

#: Key that distinguishes a T1 file from other JSON.
SPACE: Final = "ConfigurationSpace"
#: The longest text of values, and the most numbers of one range.
MAX_TEXT, MAX_VALUES = 1_000_000, 100_000
#: The longest arithmetic in a list, in nodes of its syntax tree.
MAX_NODES: Final = 64
#: The schema's types, as Python reads their values.
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,),
    "uint": (int,),
    "float": (int, float),
    "bool": (bool, int),
    "string": (str,),
}


_ARITHMETIC: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def space_of_t1(document: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The space of a T1 document in our form: name, params and restrictions.

    Args:
        document: The file as JSON.
        source: Name of the file in errors.

    Raises:
        UsageError: When a parameter or a condition is not as the schema says; names it.
    """
    space = document[SPACE]
    parameters = _get(space, "TuningParameters", list, f"{source}: {SPACE}")
    params: dict[str, list[object]] = {}
    for number, parameter in enumerate(parameters):
        where = f"{source}: {SPACE}.TuningParameters[{number}]"
        name = _get(parameter, "Name", str, where)
        if name in params:
            raise UsageError(f"{where}: the parameter {name!r} is given twice.")
        params[name] = _values(_get(parameter, "Values", str, where), _get(parameter, "Type", str, where), where)
    conditions = space.get("Conditions", [])
    if not isinstance(conditions, list):
        raise UsageError(f"{source}: {SPACE}.Conditions must be a list.")
    restrictions = [
        _get(condition, "Expression", str, f"{source}: {SPACE}.Conditions[{number}]")
        for number, condition in enumerate(conditions)
    ]
    return {"name": _name(document), "params": params, "restrictions": restrictions}


def _name(document: Mapping[str, Any]) -> str:
    """Name of the document or of its kernel."""
    for part, key in (("General", "BenchmarkName"), ("KernelSpecification", "KernelName")):
        inner = document.get(part)
        if isinstance(inner, dict) and isinstance(inner.get(key), str):
            return str(inner[key])
    return ""


def _get(value: Any, key: str, kind: type, where: str) -> Any:
    member = value.get(key) if isinstance(value, dict) else None
    if not isinstance(member, kind):
        expected = "a list" if kind is list else "text"
        raise UsageError(f"{where}: {key} must be {expected}, got {str(member)[:60]!r}.")
    return member


def _values(text: str, kind: str, where: str) -> list[object]:
    """The values of a parameter: a list, a tuple, a range, the list of a range, or arithmetic on one."""
    if kind not in _TYPES:
        raise UsageError(f"{where}: the type {kind[:40]!r} is none of {', '.join(_TYPES)}.")
    try:
        if len(text) > MAX_TEXT:
            raise ValueError
        values = _read(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError):
        raise UsageError(
            f"{where}: the values {text[:60]!r} must be a list such as [1, 2, 4], list(range(1, 9)) or "
            f"[2**i for i in range(5)]; at most {MAX_VALUES:,} numbers of a range are read."
        ) from None
    wrong = next((value for value in values if not isinstance(value, _TYPES[kind])), None)
    if wrong is not None:
        raise UsageError(f"{where}: the value {str(wrong)[:40]!r} is not of the type {kind}.")
    return values


def _read(node: ast.expr) -> list[object]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) <= 3 and not node.keywords:
        if node.func.id == "list" and len(node.args) == 1:
            return _read(node.args[0])
        if node.func.id == "range":
            numbers = range(*(ast.literal_eval(argument) for argument in node.args))
            if len(numbers) <= MAX_VALUES:
                return list(numbers)
    elif isinstance(node, ast.List | ast.Tuple):
        return list(ast.literal_eval(node))
    elif isinstance(node, ast.ListComp) and len(node.generators) == 1:
        (loop,) = node.generators
        is_short = sum(1 for _ in ast.walk(node.elt)) <= MAX_NODES
        if isinstance(loop.target, ast.Name) and not loop.ifs and not loop.is_async and is_short:
            return [_number(node.elt, loop.target.id, value) for value in _read(loop.iter)]
    raise ValueError


def _number(node: ast.expr, name: str, value: object) -> Any:
    """Arithmetic on one variable: `128 + 64 * i`, `2**i`."""
    if isinstance(node, ast.Name) and node.id == name and isinstance(value, (int, float)):
        return value
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, name, value)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _number(node.left, name, value), _number(node.right, name, value)
        # A power of this size still fits where every number of ours does.
        if not isinstance(node.op, ast.Pow) or (abs(left) <= 1024 and 0 <= right <= 63):
            return _ARITHMETIC[type(node.op)](left, right)
    raise ValueError
