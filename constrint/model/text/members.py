"""Operands of the text language: literals, sets, ranges, tables, and numbers that the caller names (`gpu.sm_count`)."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from constrint.errors import ConstrintError, UsageError, shortened
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.ratio import Ratio, Symbol, fractions, ratio_of
from constrint.model.table import table
from constrint.model.text.lexer import Cursor, Token


class MemberReader(Cursor):
    """Reads what stands behind `in`, and puts tests together."""

    @abstractmethod
    def expression(self) -> e.Expr:
        """Reads an integer expression."""

    def as_number(self, value: Value, token: Token) -> Number:
        """A condition counts as 1 where it holds and as 0 elsewhere."""
        if isinstance(value, (e.Expr, Ratio)):
            return value
        if isinstance(value, Each):
            value = c.all_of(*value.parts)
        if isinstance(value, c.Constraint):
            return e.Truth(value)
        raise self.error(f"{kind_of(value)}, and a number is expected", token)

    def decimal(self, token: Token) -> Ratio:
        """Reads a decimal number: the fraction that the float nearest to it is."""
        value = float(token.value)
        if value in (float("inf"), 0.0) and token.value.strip("0.eE+-"):
            raise self.error(f"{token.value} is beyond the range of floating-point numbers", token)
        return ratio_of(value)

    def compared(self, left: Value, operator: Token, right: Value) -> c.Constraint:
        """Builds a comparison of integers, of fractions or of values that are no numbers."""
        sign = operator.value
        if isinstance(right, Symbol) and not isinstance(left, Symbol):
            left, right = right, left
        if isinstance(left, Symbol):
            if sign not in ("==", "!="):
                raise self.error(f"{kind_of(left)}; it can be compared by == and != only", operator)
            equal: c.Constraint = left == (right if isinstance(right, Symbol) else self._value_of(right, operator))
            return equal if sign == "==" else c.negate(equal)
        a, b = self.as_number(left, operator), self.as_number(right, operator)
        if isinstance(a, Ratio) or isinstance(b, Ratio):
            return fractions(sign, a, b)  # type: ignore[no-any-return]
        return c.Comparison(a, sign, b)

    def _value_of(self, value: Value, token: Token) -> object:
        """The fixed value that a symbol is compared with."""
        if isinstance(value, Literal):
            return value.value
        if isinstance(value, c.Constraint) and not value.operands():
            return value.holds({})
        if isinstance(value, Ratio) and isinstance(value.num, e.Const):
            return value.num.number / value.den
        if isinstance(value, e.Expr) and not value.variables:
            return value.value({})
        raise self.error(f"{kind_of(value)}; a fixed value is expected here", token)

    def one_of(self, side: Value, members: Domain | list[Any], start: Token, inverted: bool = False) -> c.Constraint:
        """Reads `side in members`; inverted, that it has a value and that is none of them."""
        if isinstance(side, Symbol) and isinstance(members, list):
            rule = side.one_of(members) if members else c.AnyOf(())
            return c.negate(rule) if inverted else rule
        number = self.as_number(side, start)
        within = c.not_in if inverted else c.is_in
        if isinstance(number, e.Expr) and isinstance(members, Domain):
            return within(number, members)
        if isinstance(members, Domain):
            raise self.error("a range holds integers; list the values: {0.5, 1}", start)
        if isinstance(number, Ratio) or any(type(member) is not int for member in members):
            if not all(isinstance(member, (bool, int, float)) for member in members):
                raise self.error(f"{kind_of(number)}; its values are no text", start)
            ratio = ratio_of(number)
            return within(ratio.num, [code for code in map(ratio.code_of, members) if code is not None])
        return within(number, members)

    def rows(self, side: Listed) -> c.Constraint:
        """Reads the rows of a table: (x, y) in {(1, 2), (3, 4)}."""
        opening = self.expect("{", "before the rows of a table: (x, y) in {(1, 2), (3, 4)}")
        self.brackets += 1
        rows: list[list[Any]] = []
        while not self.accept("}"):
            if rows:
                self.expect(",", "or `}` between rows")
            rows.append(self.values("(", ")"))
        self.brackets -= 1
        for part in side.parts:
            if isinstance(part, (Literal, Listed)):
                raise self.error(f"{kind_of(part)}; a table speaks of variables and expressions", opening)
        return table(side.parts, rows)

    def domain(self) -> Domain | None:
        """Reads {1, 2, 3} or a..b step s; None for the empty set."""
        members = self.members()
        return members if isinstance(members, Domain) else Domain.of(members) if members else None

    def members(self) -> Domain | list[Any]:
        """Reads {1, 2.5, "text", true, none} or a..b step s; a list where nothing is a range."""
        token = self.token
        if token.value == "{" and token.kind == "sign":
            return self.values("{", "}")
        if token.value == "[" and token.kind == "sign":
            return self.values("[", "]")
        lower = self.number()
        self.expect("..", "of the range (a..b), or a set {a, b}")
        upper = self.number()
        step = self.number() if self.accept("step") else 1
        if step < 1:
            raise self.error(f"the step of a range must be at least 1, got {step}", token)
        return Domain.from_range(lower, upper, step) if lower <= upper else []

    def values(self, opening: str, closing: str) -> list[Any]:
        """Reads a list of values in brackets."""
        self.expect(opening, "before the values")
        self.brackets += 1
        listed: list[Any] = []
        while not self.accept(closing):
            if listed:
                self.expect(",", f"or `{closing}` between values")
            listed.append(self.literal())
        self.brackets -= 1
        return listed

    def literal(self) -> object:
        """Reads a value: text, `true`, `false`, `none`, a decimal number, or an integer that may be computed."""
        token = self.token
        if token.kind == "text" or (token.kind == "word" and token.value in ("true", "false", "none")):
            self.next()
            return token.value if token.kind == "text" else {"true": True, "false": False}.get(token.value)
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        negative = token.kind == "sign" and token.value == "-" and following.kind == "decimal"
        if negative or token.kind == "decimal":
            self.at += negative
            number = self.next()
            self.decimal(number)
            return -float(number.value) if negative else float(number.value)
        return self.number()

    def number(self) -> int:
        """Reads an expression without variables and computes it."""
        token = self.token
        expr = self.expression()
        if expr.variables:
            raise self.error(f"a fixed number is needed here; {', '.join(sorted(expr.variables))} is a variable", token)
        try:
            return expr.value({})
        except ConstrintError as error:
            raise self.error(str(error), token) from None


class Literal(NamedTuple):
    """A value that is no number: text or `none`."""

    value: str | None


class Listed(NamedTuple):
    """Several values in brackets, `(x, y)`: what a table speaks of."""

    parts: tuple[Any, ...]


class TextArray(NamedTuple):
    """Values by their indices."""

    lowers: tuple[int, ...]  #: The first index of each dimension.
    sizes: tuple[int, ...]  #: The number of indices of each dimension.
    items: tuple[Any, ...]  #: The values, the last index changing first.


class Each(NamedTuple):
    """The values that a loop repeats, with labels."""

    parts: tuple[Any, ...]
    labels: tuple[str, ...]  #: The numbers of the loop's variables: "1,2".


Value = e.Expr | c.Constraint | Ratio | Symbol | Literal | Listed | TextArray | Each
Number = e.Expr | Ratio


def kind_of(value: Value) -> str:
    """Names what stands somewhere in a message."""
    if isinstance(value, Literal):
        return f"`{'none' if value.value is None else value.value[:40]}` is a fixed value"
    if isinstance(value, Listed):
        return "several values in brackets stand here, which only `in` takes"
    if isinstance(value, TextArray):
        first = ", ".join(map(str, value.lowers))
        return f"this is an array (name one of its items, as in x[{first}], or give it to a function, as in sum(x))"
    if isinstance(value, Each):
        return "this is what a loop repeats"
    if isinstance(value, Symbol):
        return f"the values of `{value.name}` are no numbers"
    if isinstance(value, Ratio):
        return f"`{shown(value.num)}` over {value.den} has fractions" if value.num.variables else "this is a fraction"
    return f"`{shown(value)}` is a {'condition' if isinstance(value, c.Constraint) else 'number'}"


def shown(value: e.Expr | c.Constraint | None) -> str:
    """Writes something in a message, shortened."""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


#: A number by its dotted name; text says why there is none.
Names: TypeAlias = Mapping[str, "int | str"]
#: Names that are told as near.
MAX_NEAR = 3


def number_named(names: Names | None, name: str) -> int:
    """The number that a dotted name stands for.

    Args:
        names: The numbers that may be named; None where the caller gave none.
        name: The name in the text.

    Raises:
        UsageError: When no number has that name, or it is not known.
    """
    if not isinstance(names, Mapping) and names is not None:
        raise UsageError(f"names maps names to numbers, such as {{'gpu.sm_count': 132}}; got {type(names).__name__}.")
    if name in (names or {}):
        value = (names or {})[name]
        if isinstance(value, str):
            raise UsageError(f"`{name}` has no value: {value}.")
        return value
    shown = shortened(name)
    if not names:
        raise UsageError(
            f"nothing says what `{shown}` is. A name with a dot is a number of a GPU: say which with --gpu NAME (in "
            f"Python: names=gpu_names(load_gpu(NAME))), or declare it in the problem: const {shown} = 100"
        )
    raise UsageError(f"there is no number `{shown}`. Nearest: {', '.join(nearest_names(shown, names))}.")


def nearest_names(name: str, names: Names) -> list[str]:
    """The names most like one that there is not: those that contain what it ends with come first."""
    last = name.rpartition(".")[2].lower()
    within = [candidate for candidate in names if last and last in candidate.rpartition(".")[2]]
    close = difflib.get_close_matches(name.lower(), list(names), n=MAX_NEAR, cutoff=0.3)
    return list(dict.fromkeys((*within[:MAX_NEAR], *close)))[:MAX_NEAR] or list(names)[:MAX_NEAR]
