"""Expressions of a launch: over sizes and strides of the call's tensors, in the constraint language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from constrint.errors import ConstrintError, UnknownNameError
from constrint.model.constraint import Comparison, Constraint
from constrint.model.expr import Expr
from constrint.model.text.parse import parse_constraint
from constrint.propose.wire import TensorLayout

#: Longest expression.
MAX_EXPRESSION = 400
Named = TypeVar("Named", Expr, Constraint)


def names_of(tensor: str, num_dimensions: int) -> tuple[str, ...]:
    """The names that a tensor brings: its sizes, then its strides in elements."""
    places = range(num_dimensions)
    return (*(f"{tensor}_size{place}" for place in places), *(f"{tensor}_stride{place}" for place in places))


def values_of(layouts: Iterable[TensorLayout]) -> dict[str, int]:
    """Sizes and strides of a call by their names."""
    values: dict[str, int] = {}
    for layout in layouts:
        numbers = (*layout.shape, *layout.strides)
        values |= dict(zip(names_of(layout.name, len(layout.shape)), numbers, strict=True))
    return values


def read_number(text: str, names: Sequence[str]) -> Expr:
    """An expression over these names.

    Raises:
        ConstrintError: When it is none, or mentions other names.
    """
    return _checked_names(_expression(text), names)


def read_condition(text: str, names: Sequence[str]) -> Constraint:
    """A condition over these names.

    Raises:
        ConstrintError: When it is none, or mentions other names.
    """
    return _checked_names(_condition(text), names)


def number(text: str, values: Mapping[str, int]) -> int:
    """The value of an expression."""
    return read_number(text, tuple(values)).value(values)


def holds(text: str, values: Mapping[str, int]) -> bool:
    """Whether a condition holds; an empty one does."""
    return not text or read_condition(text, tuple(values)).holds(values)


@lru_cache(maxsize=1024)
def _expression(text: str) -> Expr:
    # The language reads conditions: what stands on the right of this one is the expression.
    condition = _condition(f"0 == ({text})")
    if not isinstance(condition, Comparison) or text.count("(") != text.count(")"):
        raise ConstrintError(f"{text!r} is no number; write one of integers and names")
    return condition.right


@lru_cache(maxsize=1024)
def _condition(text: str) -> Constraint:
    if len(text) > MAX_EXPRESSION:
        raise ConstrintError(f"an expression has {len(text)} characters; at most {MAX_EXPRESSION} are read")
    return parse_constraint(text)


def _checked_names(parsed: Named, names: Sequence[str]) -> Named:
    for name in sorted(parsed.variables):
        if name not in names:
            raise UnknownNameError("size or stride", name, names)
    return parsed
