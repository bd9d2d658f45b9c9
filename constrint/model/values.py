"""Values of a variable that are no plain integers: floats, bools, text, `None` and whatever else can be hashed.

The solver works on integers, the codes. Numbers are coded by themselves, times the least common denominator of the
variable's values, so that arithmetic on codes is exact. Other values are numbered in the order in which they were
given.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from constrint.errors import UsageError

#: Longer lists of values are refused: state a range instead.
MAX_LISTED: Final = 1 << 24


def plain(value: Any, what: str) -> Any:
    """A value as Python's own: a numpy scalar becomes the bool, int, float or text that it holds.

    Raises:
        UsageError: For a value that cannot be hashed, and for not-a-number, which equals nothing.
    """
    if type(value) in (int, bool, float, str):
        result = value
    elif hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        result = value.item()
    else:
        result = value
    try:
        hash(result)
    except TypeError:
        raise UsageError(
            f"{what} must be a value that can be hashed, got {_shown(value)} ({type(value).__name__}). "
            "Write a tuple instead of a list or an array."
        ) from None
    if _is_nan(result):
        raise UsageError(f"{what} cannot be {value!r}: it equals no value, not even itself. Leave it out.")
    return result


def _is_nan(value: object) -> bool:
    """Only a number that is none differs from itself."""
    return (isinstance(value, (float, complex)) or type(value).__name__ == "Decimal") and bool(value != value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def distinct(values: Iterable[object], what: str) -> tuple[Any, ...]:
    """Plain values in the order given, each once; equal ones such as 1, 1.0 and True count as the first of them."""
    if isinstance(values, (str, bytes)):
        raise UsageError(f"{what} must come from a list of values, got the text {values!r}.")
    if not isinstance(values, Iterable):
        raise UsageError(f"{what} must come from a list of values, got {_shown(values)} ({type(values).__name__}).")
    try:
        listed = list(itertools.islice(values, MAX_LISTED + 1))
    except TypeError:
        raise UsageError(f"{what} must come from a list of values, got {_shown(values)}.") from None
    if len(listed) > MAX_LISTED:
        raise UsageError(f"more than {MAX_LISTED} values are listed for {what}; state a range instead.")
    try:
        kept = tuple(dict.fromkeys(plain(value, what) for value in listed))
    except TypeError:
        raise UsageError(f"{what} takes values that Python can compare for equality, got {_shown(listed)}.") from None
    if not kept:
        raise UsageError(f"the list of values for {what} is empty; give at least one value.")
    return kept


def is_number(value: object) -> bool:
    """Says whether a value takes part in arithmetic: an integer, a bool, a finite float or a fraction."""
    return isinstance(value, (int, Fraction)) or (isinstance(value, float) and math.isfinite(value))


def coded(values: tuple[Any, ...]) -> tuple[tuple[int, ...], int]:
    """The codes of distinct values, and the scale: code = value * scale, or 0 where codes only number the values."""
    if not all(map(is_number, values)):
        return tuple(range(len(values))), 0
    exact = [Fraction(value) for value in values]
    scale = math.lcm(*(number.denominator for number in exact))
    return tuple(int(number * scale) for number in exact), scale


def literal(value: object) -> str:
    """Writes a value as the text language does; one that it does not know, as Python does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    return quoted(value) if isinstance(value, str) else repr(value)


def is_literal(value: object) -> bool:
    """Says whether the text language can write a value."""
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def quoted(text: str, quote: str = '"') -> str:
    """Writes text between quotes; control characters and the quote itself are escaped."""
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    if quote != '"':
        body = body.replace(quote, f"\\u{ord(quote):04x}")
    return quote + "".join(ch if ch.isprintable() else json.dumps(ch)[1:-1] for ch in body) + quote
