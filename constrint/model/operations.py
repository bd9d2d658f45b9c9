"""Operations of the expression language: exact arithmetic on Python integers, and one table of all operations.

Evaluation, bounds, text and encoding read the table. Long computations call `step` between their pieces (rows of very
long numbers, trial factors, rounds of propagation), so that their caller's limit or signal ends them. It does nothing
outside a `watched` block.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeVar

import numpy as np

from constrint.errors import LimitReachedError, UndefinedValueError, UsageError

MAX_BITS: Final = 65_536
# Bits of the longest number in constants and domains: Python converts it to decimal text.
MAX_WRITTEN_BITS: Final = 13_000
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_watcher: ContextVar[Callable[[], None] | None] = ContextVar("constrint.watcher", default=None)


def step() -> None:
    """Call the watcher of the enclosing `watched` block, if any; its exceptions end the computation."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher()


@contextmanager
def watched(watcher: Callable[[], None]) -> Iterator[None]:
    """Call `watcher` at every `step` inside the block; its exceptions end the computation.

    A generator must not yield inside the block: the watcher would stay active in its consumer.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def as_int(value: Any, what: str) -> int:
    """Return `value` as a Python int.

    Raises:
        UsageError: For bools, floats and other non-integers; `what` names the value.
    """
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


Interval = tuple[int, int]


def _corners(a: Interval, b: Interval, function: Callable[[int, int], int]) -> Interval:
    low_a, high_a = a
    low_b, high_b = b
    w, x, y, z = (function(low_a, low_b), function(low_a, high_b), function(high_a, low_b), function(high_a, high_b))
    return min(w, x, y, z), max(w, x, y, z)


def add_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a + b."""
    return a[0] + b[0], a[1] + b[1]


