"""Exact arithmetic on Python integers: what every operation of the expression language means.

An operation that has no value (division by zero, an inexact `/`, a negative exponent) raises
`UndefinedValueError`; a number longer than `MAX_BITS` bits raises `LimitReachedError`. Nothing here knows
numpy.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Final

from constrint.errors import LimitReachedError, UndefinedValueError, UsageError

MAX_BITS: Final = 65_536
# Numbers that are written out (constants, domains) stay below what Python converts to decimal text.
MAX_WRITTEN_BITS: Final = 13_000
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def as_int(value: Any, what: str) -> int:
    """Returns `value` as a Python int; refuses bools, floats and everything else that is no integer."""
    if type(value) is int:
        if value.bit_length() > MAX_WRITTEN_BITS:
            raise UsageError(f"{what} has {value.bit_length()} bits; the limit is {MAX_WRITTEN_BITS}.")
        return value
    kind = type(value).__name__
    if isinstance(value, bool) or kind in ("bool_", "bool"):
        raise UsageError(f"{what} must be an integer, got {value!r} ({kind}). Write 0 or 1.")
    try:
        return operator.index(value)
    except TypeError:
        hint = "" if not isinstance(value, float) else " Use an int, or // for a rounded quotient."
        raise UsageError(f"{what} must be an integer, got {value!r} ({kind}).{hint}") from None


def shown(number: int) -> str:
    """Writes a number in a message; a very long one by its length."""
    return str(number) if number.bit_length() <= 256 else f"(a number of {number.bit_length()} bits)"


def check_bits(bits: int, what: str) -> None:
    """Refuses a number that would be longer than `MAX_BITS` bits."""
    if bits > MAX_BITS:
        raise LimitReachedError(
            f"{what} would need about {shown(bits)} bits; the limit is {MAX_BITS}. Bound the numbers."
        )


def floor_div(a: int, b: int) -> int:
    """Rounds a / b down."""
    if b == 0:
        raise UndefinedValueError(f"{shown(a)} // 0 has no value")
    return a // b


def ceil_div(a: int, b: int) -> int:
    """Rounds a / b up."""
    if b == 0:
        raise UndefinedValueError(f"ceildiv({shown(a)}, 0) has no value")
    return -(-a // b)


def exact_div(a: int, b: int) -> int:
    """Divides where nothing remains; has no value elsewhere."""
    if b == 0 or a % b:
        raise UndefinedValueError(f"{shown(a)} / {shown(b)} is not an integer")
    return a // b


def modulo(a: int, b: int) -> int:
    """Remainder with the sign of the divisor, as in Python."""
    if b == 0:
        raise UndefinedValueError(f"{shown(a)} % 0 has no value")
    return a % b


def power(base: int, exponent: int) -> int:
    """Raises to a non-negative power; 0 ^ 0 is 1."""
    if exponent < 0:
        raise UndefinedValueError(f"{shown(base)} ^ {shown(exponent)} has no value (negative exponent)")
    if abs(base) > 1:
        check_bits((abs(base).bit_length() - 1) * exponent, f"the power {shown(base)} ^ {shown(exponent)}")
    return int(base**exponent)


def multiply(a: int, b: int) -> int:
    """Multiplies within the bit limit."""
    bits = a.bit_length() + b.bit_length()
    if bits > MAX_BITS:
        check_bits(bits - 1, "a product")
    return a * b


def least_multiple(a: int, b: int) -> int:
    """Least common multiple within the bit limit."""
    if a == 0 or b == 0:
        return 0
    return multiply(abs(a) // math.gcd(a, b), abs(b))


def integer_root(value: int, degree: int) -> int:
    """Largest r >= 0 with r ** degree <= value, for value >= 0 and degree >= 1 (exact, no floats)."""
    if value < 2 or degree == 1:
        return value
    if degree == 2:
        return math.isqrt(value)
    if degree >= value.bit_length():
        return 1
    # Newton's steps from above fall until they reach the root; the first is at most twice too large.
    root = 1 << -(-value.bit_length() // degree)
    while True:
        lower = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if lower >= root:
            return root
        root = lower
