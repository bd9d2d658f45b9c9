"""Operations of the expression language: one table that evaluation, bounds, text and encoding read."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeVar

import numpy as np

from constrint.model import intmath
from constrint.model.intmath import MAX_BITS

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
    BinaryRule("mul", intmath.multiply, mul_bounds, np.multiply, "*", many=True),
    UnaryRule("neg", operator.neg, neg_bounds, np.negative),
    UnaryRule("abs", abs, abs_bounds, np.absolute),
    BinaryRule("floordiv", intmath.floor_div, floordiv_bounds, np.floor_divide, "//", partial=True),
    BinaryRule("ceildiv", intmath.ceil_div, ceildiv_bounds, lambda a, b: -(np.negative(a) // b), partial=True),
    BinaryRule("div", intmath.exact_div, floordiv_bounds, np.floor_divide, "/", partial=True),
    BinaryRule("mod", intmath.modulo, mod_bounds, np.remainder, "%", partial=True),
    BinaryRule("pow", intmath.power, pow_bounds, np.power, "^", partial=True),
    BinaryRule("min", min, min_bounds, np.minimum, many=True),
    BinaryRule("max", max, max_bounds, np.maximum, many=True),
    BinaryRule("gcd", math.gcd, gcd_bounds, np.gcd, many=True, alone="abs"),
    BinaryRule("lcm", intmath.least_multiple, lcm_bounds, np.lcm, many=True, alone="abs"),
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
