"""Interval arithmetic: bounds of an operation's result from the bounds of its operands, on exact integers.

An interval is (lower, upper), both included. `None` stands for "no finite bound is known"; only powers yield
it. Rows where the operation is undefined do not count.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """Bits that every value of both needs beside its sign."""
    return max((~v if v < 0 else v).bit_length() for v in (*a, *b))


def bitand_bounds(a: Interval, b: Interval) -> Interval:
    """Bounds of a & b, where negative numbers go on with ones for ever."""
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
