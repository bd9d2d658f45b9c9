"""True quotients as Python computes them, brought to integers.

Python's `a / b` is a float: the exact quotient, rounded once. Here it is kept as numerator and denominator, and
every step proves from the bounds of its operands that Python's float either is that quotient (a denominator
that is a power of two, numbers below 2^53) or that its rounding cannot change the answer of a comparison. What
cannot be proven raises `InexactError`; nothing is answered as if floats were exact.

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
MAX_PARTS: Final = 400
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

    def dyadic(self, expr: e.Expr) -> bool:
        """Says whether every value is a power of two or the negative of one."""
        if isinstance(expr, e.Const):
            return _is_dyadic(expr.number)
        if isinstance(expr, e.Var):
            domain = self.domains[expr.name]
            return domain.size <= _LISTED and all(map(_is_dyadic, domain))
        if not isinstance(expr, e.Calculation):
            return False
        if expr.op == "pow":
            return self.dyadic(expr.args[0]) and self.of(expr.args[1])[0] >= 0
        return expr.op in ("mul", "neg", "abs", "min", "max") and all(map(self.dyadic, expr.args))


def _is_dyadic(number: int) -> bool:
    return number != 0 and abs(number) & (abs(number) - 1) == 0


class Arithmetic:
    """Arithmetic and comparisons of Python numbers; with `trusting`, unproven steps are taken as exact."""

    def __init__(self, domains: Mapping[str, Domain], trusting: bool = False) -> None:
        self.bounds, self.trusting = Bounds(domains), trusting

    def prove(self, fact: bool, message: str) -> None:
        """Goes on only if `fact` was shown, or unproven steps are allowed."""
        if not (fact or self.trusting):
            raise InexactError(message)

    def _lifted(self, value: Number) -> Quotient:
        """The operand of a float operation: an integer is converted, a rounded quotient is refused."""
        if isinstance(value, e.Expr):
            self.prove(
                self.bounds.size(value) <= EXACT_FLOAT,
                f"{value} may exceed 2^53, beyond which Python rounds it to a float",
            )
            return Quotient(value, ONE)
        return self._exact(value)

    def _exact(self, value: Quotient | Remainder) -> Quotient:
        if isinstance(value, Remainder):
            raise InexactError("a remainder of an inexact quotient can only be compared with 0")
        self.prove(not value.rounded, f"the quotient {_text(value)} may be inexact where Python computes on")
        return value

    def _result(self, num: e.Expr, den: e.Expr) -> Quotient:
        """The result of one correctly rounded operation on exact operands."""
        if num.size + den.size > MAX_PARTS:
            raise InexactError(f"a true quotient of more than {MAX_PARTS} parts; split it up or use integers")
        exact = self.bounds.dyadic(den) and self.bounds.size(num) <= EXACT_FLOAT
        return Quotient(num, den, not (exact or self.trusting))

    def divide(self, left: Number, right: Number) -> Quotient:
        """True division."""
        if isinstance(left, e.Expr) and isinstance(right, e.Expr):
            return self._result(left, right)
        a, b = self._lifted(left), self._lifted(right)
        return self._result(_times(a.num, b.den), _times(a.den, b.num))

    def add(self, left: Number, right: Number, sign: str) -> Number:
        """Sum or difference."""
        if isinstance(left, e.Expr) and isinstance(right, e.Expr):
            return e.add(left, right if sign == "+" else e.neg(right))
        a, b = self._lifted(left), self._lifted(right)
        if a.den.same(b.den):
            return self._result(e.add(a.num, b.num if sign == "+" else e.neg(b.num)), a.den)
        second = _times(b.num, a.den)
        num = e.add(_times(a.num, b.den), second if sign == "+" else e.neg(second))
        return self._result(num, _times(a.den, b.den))

    def multiply(self, left: Number, right: Number) -> Number:
        """Product."""
        if isinstance(left, e.Expr) and isinstance(right, e.Expr):
            return e.mul(left, right)
        a, b = self._lifted(left), self._lifted(right)
        return self._result(_times(a.num, b.num), _times(a.den, b.den))

    def floor_divide(self, left: Number, right: Number) -> Number:
        """Quotient rounded down."""
        if isinstance(left, e.Expr) and isinstance(right, e.Expr):
            return left // right
        a, b = self._lifted(left), self._lifted(right)
        over, under = _times(a.num, b.den), _times(a.den, b.num)
        self._prove_small(over, under)
        return Quotient(over // under, ONE)

    def modulo(self, left: Number, right: Number) -> Number:
        """Remainder with the sign of the divisor."""
        if isinstance(left, e.Expr) and isinstance(right, e.Expr):
            return left % right
        rounded = [isinstance(v, Quotient) and v.rounded for v in (left, right)]
        if any(rounded):
            return self._remainder(left, right, both=all(rounded))
        a, b = self._lifted(left), self._lifted(right)
        over, under = _times(a.num, b.den), _times(b.num, a.den)
        self._prove_small(over, under)
        return Quotient(over % under, _times(a.den, b.den))

    def _remainder(self, left: Number, right: Number, both: bool) -> Remainder:
        if both or not all(isinstance(v, (e.Expr, Quotient)) for v in (left, right)):
            raise InexactError("the remainder of two quotients that may both be inexact")
        sides = [v if isinstance(v, Quotient) else self._lifted(v) for v in (left, right)]
        return Remainder(sides[0], sides[1])

    def _prove_small(self, over: e.Expr, under: e.Expr) -> None:
        size = self.bounds.size(over) + self.bounds.size(under)
        self.prove(size <= EXACT_FLOAT, f"{over} and {under} may exceed 2^53, beyond which floats are rounded")

    def power(self, base: Number, exponent: Number) -> e.Expr:
        """Power of an integer."""
        if not (isinstance(base, e.Expr) and isinstance(exponent, e.Expr)):
            raise InexactError("a true quotient in a power")
        low, high = self.bounds.of(exponent)
        self.prove(low >= 0, f"the exponent {exponent} may be negative ({low}), which gives a fraction in Python")
        if self.bounds.size(base) > 1 and (self.bounds.size(base).bit_length() - 1) * high > MAX_BITS:
            raise InexactError(f"the power {base} ** {exponent} has more than {MAX_BITS} bits")
        return e.Calculation("pow", (base, exponent))

    def bitwise(self, left: Number, right: Number, sign: str) -> Number:
        """`& | ^` of integers or of conditions, and shifts."""
        if not (isinstance(left, e.Expr) and isinstance(right, e.Expr)):
            raise InexactError(f"`{sign}` of a fraction")
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
        """`int(value)`, which rounds towards 0, or `float(value)`."""
        if name == "float":
            return value if isinstance(value, Quotient) else self._lifted(value)
        if isinstance(value, e.Expr):
            return value
        if isinstance(value, Remainder):
            raise InexactError("int of the remainder of an inexact quotient")
        if value.den.same(ONE) and not value.rounded:
            return value.num
        low, least = self.bounds.of(value.num)[0], self.bounds.of(value.den)[0]
        if low < 0 or least <= 0:
            raise InexactError("int of a quotient that may be negative")
        # A quotient below 2^53 rounds to the next integer only where it is that integer.
        size = self.bounds.size(value.num) + self.bounds.size(value.den)
        self.prove(not value.rounded or size < EXACT_FLOAT, f"int({_text(value)}) of numbers beyond 2^53")
        return value.num // value.den

    def negate(self, value: Number) -> Number:
        """Negative."""
        if isinstance(value, e.Expr):
            return e.neg(value)
        side = value if isinstance(value, Quotient) else self._exact(value)
        return side._replace(num=e.neg(side.num))

    def call(self, name: str, args: list[Number]) -> Number:
        """`min`, `max` or `abs`."""
        numbers = [arg for arg in args if isinstance(arg, e.Expr)]
        if len(numbers) == len(args):
            return e.Calculation(name, tuple(numbers))
        sides = [arg if isinstance(arg, Quotient) else self._lifted(arg) for arg in args]
        if name == "abs":
            num, den = (e.absolute(part) for part in sides[0][:2])
            return Quotient(num, den, sides[0].rounded)
        best = self._positive(sides[0])
        for side in map(self._positive, sides[1:]):
            # Rounding keeps the order, so the least of the rounded is the rounded least.
            parts = (_times(best.num, side.den), _times(side.num, best.den))
            best = Quotient(e.Calculation(name, parts), _times(best.den, side.den), best.rounded or side.rounded)
        return best

    def _positive(self, value: Quotient) -> Quotient:
        if self.bounds.of(value.den)[0] > 0:
            return value
        return value._replace(num=_times(value.num, value.den), den=_times(value.den, value.den))

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
            self.prove(
                size < EXACT_FLOAT,
                f"{_text(a)} {op} {_text(b)} compares numbers beyond 2^53, where Python rounds quotients",
            )
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
        self.prove(small, f"{_text(x)} % {_text(q)} may exceed 2^52, beyond which Python rounds")
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
