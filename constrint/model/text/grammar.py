"""Expressions and constraints of the text language, by operator precedence.

Weakest first: `->` (to the right), `or` `|`, `and`, `not`, comparisons with `in` and `divides` (chains such
as a <= b < c are allowed), `+ -`, `* / // %`, unary `-`, `^` `**` (to the right). In the dialect "constrint"
`%` stands between `+ -` and `* / //`, so it separates whole terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from constrint.errors import ConstrintError, ParseError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model import logic
from constrint.model.domain import Domain
from constrint.model.operations import BINARY
from constrint.model.ratio import Ratio, Symbol, fractions, ratio_of
from constrint.model.table import table
from constrint.model.text.lexer import Source, Token

MAX_NESTING: Final = 120


class Literal(NamedTuple):
    """A value that is no number: text or `none`."""

    value: str | None


class Listed(NamedTuple):
    """Several values in brackets, `(x, y)`: what a table speaks of."""

    parts: tuple[Any, ...]


Value = e.Expr | c.Constraint | Ratio | Symbol | Literal | Listed
Number = e.Expr | Ratio

_IMPLIES, _OR, _AND, _NOT, _TEST, _ADD, _MOD, _MUL, _NEG, _POW = range(1, 11)
_LOGIC: Final = {"->": _IMPLIES, "or": _OR, "|": _OR, "and": _AND}
_TESTS: Final = frozenset(("==", "!=", "<=", "<", ">=", ">", "in", "divides", "not"))
#: The operations of the level of products, by their signs.
_ARITHMETIC: Final = {rule.sign: name for name, rule in BINARY.items() if rule.sign and name not in ("add", "pow")}
#: Functions, and how many arguments each takes; None for any number.
FUNCTIONS: Final[dict[str, int | None]] = {
    **{name: None if rule.many else 2 for name, rule in BINARY.items() if not rule.sign},
    "abs": 1,
    "pow2": 1,
    "element": None,
}
#: Functions with conditions among their arguments, and how many they take.
LOGIC_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], int | None]]] = {
    "all_different": (logic.all_different, None),
    "count": (logic.count, None),
    "iff": (logic.iff, 2),
    "xor": (logic.xor, 2),
    "if_then_else": (logic.if_then_else, 3),
}


class DialectWarning(UserWarning):
    """Warns about text that the dialect "constrint" reads differently."""


class Grammar:
    """Reads expressions and constraints from tokens; `names` resolves a word to a variable or a number."""

    def __init__(
        self, source: Source, words: list[Token], names: Callable[[str, int], e.Expr], constrint: bool = False
    ) -> None:
        self.source, self.tokens, self.names, self.constrint = source, words, names, constrint
        self.at = 0
        self.nesting = 0
        self.brackets = 0

    @property
    def token(self) -> Token:
        """The next token; inside brackets, lines do not end."""
        if self.brackets:
            while self.tokens[self.at].kind == "newline":
                self.at += 1
        return self.tokens[self.at]

    def next(self) -> Token:
        """Takes the next token."""
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def skip_lines(self) -> None:
        """Skips line ends: after an operator a statement goes on."""
        while self.tokens[self.at].kind == "newline":
            self.at += 1

    def accept(self, value: str) -> bool:
        """Takes a sign or a word if it comes next."""
        token = self.token
        if token.value == value and token.kind in ("sign", "word"):
            self.at += 1
            return True
        return False

    def expect(self, value: str, why: str) -> Token:
        """Takes a sign or a word, or says what is missing."""
        token = self.token
        if not self.accept(value):
            raise self.error(f"expected `{value}` {why}, found {self.describe(token)}", token)
        return token

    def describe(self, token: Token) -> str:
        """Names a token in a message."""
        if token.kind == "end":
            return "the end of the text"
        return "the end of the line" if token.kind == "newline" else f"`{token.value[:40]}`"

    def error(self, message: str, token: Token) -> ParseError:
        """Builds an error at a token."""
        return self.source.error(message, token.start)

    def constraint(self) -> c.Constraint:
        """Reads a constraint."""
        token = self.token
        return self._as_constraint(self.value(_IMPLIES), token)

    def expression(self) -> e.Expr:
        """Reads an integer expression."""
        token = self.token
        return self._as_expr(self.value(_ADD), token)

    def _as_constraint(self, value: Value, token: Token) -> c.Constraint:
        if isinstance(value, c.Constraint):
            return value
        if isinstance(value, e.Expr) and value.is_condition:
            return c.as_condition(value, "a rule")
        if self.token.value == "=":
            raise self.error("write `==` to compare", self.token)
        raise self.error(f"{_kind(value)}, not a condition; compare it with something (== <= in)", token)

    def _as_expr(self, value: Value, token: Token) -> e.Expr:
        number = self._as_number(value, token)
        if isinstance(number, Ratio):
            raise self.error(f"{_kind(number)}, and an integer is expected; multiply it by {number.den}", token)
        return number

    def _as_number(self, value: Value, token: Token) -> Number:
        """A condition counts as 1 where it holds and as 0 elsewhere."""
        if isinstance(value, (e.Expr, Ratio)):
            return value
        if isinstance(value, c.Constraint):
            return e.Truth(value)
        raise self.error(f"{_kind(value)}, and a number is expected", token)

    def value(self, strength: int) -> Value:
        """Reads operators that bind at least as strongly as `strength`."""
        self.nesting += 1
        token = self.token
        if self.nesting > MAX_NESTING:
            raise self.error(f"nested more than {MAX_NESTING} levels deep; split the statement up", token)
        try:
            left = self._prefix(strength)
            while True:
                operator = self._operator()
                level = self._level(operator)
                if operator is None or level < strength:
                    return left
                left = self._infix(left, token, operator, level)
        except ParseError:
            raise
        except ConstrintError as error:
            # Limits of the expressions themselves: say where.
            raise self.error(str(error), token) from None
        finally:
            self.nesting -= 1

    def _operator(self) -> Token | None:
        """The operator that comes next; a line may begin with one, except with `-` and `not`."""
        token = self.token
        if token.kind == "newline":
            ahead = self.at
            while self.tokens[ahead].kind == "newline":
                ahead += 1
            token = self.tokens[ahead]
            if token.value in ("-", "not") or self._level(token) == 0:
                return None
            self.at = ahead
        return token if self._level(token) else None

    def _level(self, token: Token | None) -> int:
        if token is None or token.kind not in ("sign", "word"):
            return 0
        sign = token.value
        if sign in _LOGIC:
            return _LOGIC[sign]
        if sign in _TESTS:
            return _TEST
        if sign in ("+", "-"):
            return _ADD
        if sign in _ARITHMETIC:
            return _MOD if sign == "%" and self.constrint else _MUL
        return _POW if sign in ("^", "**") else 0

    def _prefix(self, strength: int) -> Value:
        token = self.token
        if self.accept("-"):
            self.skip_lines()
            number = self._as_number(self.value(_NEG), self.token)
            return -number if isinstance(number, Ratio) else e.neg(number)
        if token.kind == "word" and token.value == "not":
            self.next()
            self.skip_lines()
            if strength > _NOT:
                raise self.error("`not` cannot stand here; put it in brackets: (not ...)", token)
            return c.negate(self._as_constraint(self.value(_NOT), self.token))
        return self._atom()

    def _atom(self) -> Value:
        token = self.next()
        if token.kind == "number":
            return e.Const(int(token.value))
        if token.kind == "decimal":
            return self._decimal(token)
        if token.kind == "text":
            return Literal(token.value)
        if token.kind == "name":
            return self.names(token.value, token.start)
        if token.value == "(" and token.kind == "sign":
            return self._bracket()
        if token.kind == "word":
            if token.value == "none":
                return Literal(None)
            if token.value in ("true", "false"):
                return c.AllOf(()) if token.value == "true" else c.AnyOf(())
            if token.value in FUNCTIONS and self.token.value == "(" and self.token.kind == "sign":
                return self._call(token)
            if token.value in LOGIC_FUNCTIONS and self.token.value == "(" and self.token.kind == "sign":
                return self._logic_call(token)
            if token.value not in e.RESERVED:
                return self.names(token.value, token.start)
        if token.value == "=":
            raise self.error("write `==` to compare", token)
        raise self.error(f"expected a number, a name or a bracket, found {self.describe(token)}", token)

    def _bracket(self) -> Value:
        """Reads what stands in brackets: one value, or several for a table."""
        self.brackets += 1
        parts = [self.value(_IMPLIES)]
        several = False
        while self.accept(","):
            several = True
            if self.token.value == ")" and self.token.kind == "sign":
                break
            parts.append(self.value(_ADD))
        self.expect(")", "to close the bracket")
        self.brackets -= 1
        return Listed(tuple(parts)) if several else parts[0]

    def _decimal(self, token: Token) -> Ratio:
        value = float(token.value)
        if value in (float("inf"), 0.0) and token.value.strip("0.eE+-"):
            raise self.error(f"{token.value} is beyond the range of floating-point numbers", token)
        return ratio_of(value)

    def _logic_call(self, name: Token) -> Value:
        self.next()
        self.brackets += 1
        function, wanted = LOGIC_FUNCTIONS[name.value]
        args: list[Any] = []
        while not self.accept(")"):
            if args:
                self.expect(",", f"or `)` between the arguments of {name.value}")
            args.append(self.value(_IMPLIES))
        self.brackets -= 1
        if wanted is not None and len(args) != wanted:
            raise self.error(f"{name.value} takes {wanted} arguments, got {len(args)}", name)
        for arg in args:
            if isinstance(arg, (Literal, Listed, Symbol, Ratio)):
                raise self.error(f"{_kind(arg)}, which {name.value} does not take", name)
        return function(*args)  # type: ignore[no-any-return]

    def _call(self, name: Token) -> e.Expr:
        self.next()
        self.brackets += 1
        args = [self.expression()]
        while self.accept(","):
            args.append(self.expression())
        self.expect(")", f"after the arguments of {name.value}")
        self.brackets -= 1
        wanted = FUNCTIONS[name.value]
        if wanted is not None and len(args) != wanted:
            raise self.error(f"{name.value} takes {wanted} argument(s), got {len(args)}", name)
        if name.value == "pow2":
            return e.Operation("pow", (e.Const(2), args[0]))
        if name.value == "element":
            if len(args) < 2:
                raise self.error("element takes an index and at least one item: element(i, 10, 20)", name)
            return e.Element(tuple(args))
        return e.Operation(name.value, tuple(args))

    def _infix(self, left: Value, start: Token, operator: Token, level: int) -> Value:
        if level == _TEST:
            return self._tests(left, start)
        if level in (_ADD, _MOD, _MUL):
            return self._run(self._as_number(left, start), operator, level)
        self.next()
        self.skip_lines()
        if level == _POW:
            base = self._as_expr(left, start)
            return e.Operation("pow", (base, self._as_expr(self.value(_NEG), operator)))
        first = self._as_constraint(left, start)
        if level == _IMPLIES:
            return c.implies(first, self._as_constraint(self.value(_IMPLIES), operator))
        parts = [first, self._as_constraint(self.value(level + 1), operator)]
        while (again := self._operator()) is not None and self._level(again) == level:
            self.next()
            self.skip_lines()
            parts.append(self._as_constraint(self.value(level + 1), again))
        return c.any_of(*parts) if level == _OR else c.all_of(*parts)

    def _run(self, left: Number, operator: Token, level: int) -> Number:
        """Reads a run of operators of one level, so that long sums are flat and cost no nesting."""
        signs = [operator]
        found: list[Number] = [left]
        while True:
            self.next()
            self.skip_lines()
            found.append(self._as_number(self.value(level + 1), self.token))
            again = self._operator()
            if again is None or self._level(again) != level:
                break
            signs.append(again)
        parts = [number for number in found if isinstance(number, e.Expr)]
        if len(parts) < len(found):
            return self._with_fractions(signs, found)
        if level == _ADD:
            return e.add(parts[0], *(p if s.value == "+" else e.neg(p) for s, p in zip(signs, parts[1:], strict=True)))
        self._warn(signs, parts)
        result, factors = parts[0], [parts[0]]
        for sign, part in zip(signs, parts[1:], strict=True):
            if sign.value == "*":
                factors.append(part)
                continue
            result = e.Operation(_ARITHMETIC[sign.value], (e.mul(*factors), part))
            factors = [result]
        return e.mul(*factors)

    def _with_fractions(self, signs: Sequence[Token], parts: Sequence[Number]) -> Number:
        """Computes a run from the left, exactly."""
        result = parts[0]
        for sign, part in zip(signs, parts[1:], strict=True):
            if isinstance(result, Ratio) or isinstance(part, Ratio):
                if sign.value not in ("+", "-", "*", "/"):
                    number = result if isinstance(result, Ratio) else part
                    raise self.error(
                        f"`{sign.value}` needs integers; {_kind(number)}: multiply it by its denominator", sign
                    )
                result = fractions(sign.value, result, part)
            elif sign.value in ("+", "-"):
                result = e.add(result, part if sign.value == "+" else e.neg(part))
            else:
                result = (
                    e.mul(result, part) if sign.value == "*" else e.Operation(_ARITHMETIC[sign.value], (result, part))
                )
        return result

    def _warn(self, signs: list[Token], parts: list[e.Expr]) -> None:
        """Warns where a remainder is multiplied or divided: ConstrINT reads that differently."""
        values = [s.value for s in signs]
        hits = [i for i, v in enumerate(values[:-1]) if v == "%" and values[i + 1] != "%"]
        if self.constrint or not hits:
            return
        at = hits[0]
        line, _ = self.source.position(signs[at].start)
        left, right = e.mul(*parts[: at + 1]) if set(values[:at]) <= {"*"} else None, parts[at + 1]
        tail = "".join(f" {v} {_short(p)}" for v, p in zip(values[at + 1 :], parts[at + 2 :], strict=True))
        head = _short(left) if left is not None else "..."
        warnings.warn(
            f"{self.source.name or 'text'}:{line}: `{head} % {_short(right)}{tail}` is read here as "
            f"`({head} % {_short(right)}){tail}`; ConstrINT reads `{head} % ({_short(right)}{tail})`. "
            "Add brackets, or mark the file with `# dialect: constrint`.",
            DialectWarning,
            stacklevel=2,
        )

    def _tests(self, left: Value, start: Token) -> c.Constraint:
        """Reads a comparison or a chain of them."""
        parts: list[c.Constraint] = []
        side = left
        chained = True
        while (operator := self._operator()) is not None and self._level(operator) == _TEST:
            if not chained:
                raise self.error("only == != < <= > >= can be chained; use `and`", operator)
            self.next()
            self.skip_lines()
            chained = False
            if operator.value in ("in", "not"):
                parts.append(self._membership(side, start, operator))
            elif operator.value == "divides":
                number = self._as_expr(self.value(_ADD), operator)
                parts.append(c.Divides(self._as_expr(side, start), number))
            elif self.token.value == "[" and operator.value in ("==", "!="):
                parts.append(self._one_of(side, self.values("[", "]"), start, inverted=operator.value == "!="))
            else:
                right = self.value(_ADD)
                parts.append(self._compared(side, operator, right))
                side, chained = right, True
        return c.all_of(*parts)

    def _compared(self, left: Value, operator: Token, right: Value) -> c.Constraint:
        sign = operator.value
        if isinstance(right, Symbol) and not isinstance(left, Symbol):
            left, right = right, left
        if isinstance(left, Symbol):
            if sign not in ("==", "!="):
                raise self.error(f"{_kind(left)}; it can be compared by == and != only", operator)
            equal: c.Constraint = left == (right if isinstance(right, Symbol) else self._value_of(right, operator))
            return equal if sign == "==" else c.negate(equal)
        a, b = self._as_number(left, operator), self._as_number(right, operator)
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
        raise self.error(f"{_kind(value)}; a fixed value is expected here", token)

    def _membership(self, side: Value, start: Token, operator: Token) -> c.Constraint:
        if operator.value == "not":
            self.expect("in", "after `not`")
        if isinstance(side, Listed):
            found = self._rows(side)
            return found if operator.value == "in" else _with_values(found)
        return self._one_of(side, self.members(), start, inverted=operator.value == "not")

    def _one_of(self, side: Value, members: Domain | list[Any], start: Token, inverted: bool = False) -> c.Constraint:
        """Reads `side in members`; inverted, that it has a value and that is none of them."""
        if isinstance(side, Symbol) and isinstance(members, list):
            found = side.one_of(members) if members else c.AnyOf(())
            return c.negate(found) if inverted else found
        number = self._as_number(side, start)
        within = c.is_not_in if inverted else c.is_in
        if isinstance(number, e.Expr) and isinstance(members, Domain):
            return within(number, members)
        if isinstance(members, Domain):
            raise self.error("a range holds integers; list the values: {0.5, 1}", start)
        if isinstance(number, Ratio) or any(type(member) is not int for member in members):
            if not all(isinstance(member, (bool, int, float)) for member in members):
                raise self.error(f"{_kind(number)}; its values are no text", start)
            ratio = ratio_of(number)
            return within(ratio.num, [code for code in map(ratio.code_of, members) if code is not None])
        return within(number, members)

    def _rows(self, side: Listed) -> c.Constraint:
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
                raise self.error(f"{_kind(part)}; a table speaks of variables and expressions", opening)
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
            self._decimal(number)
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


def _with_values(rows: c.Constraint) -> c.Constraint:
    """None of these rows, where every expression has a value."""
    partial = [p for p in rows.operands() if isinstance(p, e.Expr) and not e.is_total(p)]
    return c.all_of(*(c.Comparison(p, "==", p) for p in partial), c.negate(rows))


def _kind(value: Value) -> str:
    """Names what stands somewhere in a message."""
    if isinstance(value, Literal):
        return f"`{'none' if value.value is None else value.value[:40]}` is a fixed value"
    if isinstance(value, Listed):
        return "several values in brackets stand here, which only `in` takes"
    if isinstance(value, Symbol):
        return f"the values of `{value.name}` are no numbers"
    if isinstance(value, Ratio):
        return f"`{_short(value.num)}` over {value.den} has fractions" if value.num.variables else "this is a fraction"
    return f"`{_short(value)}` is a {'condition' if isinstance(value, c.Constraint) else 'number'}"


def _short(value: e.Expr | c.Constraint | None) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
