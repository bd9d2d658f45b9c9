"""Expressions and constraints of the text language, by operator precedence.

Weakest first: `->` (to the right), `or` `|`, `and`, `not`, comparisons with `in` and `divides` (chains such
as a <= b < c are allowed), `+ -`, `* / // %`, unary `-`, `^` `**` (to the right). In the dialect "constrint"
`%` stands between `+ -` and `* / //`, so it separates whole terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final

from constrint.errors import ConstrintError, ParseError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.operations import BINARY
from constrint.model.text.lexer import Source, Token

MAX_NESTING: Final = 120
Value = e.Expr | c.Constraint

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
        if self.token.value == "=":
            raise self.error("write `==` to compare", self.token)
        raise self.error(f"`{_short(value)}` is a number, not a condition; compare it with something (== <= in)", token)

    def _as_expr(self, value: Value, token: Token) -> e.Expr:
        if isinstance(value, e.Expr):
            return value
        raise self.error(f"the condition `{_short(value)}` stands where a number is expected", token)

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
            return e.neg(self._as_expr(self.value(_NEG), self.token))
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
        if token.value == "(" and token.kind == "sign":
            self.brackets += 1
            inner = self.value(_IMPLIES)
            self.expect(")", "to close the bracket")
            self.brackets -= 1
            return inner
        if token.kind == "word":
            if token.value in ("true", "false"):
                return c.AllOf(()) if token.value == "true" else c.AnyOf(())
            if token.value in FUNCTIONS and self.token.value == "(" and self.token.kind == "sign":
                return self._call(token)
            if token.value not in e.RESERVED:
                return self.names(token.value, token.start)
        if token.value == "=":
            raise self.error("write `==` to compare", token)
        raise self.error(f"expected a number, a name or a bracket, found {self.describe(token)}", token)

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
        return e.Operation(name.value, tuple(args))

    def _infix(self, left: Value, start: Token, operator: Token, level: int) -> Value:
        if level == _TEST:
            return self._tests(left, start)
        if level in (_ADD, _MOD, _MUL):
            return self._run(self._as_expr(left, start), operator, level)
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

    def _run(self, left: e.Expr, operator: Token, level: int) -> e.Expr:
        """Reads a run of operators of one level, so that long sums are flat and cost no nesting."""
        signs = [operator]
        parts = [left]
        while True:
            self.next()
            self.skip_lines()
            parts.append(self._as_expr(self.value(level + 1), self.token))
            again = self._operator()
            if again is None or self._level(again) != level:
                break
            signs.append(again)
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
        side = self._as_expr(left, start)
        while (operator := self._operator()) is not None and self._level(operator) == _TEST:
            if parts and not isinstance(parts[-1], c.Comparison):
                raise self.error("only == != < <= > >= can be chained; use `and`", operator)
            self.next()
            self.skip_lines()
            if operator.value in ("in", "not"):
                parts.append(self._membership(side, operator))
            elif operator.value == "divides":
                parts.append(c.Divides(side, self._side(operator)))
            elif self.token.value == "[" and operator.value in ("==", "!="):
                member = self._one_of(side, self.values("[", "]"))
                parts.append(member if operator.value == "==" else c.outside(side, member))
            else:
                right = self._side(operator)
                parts.append(c.Comparison(side, operator.value, right))
                side = right
        return c.all_of(*parts)

    def _side(self, operator: Token) -> e.Expr:
        return self._as_expr(self.value(_ADD), operator)

    def _membership(self, side: e.Expr, operator: Token) -> c.Constraint:
        if operator.value == "not":
            self.expect("in", "after `not`")
            return c.outside(side, self._one_of(side, self.domain()))
        return self._one_of(side, self.domain())

    @staticmethod
    def _one_of(side: e.Expr, domain: Domain | None) -> c.Constraint:
        return c.AnyOf(()) if domain is None else c.is_in(side, domain)

    def domain(self) -> Domain | None:
        """Reads {1, 2, 3} or a..b step s; None for the empty set."""
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
        return Domain.from_range(lower, upper, step) if lower <= upper else None

    def values(self, opening: str, closing: str) -> Domain | None:
        """Reads a list of numbers in brackets."""
        self.expect(opening, "before the values")
        self.brackets += 1
        numbers: list[int] = []
        while not self.accept(closing):
            if numbers:
                self.expect(",", f"or `{closing}` between values")
            numbers.append(self.number())
        self.brackets -= 1
        return Domain.from_values(numbers) if numbers else None

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


def _short(value: Value | None) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
