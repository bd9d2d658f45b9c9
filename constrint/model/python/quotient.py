"""Arithmetic of Python on integers, and comparisons of true quotients.

Python's `a / b` is a float: the exact quotient, rounded once. Here it is kept as numerator and denominator, and a
comparison proves from the bounds of its operands that rounding cannot change the answer. What cannot be proven, and all
further computing with floats, raises `InexactError`; nothing is answered as if floats were exact.

A quotient with denominator 0 has no value: a comparison with it in it is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.logic import Element, junction
from constrint.model.operations import BINARY, MAX_BITS, UNARY, Interval, fold

EXACT_FLOAT: Final = 2**53  # every integer up to here is a Python float
_ANY: Final = 2**MAX_BITS
_LISTED: Final = 4096


class InexactError(Exception):
    """Raised inside the reader when rounding of Python's floats might change an answer."""


class Quotient(NamedTuple):
    """A Python float: num / den exactly, or (`rounded`) the float nearest to it."""

    num: e.Expr
    den: e.Expr
    rounded: bool = False


class Remainder(NamedTuple):
    """`dividend % divisor` where one of them is rounded; only its being zero is known exactly."""

    dividend: Quotient
    divisor: Quotient


Number = e.Expr | Quotient | Remainder
ONE: Final = e.Const(1)
_BITWISE: Final = {"&": "bitand", "|": "bitor", "^": "bitxor"}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<=": ">=", "<": ">", ">=": "<=", ">": "<"}


def _bounds(op: str, a: Interval, b: Interval) -> Interval:
    """Bounds of an operation on two operands, within what a number may be at all."""
    low, high = BINARY[op].bounds(a, b) or (-_ANY, _ANY)
    return max(low, -_ANY), min(high, _ANY)