def mul_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a * b."""
    if a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], a[1] * b[1]
    return _corners(a, b, lambda x, y: x * y)


def neg_bounds(a: Interval) -> Interval:
    """Bounds of -a."""
    return -a[1], -a[0]


def abs_bounds(a: Interval) -> Interval:
    """Bounds of |a|."""
    high = max(abs(a[0]), abs(a[1]))
    return (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), high


def _nonzero_parts(b: Interval) -> list[Interval]:
    if b[0] > 0 or b[1] < 0:
        return [b]
    parts = [(b[0], -1)] if b[0] < 0 else []
    return [*parts, (1, b[1])] if b[1] > 0 else parts


def _quotient(a: Interval, b: Interval, function: Callable[[int, int], int]) -> Interval:
    pieces = [_corners(a, part, function) for part in _nonzero_parts(b)]
    if not pieces:
        return 0, 0
    return min(p[0] for p in pieces), max(p[1] for p in pieces)


def floordiv_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a // b."""
    return _quotient(a, b, lambda x, y: x // y)


def ceildiv_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a / b rounded up."""
    return _quotient(a, b, lambda x, y: -(-x // y))


def mod_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a % b; the sign is the divisor's."""
    if b[0] > 0 and a[0] >= 0 and a[1] < b[0]:
        return a
    low = b[0] + 1 if b[0] < 0 else 0
    high = b[1] - 1 if b[1] > 0 else 0
    if b[0] >= 0 and a[0] >= 0:
        high = min(high, a[1])
    return low, max(low, high)


def pow_bounds(a: Interval, b: Interval) -> Interval | None:
    """Bounds of a ** b over exponents of at least 0; None where they would exceed the bit limit."""
    low_exponent, high_exponent = max(0, b[0]), max(0, b[1])
    largest = max(abs(a[0]), abs(a[1]))
    if largest > 1 and largest.bit_length() * high_exponent > MAX_BITS:
        return None
    if a[0] >= 1:
        return a[0] ** low_exponent, a[1] ** high_exponent
    top = max(largest**high_exponent, 1)
    if a[0] >= 0:
        return 0, top
    if low_exponent == high_exponent and low_exponent % 2 == 0:
        base_low, base_high = abs_bounds(a)
        return base_low**low_exponent, base_high**low_exponent
    if low_exponent == high_exponent:
        return a[0] ** low_exponent, a[1] ** low_exponent
    return -top, top


def min_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of the smaller one."""
    return min(a[0], b[0]), min(a[1], b[1])


def max_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of the larger one."""
    return max(a[0], b[0]), max(a[1], b[1])


def gcd_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of the greatest common divisor."""
    high_a, high_b = abs_bounds(a)[1], abs_bounds(b)[1]
    both_nonzero = not (a[0] <= 0 <= a[1]) and not (b[0] <= 0 <= b[1])
    return (1 if both_nonzero else 0), (min(high_a, high_b) if both_nonzero else max(high_a, high_b))


def lcm_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of the least common multiple."""
    return 0, abs_bounds(a)[1] * abs_bounds(b)[1]


def _bits(a: Interval, b: Interval) -> int:
    """Bits, without the sign, that hold every value of both intervals."""
    return max((~v if v < 0 else v).bit_length() for v in (*a, *b))


def bitand_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a & b in two's complement of unlimited width."""
    tops = [high for low, high in (a, b) if low >= 0]
    if tops:
        return 0, min(tops)
    return -(1 << _bits(a, b)), max(a[1], b[1]) if a[1] < 0 and b[1] < 0 else (1 << _bits(a, b)) - 1


def bitor_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a | b."""
    most = (1 << _bits(a, b)) - 1
    if a[0] >= 0 and b[0] >= 0:
        return max(a[0], b[0]), most
    return -most - 1, -1 if a[1] < 0 or b[1] < 0 else most


def bitxor_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a ^ b as exclusive or."""
    most = (1 << _bits(a, b)) - 1
    return (0 if a[0] >= 0 and b[0] >= 0 else -most - 1), most


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnaryRule:
    """An operation on one operand."""

    name: str  #: Its name in expressions.
    exact: Callable[[int], int]  #: On Python integers.
    bounds: Callable[[Interval], Interval]  #: Bounds of the result from those of the operand.
    array: Callable[[Any], Any]  #: On int64 arrays whose results fit, as the caller ensures.


@dataclass(frozen=True, slots=True)
class BinaryRule:
    """An operation on two operands, or on any number of them, taken from the left."""

    name: str  #: Its name in expressions, and in the text language where it is written as a function.
    exact: Callable[[int, int], int]  #: On Python integers; raises where it has no value.
    #: Bounds of the result from those of the operands; None where none are known.
    bounds: Callable[[Interval, Interval], Interval | None]
    #: On int64 arrays whose results fit and are defined, as the caller ensures.
    array: Callable[[Any, Any], Any]
    sign: str = ""  #: The sign between its operands in the text language; "" where it is written as a function.
    partial: bool = False  #: Whether it has no value for some operands.
    many: bool = False  #: Whether it takes any number of operands.
    alone: str = ""  #: The unary operation for a single operand; "" where the operand itself is the result.


#: In the order of the compiled core's encoding.
TABLE: Final[tuple[UnaryRule | BinaryRule, ...]] = (
    BinaryRule("add", operator.add, add_bounds, np.add, "+", many=True),
    BinaryRule("mul", multiply, mul_bounds, np.multiply, "*", many=True),
    UnaryRule("neg", operator.neg, neg_bounds, np.negative),
    UnaryRule("abs", abs, abs_bounds, np.absolute),
    BinaryRule("floordiv", floor_div, floordiv_bounds, np.floor_divide, "//", partial=True),
    BinaryRule("ceildiv", ceil_div, ceildiv_bounds, lambda a, b: -(np.negative(a) // b), partial=True),
    BinaryRule("div", exact_div, floordiv_bounds, np.floor_divide, "/", partial=True),
    BinaryRule("mod", modulo, mod_bounds, np.remainder, "%", partial=True),
    BinaryRule("pow", power, pow_bounds, np.power, "^", partial=True),
    BinaryRule("min", min, min_bounds, np.minimum, many=True),
    BinaryRule("max", max, max_bounds, np.maximum, many=True),
    BinaryRule("gcd", math.gcd, gcd_bounds, np.gcd, many=True, alone="abs"),
    BinaryRule("lcm", least_multiple, lcm_bounds, np.lcm, many=True, alone="abs"),
    BinaryRule("bitand", operator.and_, bitand_bounds, np.bitwise_and, many=True),
    BinaryRule("bitor", operator.or_, bitor_bounds, np.bitwise_or, many=True),
    BinaryRule("bitxor", operator.xor, bitxor_bounds, np.bitwise_xor, many=True),
)
UNARY: Final[dict[str, UnaryRule]] = {rule.name: rule for rule in TABLE if isinstance(rule, UnaryRule)}
BINARY: Final[dict[str, BinaryRule]] = {rule.name: rule for rule in TABLE if isinstance(rule, BinaryRule)}


def apply(op: str, args: tuple[int, ...]) -> int:
    """Applies the operation named `op` to integers, exactly.

    Raises:
        UndefinedValueError: Where the operation has no value.
        LimitReachedError: Where a number would be too long.
    """
    if op in UNARY:
        return UNARY[op].exact(args[0])
    rule = BINARY[op]
    if len(args) == 2:
        return rule.exact(args[0], args[1])
    if len(args) == 1 and rule.alone:
        return UNARY[rule.alone].exact(args[0])
    return reduce(rule.exact, args)


def fold(op: str, args: Sequence[T], unary: Callable[[str, T], T], binary: Callable[[str, T, T], T]) -> T:
    """Apply an operation to representations of its operands (columns, bounds, terms of a model).

    Args:
        op: The operation's name.
        args: Its operands.
        unary: Applies an operation of one operand.
        binary: Applies an operation to two operands.
    """
    if op in UNARY:
        return unary(op, args[0])
    if len(args) == 1 and BINARY[op].alone:
        return unary(BINARY[op].alone, args[0])
    result = args[0]
    for arg in args[1:]:
        result = binary(op, result, arg)
    return result
