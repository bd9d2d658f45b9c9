"""Prime factors and divisors of whole numbers."""

from __future__ import annotations

import math
from typing import Final

from constrint.model.operations import step

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
