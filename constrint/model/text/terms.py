"""What an expression of the text language may be, beside expressions and constraints of the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.ratio import Ratio, Symbol


class Literal(NamedTuple):
    """A value that is no number: text or `none`."""

    value: str | None


class Listed(NamedTuple):
    """Several values in brackets, `(x, y)`: what a table speaks of."""

    parts: tuple[Any, ...]


Value = e.Expr | c.Constraint | Ratio | Symbol | Literal | Listed
Number = e.Expr | Ratio


def kind_of(value: Value) -> str:
    """Names what stands somewhere in a message."""
    if isinstance(value, Literal):
        return f"`{'none' if value.value is None else value.value[:40]}` is a fixed value"
    if isinstance(value, Listed):
        return "several values in brackets stand here, which only `in` takes"
    if isinstance(value, Symbol):
        return f"the values of `{value.name}` are no numbers"
    if isinstance(value, Ratio):
        return f"`{shown(value.num)}` over {value.den} has fractions" if value.num.variables else "this is a fraction"
    return f"`{shown(value)}` is a {'condition' if isinstance(value, c.Constraint) else 'number'}"


def shown(value: e.Expr | c.Constraint | None) -> str:
    """Writes something in a message, shortened."""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
