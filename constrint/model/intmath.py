"""Exact arithmetic on Python integers: the definition of every operation of the expression language, and divisors.

Long computations call `step` between their pieces (rows of very long numbers, trial factors, rounds of propagation), so
that their caller's limit or signal ends them. It does nothing outside a `watched` block.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

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


_WITNESSES: Final = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
# Below this the witnesses above decide primality with certainty (Sorenson and Webster 2015).
FACTOR_LIMIT: Final = 318_665_857_834_031_151_167_461


def is_prime(n: int) -> bool:
    """Decides primality for n below `FACTOR_LIMIT`."""
    if n < 2:
        return False
    for p in _WITNESSES:
        if n % p == 0:
            return n == p
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for a in _WITNESSES:
        x = pow(a, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def _split(n: int) -> int:
    """Finds a factor of an odd composite number (Pollard's rho, Brent's batches)."""
    offset = 0
    while True:
        offset += 1
        x = y = 2
        factor = 1
        while factor == 1:
            step()
            start_x, start_y, product = x, y, 1
            for _ in range(128):
                x = (x * x + offset) % n
                y = (y * y + offset) % n
                y = (y * y + offset) % n
                product = product * abs(x - y) % n
            factor = math.gcd(product, n)
            if factor == n:
                x, y, factor = start_x, start_y, 1
                while factor == 1:
                    x = (x * x + offset) % n
                    y = (y * y + offset) % n
                    y = (y * y + offset) % n
                    factor = math.gcd(abs(x - y), n)
        if factor != n:
            return factor


def prime_factors(n: int) -> dict[int, int]:
    """Factors n >= 1 (below `FACTOR_LIMIT`) into primes with their exponents."""
    factors: dict[int, int] = {}
    for p in (2, *range(3, 1000, 2)):
        while n % p == 0:
            factors[p] = factors.get(p, 0) + 1
            n //= p
    stack = [n] if n > 1 else []
    while stack:
        part = stack.pop()
        if is_prime(part):
            factors[part] = factors.get(part, 0) + 1
        else:
            factor = _split(part)
            stack += [factor, part // factor]
    return factors


def divisors(n: int) -> list[int]:
    """Positive divisors of n >= 1 in ascending order."""
    products = [1]
    for prime, exponent in prime_factors(n).items():
        products = [d * prime**e for d in products for e in range(exponent + 1)]
    return sorted(products)