class Bounds:
    """Bounds of expressions over the domains of their variables."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        self.domains = domains

    def of(self, expr: e.Expr) -> Interval:
        """Lower and upper bound; a power out of reach counts as unbounded."""
        if isinstance(expr, e.Const):
            return expr.number, expr.number
        if isinstance(expr, e.Var):
            domain = self.domains[expr.name]
            return domain.lower, domain.upper
        if isinstance(expr, e.Truth):
            return 0, 1
        assert isinstance(expr, e.Calculation)
        if isinstance(expr, Element):
            items = [self.of(a) for a in expr.args[1:]]
            return min(i[0] for i in items), max(i[1] for i in items)
        return fold(expr.op, [self.of(a) for a in expr.args], lambda op, a: UNARY[op].bounds(a), _bounds)

    def size(self, expr: e.Expr) -> int:
        """Largest absolute value."""
        low, high = self.of(expr)
        return max(abs(low), abs(high))

    def nonzero(self, expr: e.Expr) -> bool:
        """Says whether the bounds exclude 0."""
        low, high = self.of(expr)
        return low > 0 or high < 0


class Arithmetic:
    """Arithmetic and comparisons of Python numbers."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        self.bounds = Bounds(domains)

    def apply(self, sign: str, left: Number, right: Number) -> Number:
        """The result of an operator."""
        if sign == "%" and isinstance(left, Quotient) is not isinstance(right, Quotient):
            return Remainder(self._side(left), self._side(right))
        if not (isinstance(left, e.Expr) and isinstance(right, e.Expr)):
            raise InexactError(f"`{sign}` of a quotient or another float")
        if sign == "/":
            return Quotient(left, right, rounded=True)
        if sign in ("+", "-"):
            return e.add(left, right if sign == "+" else e.neg(right))
        if sign == "*":
            return e.mul(left, right)
        if sign in ("//", "%"):
            return left // right if sign == "//" else left % right
        return self.power(left, right) if sign == "**" else self.bitwise(left, right, sign)

    def _side(self, value: Number) -> Quotient:
        """A number that Python converts to a float, which is exact."""
        if isinstance(value, Remainder):
            raise InexactError("the remainder of a quotient can only be compared with 0")
        if isinstance(value, Quotient):
            return value
        if self.bounds.size(value) > EXACT_FLOAT:
            raise InexactError(f"{value} may exceed 2^53, beyond which Python rounds it to a float")
        return Quotient(value, ONE)

    def power(self, base: e.Expr, exponent: e.Expr) -> e.Expr:
        """Power of an integer."""
        low, high = self.bounds.of(exponent)
        if low < 0:
            raise InexactError(f"the exponent {exponent} may be negative ({low}), which gives a fraction in Python")
        if self.bounds.size(base) > 1 and (self.bounds.size(base).bit_length() - 1) * high > MAX_BITS:
            raise InexactError(f"the power {base} ** {exponent} has more than {MAX_BITS} bits")
        return e.Calculation("pow", (base, exponent))

    def bitwise(self, left: e.Expr, right: e.Expr, sign: str) -> e.Expr:
        """`& | ^` of integers or of conditions, and shifts."""
        if isinstance(left, e.Truth) and isinstance(right, e.Truth) and sign in _BITWISE:
            return e.Truth(junction(_BITWISE[sign], left.condition, right.condition))
        if sign in _BITWISE:
            return e.Calculation(_BITWISE[sign], (left, right))
        # A shift by a negative number has no value, and neither has its power of two.
        if (self.bounds.size(left).bit_length() + 1) + self.bounds.of(right)[1] > MAX_BITS:
            raise InexactError(f"the shift {left} {sign} {right} may have more than {MAX_BITS} bits")
        times = e.Calculation("pow", (e.Const(2), right))
        return e.mul(left, times) if sign == "<<" else e.Calculation("floordiv", (left, times))

    def converted(self, name: str, value: Number) -> Number:
        """`int(value)` or `float(value)`."""
        if name == "float":
            return self._side(value)
        if not isinstance(value, e.Expr):
            raise InexactError("int of a quotient or another float")
        return value

    def negate(self, value: Number) -> Number:
        """Negative."""
        if isinstance(value, e.Expr):
            return e.neg(value)
        side = self._side(value)
        return side._replace(num=e.neg(side.num))

    def call(self, name: str, args: list[Number]) -> Number:
        """`min`, `max` or `abs`."""
        numbers = [arg for arg in args if isinstance(arg, e.Expr)]
        if len(numbers) < len(args):
            raise InexactError(f"{name} of a quotient or another float")
        return e.Calculation(name, tuple(numbers))

    def truth(self, value: Number) -> c.Constraint:
        """A number used as a condition: it is not 0."""
        if isinstance(value, e.Truth):
            condition: c.Constraint = value.condition
            return condition
        return self.compare(value, "!=", e.Const(0))

    def compare(self, left: Number, op: str, right: Number) -> c.Constraint:
        """Comparison as Python decides it; false where a side has no value."""
        if isinstance(left, e.Expr) and isinstance(right, e.Expr):
            return c.Comparison(left, op, right)
        if isinstance(right, Remainder) and not isinstance(left, Remainder):
            left, op, right = right, _MIRRORED[op], left
        if isinstance(left, Remainder):
            is_zero = isinstance(right, e.Const) and right.number == 0 and op in ("==", "!=")
            if not is_zero:
                raise InexactError("a remainder of an inexact quotient can only be compared with 0")
            return self._divisible(left, op == "==")
        if isinstance(right, Remainder):
            raise InexactError("two remainders of inexact quotients")
        if isinstance(left, e.Const) or (isinstance(left, Quotient) and _fixed(left) is not None):
            left, op, right = right, _MIRRORED[op], left
        if isinstance(left, e.Expr) and isinstance(right, Quotient) and (number := _fixed(right)) is not None:
            return _beside(left, op, number)
        a = left if isinstance(left, Quotient) else Quotient(left, ONE)
        b = right if isinstance(right, Quotient) else Quotient(right, ONE)
        over, under = _times(a.num, b.den), _times(b.num, a.den)
        if a.rounded or b.rounded:
            size = (self.bounds.size(over) if a.rounded else 0) + (self.bounds.size(under) if b.rounded else 0)
            if size >= EXACT_FLOAT:
                text = f"{_text(a)} {op} {_text(b)}"
                raise InexactError(f"{text} compares numbers beyond 2^53, where Python rounds quotients")
        return self._cross(over, op, under, _times(a.den, b.den))

    def _cross(self, over: e.Expr, op: str, under: e.Expr, den: e.Expr) -> c.Constraint:
        """over / den op under / den, for a `den` of either sign."""
        low, high = self.bounds.of(den)
        upward, downward = c.Comparison(over, op, under), c.Comparison(over, _MIRRORED[op], under)
        if low > 0:
            return upward
        if high < 0:
            return downward
        if op in ("==", "!="):
            return c.all_of(den != 0, upward)
        positive, negative = c.all_of(den > 0, upward), c.all_of(den < 0, downward)
        return positive if low == 0 else negative if high == 0 else c.any_of(positive, negative)

    def _divisible(self, rest: Remainder, wanted: bool) -> c.Constraint:
        """dividend % divisor == 0 where one of them is rounded (or != 0).

        A quotient a / b with |a| < 2^53 that is no dyadic fraction becomes a float whose odd part exceeds
        2^52 / |b|: no smaller integer but 0 is its multiple, and it is no integer itself.
        """
        x, q = rest.dividend, rest.divisor
        zero_at = (_times(q.num, x.den), _times(x.num, q.den))
        sizes = self.bounds.size
        small = max(sizes(x.num), sizes(q.num), sizes(x.den), sizes(q.den)) < EXACT_FLOAT
        small = small and sizes(zero_at[0]) <= EXACT_FLOAT // 2 and sizes(zero_at[1]) <= EXACT_FLOAT // 2
        if not small:
            raise InexactError(f"{_text(x)} % {_text(q)} may exceed 2^52, beyond which Python rounds")
        zero = c.divides(*zero_at)
        if q.rounded:
            if not x.den.same(ONE):
                raise InexactError("a true quotient modulo a quotient that may be inexact")
            power = 1 << sizes(q.den).bit_length()
            exact = c.divides(q.den, _times(q.num, e.Const(power)))
            never = not self.bounds.of(x.num)[0] <= 0 <= self.bounds.of(x.num)[1]
            zero = c.all_of(zero, exact if never else c.any_of(exact, x.num == 0))
        defined = [part != 0 for part in (q.num, q.den, x.den) if not self.bounds.nonzero(part)]
        return c.all_of(*defined, zero if wanted else c.negate(zero))


def _fixed(value: Quotient) -> Fraction | None:
    """The fraction that a quotient of two plain numbers is; None for another one."""
    if value.rounded or not isinstance(value.num, e.Const) or not isinstance(value.den, e.Const):
        return None
    return Fraction(value.num.number, value.den.number) if value.den.number else None


def _beside(expr: e.Expr, op: str, number: Fraction) -> c.Constraint:
    """An integer compared with a fraction, as Python decides it: exactly."""
    if number.denominator == 1:
        return c.Comparison(expr, op, e.Const(number.numerator))
    if op == "==":
        return c.AnyOf(())
    if op == "!=":
        return c.Comparison(expr, "==", expr)
    least = number.numerator // number.denominator
    return c.Comparison(expr, "<=", e.Const(least)) if op in ("<=", "<") else c.Comparison(expr, ">", e.Const(least))


def _times(left: e.Expr, right: e.Expr) -> e.Expr:
    if left.same(ONE):
        return right
    if right.same(ONE):
        return left
    return e.mul(left, right)


def _text(value: Quotient) -> str:
    return str(value.num) if value.den.same(ONE) else f"({value.num}) / ({value.den})"
