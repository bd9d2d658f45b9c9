"""Backward interval reasoning: from bounds on an expression to smaller domains of its variables.

Every step is sound: it removes only values that belong to no solution. `Domains` raises `Contradiction` when
a domain becomes empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import ClassVar

from constrint.model import Calculation, Const, Constraint, Domain, Element, Expr, Truth, Var
from constrint.model.operations import BINARY, UNARY, Interval, fold, integer_root, step

Bound = int | None


class Contradiction(Exception):
    """Raised inside propagation when a variable has no value left."""


class Domains:
    """Domains of all variables during propagation; every change narrows one."""

    def __init__(self, domains: dict[str, Domain]) -> None:
        self.of = domains
        self.changed: set[str] = set()
        # Bounds of operations under the current domains, with the expression so that its id stays taken.
        self._bounds: dict[int, tuple[Calculation, Interval | None]] = {}

    #: Narrows by a condition that holds (or does not); `propagation`, which imports this file, enters it.
    holding: ClassVar[Callable[[Domains, Constraint, bool], None]]

    def copy(self) -> Domains:
        """Returns an independent copy."""
        return Domains(dict(self.of))

    def set(self, name: str, domain: Domain) -> None:
        """Replaces a domain by a narrower one."""
        if domain.size < self.of[name].size:
            self.of[name] = domain
            self.changed.add(name)
            self._bounds.clear()

    def clip(self, name: str, low: Bound, high: Bound) -> None:
        """Removes values below `low` and above `high`."""
        domain = self.of[name]
        low = domain.lower if low is None or low < domain.lower else low
        high = domain.upper if high is None or high > domain.upper else high
        if low == domain.lower and high == domain.upper:
            return
        if domain.listed is not None:
            self.choose(name, [v for v in domain.listed if low <= v <= high])
            return
        first = domain.lower + -(-(low - domain.lower) // domain.step) * domain.step
        if first > high:
            raise Contradiction(name)
        self.set(name, Domain.from_range(first, high, domain.step))

    def choose(self, name: str, values: Iterable[int]) -> None:
        """Replaces a domain by some of its members."""
        left = list(values)
        if not left:
            raise Contradiction(name)
        self.set(name, Domain.from_members(tuple(left)))

    def intersect(self, name: str, values: Iterable[int]) -> None:
        """Keeps only values that are listed."""
        domain = self.of[name]
        if domain.listed is not None:
            allowed = frozenset(values)
            self.choose(name, [v for v in domain.listed if v in allowed])
        else:
            # A range prefers its smaller values.
            self.choose(name, sorted(v for v in values if v in domain))

    def congruent(self, name: str, remainder: int, modulus: int) -> None:
        """Keeps values that leave `remainder` when divided by `modulus` >= 1."""
        domain = self.of[name]
        if domain.listed is not None:
            self.choose(name, [v for v in domain.listed if (v - remainder) % modulus == 0])
            return
        common = math.gcd(domain.step, modulus)
        if (remainder - domain.lower) % common:
            raise Contradiction(name)
        reduced = modulus // common
        times = (remainder - domain.lower) // common * pow(domain.step // common, -1, reduced) % reduced
        first = domain.lower + times * domain.step
        if first > domain.upper:
            raise Contradiction(name)
        self.set(name, Domain.from_range(first, domain.upper, domain.step * reduced))

    def bounds(self, expr: Expr) -> Interval | None:
        """Bounds of an expression under the current domains; None where none are known."""
        if isinstance(expr, Var):
            domain = self.of[expr.name]
            return domain.lower, domain.upper
        if isinstance(expr, Const):
            return expr.number, expr.number
        if isinstance(expr, Truth):
            return 0, 1
        assert isinstance(expr, Calculation)
        cached = self._bounds.get(id(expr))
        if cached is None:
            args = [self.bounds(a) for a in expr.args]
            computed = (
                _item_bounds(args) if isinstance(expr, Element) else fold(expr.op, args, _unary_bounds, _binary_bounds)
            )
            cached = self._bounds[id(expr)] = (expr, computed)
        return cached[1]


def _item_bounds(args: list[Interval | None]) -> Interval | None:
    """Bounds of the items that the index may select; where it selects none, no row counts."""
    index = args[0]
    low, high = (0, len(args) - 2) if index is None else (max(index[0], 0), min(index[1], len(args) - 2))
    items = args[1 + low : 2 + high] or args[1:]
    listed = [item for item in items if item is not None]
    return (min(i[0] for i in listed), max(i[1] for i in listed)) if len(listed) == len(items) else None


def _unary_bounds(op: str, a: Interval | None) -> Interval | None:
    return None if a is None else UNARY[op].bounds(a)


def _binary_bounds(op: str, a: Interval | None, b: Interval | None) -> Interval | None:
    result = None if a is None or b is None else BINARY[op].bounds(a, b)
    too_long = result is not None and max(abs(result[0]), abs(result[1])).bit_length() > 1 << 16
    return None if too_long else result


def narrow(domains: Domains, expr: Expr, low: Bound, high: Bound) -> None:
    """Removes values that would put `expr` outside low..high."""
    if low is None and high is None:
        return
    if isinstance(expr, Var):
        domains.clip(expr.name, low, high)
    elif isinstance(expr, Const):
        if (low is not None and expr.number < low) or (high is not None and expr.number > high):
            raise Contradiction("a number")
    elif isinstance(expr, Truth):
        if (low is not None and low > 1) or (high is not None and high < 0):
            raise Contradiction("a condition")
        if low == 1 or high == 0:
            Domains.holding(domains, expr.condition, low == 1)
    else:
        assert isinstance(expr, Calculation)
        step()
        rule = _RULES.get(expr.op)
        if rule is not None:
            rule(domains, expr, low, high)


def _minus(a: Bound, b: int) -> Bound:
    return None if a is None else a - b


def _add(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    bounds = [domains.bounds(a) for a in expr.args]
    if any(k is None for k in bounds):
        return
    total_low = sum(k[0] for k in bounds if k)
    total_high = sum(k[1] for k in bounds if k)
    for arg, k in zip(expr.args, bounds, strict=True):
        if k is not None:
            narrow(domains, arg, _minus(low, total_high - k[1]), _minus(high, total_low - k[0]))


def _neg(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    narrow(domains, expr.args[0], None if high is None else -high, None if low is None else -low)


def quotient_bounds(low: Bound, high: Bound, other: Interval) -> tuple[Bound, Bound]:
    """Bounds of f where f * o lies in low..high and o in `other`, which excludes 0."""
    if other[1] < 0:
        flipped = quotient_bounds(low, high, (-other[1], -other[0]))
        return (None if flipped[1] is None else -flipped[1]), (None if flipped[0] is None else -flipped[0])
    least = None if low is None else -(-low // (other[1] if low >= 0 else other[0]))
    most = None if high is None else high // (other[0] if high >= 0 else other[1])
    return least, most


def _products(bounds: list[Interval | None]) -> list[Interval | None]:
    """Bounds of the product of the first 0, 1, 2, ... factors."""
    products: list[Interval | None] = [(1, 1)]
    for factor in bounds:
        products.append(_binary_bounds("mul", products[-1], factor))
    return products


def _mul(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    bounds = [domains.bounds(a) for a in expr.args]
    before, after = _products(bounds), _products(bounds[::-1])[::-1]
    for i, arg in enumerate(expr.args):
        first, second = before[i], after[i + 1]
        other = None if first is None or second is None else _binary_bounds("mul", first, second)
        if other is None or other[0] <= 0 <= other[1]:
            continue
        narrow(domains, arg, *quotient_bounds(low, high, other))


def _positive(interval: Interval | None) -> bool:
    return interval is not None and interval[0] > 0


def _scaled(value: Bound, divisor: Interval, smallest: bool) -> Bound:
    if value is None:
        return None
    return min(value * divisor[0], value * divisor[1]) if smallest else max(value * divisor[0], value * divisor[1])


def _floordiv(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    divisor = domains.bounds(expr.args[1])
    if divisor is None or not _positive(divisor):
        return
    most = None if high is None else max((high + 1) * divisor[0], (high + 1) * divisor[1]) - 1
    narrow(domains, expr.args[0], _scaled(low, divisor, smallest=True), most)
    number = domains.bounds(expr.args[0])
    if low is not None and low >= 1 and number is not None:
        narrow(domains, expr.args[1], None, number[1] // low)


def _ceildiv(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    divisor = domains.bounds(expr.args[1])
    if divisor is None or not _positive(divisor):
        return
    least = None if low is None else min((low - 1) * divisor[0], (low - 1) * divisor[1]) + 1
    narrow(domains, expr.args[0], least, _scaled(high, divisor, smallest=False))


def _div(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    divisor = domains.bounds(expr.args[1])
    if divisor is None or not _positive(divisor):
        return
    narrow(domains, expr.args[0], _scaled(low, divisor, smallest=True), _scaled(high, divisor, smallest=False))


def _pow(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    base, exponent = domains.bounds(expr.args[0]), domains.bounds(expr.args[1])
    if base is None or exponent is None or base[0] < 0 or exponent[0] < 0:
        return
    if high is not None and high < 0:
        raise Contradiction("a power")
    if exponent[0] >= 1 and high is not None:
        narrow(domains, expr.args[0], None, integer_root(high, min(exponent[0], high.bit_length() + 1)))
    if low is not None and low >= 2 and exponent[1] >= 1:
        degree = min(exponent[1], low.bit_length() + 1)
        narrow(domains, expr.args[0], integer_root(low - 1, degree) + 1, None)
    if base[0] >= 2 and high is not None:
        narrow(domains, expr.args[1], None, high.bit_length() // (base[0].bit_length() - 1))


def _min(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    for arg in expr.args:
        narrow(domains, arg, low, high if len(expr.args) == 1 else None)


def _max(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    for arg in expr.args:
        narrow(domains, arg, low if len(expr.args) == 1 else None, high)


def _abs(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    if high is not None:
        narrow(domains, expr.args[0], -high, high)
    bounds = domains.bounds(expr.args[0])
    if low is not None and bounds is not None and bounds[0] > -low:
        narrow(domains, expr.args[0], low, None)
    elif low is not None and bounds is not None and bounds[1] < low:
        narrow(domains, expr.args[0], None, -low)


def _element(domains: Domains, expr: Calculation, low: Bound, high: Bound) -> None:
    """The index selects an item that can lie in low..high; where one is left, that item does."""
    index, items = expr.args[0], expr.args[1:]
    bounds = domains.bounds(index)
    first, last = (0, len(items) - 1) if bounds is None else (max(bounds[0], 0), min(bounds[1], len(items) - 1))
    left = [place for place in range(first, last + 1) if _meets(domains.bounds(items[place]), low, high)]
    if not left:
        raise Contradiction("an index")
    narrow(domains, index, left[0], left[-1])
    if isinstance(index, Var) and len(left) < domains.of[index.name].size:
        domains.intersect(index.name, left)
    if len(left) == 1:
        narrow(domains, items[left[0]], low, high)


def _meets(interval: Interval | None, low: Bound, high: Bound) -> bool:
    return interval is None or not (
        (low is not None and interval[1] < low) or (high is not None and interval[0] > high)
    )


_RULES: dict[str, Callable[[Domains, Calculation, Bound, Bound], None]] = {
    "add": _add,
    "neg": _neg,
    "mul": _mul,
    "floordiv": _floordiv,
    "ceildiv": _ceildiv,
    "div": _div,
    "pow": _pow,
    "min": _min,
    "max": _max,
    "abs": _abs,
    "element": _element,
}
