"""Values that are no integers in expressions: exact fractions, and values that can only be compared for equality.

Both become constraints on integer expressions: `x * 2 <= 2.5` over x in {0.5, 1.5} is stored as a comparison of codes
(`constrint/model/domain.py`). Nothing is rounded: a float is the fraction that it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, ClassVar

from constrint.errors import UnknownNameError, UsageError
from constrint.model import constraint as c
from constrint.model.domain import Coded, Domain, literal, plain
from constrint.model.expr import Const, Expr, Var, add, as_expr, mul, neg
from constrint.model.operations import MAX_WRITTEN_BITS
from constrint.model.table import table_of


def _operator(sign: str) -> tuple[Callable[[Any, Any], Any], ...]:
    return (lambda self, other: fractions(sign, self, other)), (lambda self, other: fractions(sign, other, self))


class Ratio:
    """An exact fraction: an integer expression over a fixed positive integer.

    It supports `+ - *`, division by a nonzero number, and comparisons; other operations need integers, such as
    `x * 2` where the values of x are halves.

    Attributes:
        num: The numerator.
        den: The denominator, more than 1 unless `num` is a plain number.
    """

    __slots__ = ("den", "num")
    exact_fraction: ClassVar[bool] = True
    __array_ufunc__ = None

    def __init__(self, num: Expr, den: int) -> None:
        if den.bit_length() > MAX_WRITTEN_BITS:
            raise UsageError(f"a common denominator of {den.bit_length()} bits; at most {MAX_WRITTEN_BITS} are taken.")
        self.num, self.den = num, den

    @property
    def coded(self) -> Expr:
        """The integer expression that stands for the value in tables."""
        return self.num

    def code_of(self, value: object) -> int | None:
        """Numerator at which the fraction has this value; None where no integer gives it."""
        code = _exact(value) * self.den
        return int(code) if code.denominator == 1 else None

    def one_of(self, values: Iterable[object]) -> c.Constraint:
        """It has one of these values."""
        codes = [self.code_of(value) for value in values]
        return c.is_in(self.num, [code for code in codes if code is not None])

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth value; compare it (x == 0.5) and combine comparisons with all_of, any_of")

    def __str__(self) -> str:
        return f"({self.num}) / {self.den}"

    def __repr__(self) -> str:
        return f"<Ratio {self}>"

    def __neg__(self) -> Any:
        return simplified(neg(self.num), self.den)

    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __truediv__, __rtruediv__ = _operator("/")
    __eq__, __ne__ = _operator("==")[0], _operator("!=")[0]
    __le__, __lt__ = _operator("<=")[0], _operator("<")[0]
    __ge__, __gt__ = _operator(">=")[0], _operator(">")[0]

    def __hash__(self) -> int:
        return hash((self.num.key(), self.den))


class Symbol:
    """A variable whose values are no numbers: it is compared with its values, or with another such variable."""

    __slots__ = ("coded",)
    __array_ufunc__ = None

    def __init__(self, name: str, labels: tuple[Any, ...]) -> None:
        self.coded = Coded(name, 0, False, labels)

    @property
    def name(self) -> str:
        """The variable's name."""
        return self.coded.name

    def code_of(self, value: object) -> int:
        """The code of one of its values.

        Raises:
            UnknownNameError: When it has no such value.
        """
        wanted = plain(value, f"a value of {self.name!r}")
        for code, label in enumerate(self.coded.labels):
            if label == wanted:
                return code
        raise UnknownNameError(f"value of {self.name!r}", literal(wanted), map(literal, self.coded.labels))

    def one_of(self, values: Iterable[object]) -> c.Constraint:
        """It has one of these values."""
        codes = [self.code_of(value) for value in values]
        return c.is_in(self.coded, codes)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Symbol):
            pairs = [
                (code, place)
                for code, label in enumerate(self.coded.labels)
                for place, another in enumerate(other.coded.labels)
                if label == another
            ]
            return table_of((self.coded, other.coded), pairs)
        return self.one_of([other])

    def __ne__(self, other: object) -> Any:
        return c.negate(self == other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __bool__(self) -> bool:
        raise TypeError(f"{self.name} has no truth value; compare it with one of its values ({self.name} == ...)")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Symbol {self.name}>"


def code_variable(name: str, domain: Domain) -> Var:
    """Expression of the integers that code a variable's values."""
    if domain.labels is None:
        return Var(name)
    return Coded(name, domain.scale, domain.is_condition, () if domain.scale else domain.labels)


def expression_of(name: str, domain: Domain) -> Any:
    """Represent a variable in expressions: `Var` for integers, `Ratio` for fractions, `Symbol` for other values."""
    if domain.labels is None:
        return Var(name)
    if domain.scale == 0:
        return Symbol(name, domain.labels)
    code = code_variable(name, domain)
    return code if domain.scale == 1 else Ratio(code, domain.scale)


def _exact(value: object) -> Fraction:
    if isinstance(value, (bool, int, Fraction)) or (isinstance(value, float) and math.isfinite(value)):
        return Fraction(value)
    return Fraction(as_expr(value).value({}))


def ratio_of(value: object) -> Ratio:
    """Any number or expression as a fraction.

    Raises:
        UsageError: For a float that is no number.
    """
    if isinstance(value, Ratio):
        return value
    if isinstance(value, (float, Fraction)):
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{value} cannot stand in an expression; leave the rule out where it always holds.")
        exact = Fraction(value)
        return Ratio(Const(exact.numerator), exact.denominator)
    return Ratio(as_expr(value), 1)


def simplified(num: Expr, den: int) -> Any:
    """Make a fraction in lowest terms as far as its form shows; an integer expression where the denominator cancels."""
    if isinstance(num, Const) and not num.name:
        common = math.gcd(num.number, den)
        num, den = Const(num.number // common), den // common
    return num if den == 1 else Ratio(num, den)


def _scaled(num: Expr, factor: int) -> Expr:
    if isinstance(num, Const) and not num.name:
        return Const(num.number * factor)
    return num if factor == 1 else mul(num, Const(factor))


def _product(left: Ratio, right: Ratio) -> Any:
    for one, other in ((left, right), (right, left)):
        if isinstance(other.num, Const) and not other.num.name:
            # A number cancels against the denominator: x * 2 is an integer where x is a half.
            common = math.gcd(other.num.number, one.den)
            factor, den = other.num.number // common, one.den // common * other.den
            return simplified(_scaled(one.num, factor) if one is left else _before(factor, one.num), den)
    return simplified(mul(left.num, right.num), left.den * right.den)


def _before(factor: int, num: Expr) -> Expr:
    return num if factor == 1 else mul(Const(factor), num)


def fractions(sign: str, left: object, right: object) -> Any:
    """Arithmetic and comparisons where a fraction stands on one side at least."""
    a, b = ratio_of(left), ratio_of(right)
    if sign == "*":
        return _product(a, b)
    if sign == "/":
        if not isinstance(b.num, Const) or b.num.number == 0:
            raise UsageError(
                f"a fraction can be divided by a number other than 0 only, not by {right}. Multiply instead."
            )
        turned = Fraction(b.den, b.num.number)
        return _product(a, Ratio(Const(turned.numerator), turned.denominator))
    common = math.lcm(a.den, b.den)
    over, under = _scaled(a.num, common // a.den), _scaled(b.num, common // b.den)
    if sign == "+":
        return simplified(add(over, under), common)
    if sign == "-":
        return simplified(add(over, neg(under)), common)
    return c.Comparison(over, sign, under)
