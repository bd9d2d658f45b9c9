"""Expressions and constraints of the text language, by operator precedence.

Weakest first: `->` (to the right), `or` `|`, `and`, `not`, comparisons with `in` and `divides` (chains such
as a <= b < c are allowed), `+ -`, `* / // %`, unary `-`, `^` `**` (to the right). In the dialect "constrint"
`%` stands between `+ -` and `* / //`, so it separates whole terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from constrint.errors import ConstrintError, ParseError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.operations import BINARY
from constrint.model.ratio import Ratio, fractions
from constrint.model.text.arrays import ArrayReader
from constrint.model.text.functions import CARDINALITIES, KNOWN, LOOPS, called, no_function
from constrint.model.text.lexer import SourceText, Token
from constrint.model.text.members import Each, Listed, Literal, Number, TextArray, Value, kind_of, shown

MAX_NESTING: Final = 120


_IMPLIES, _OR, _AND, _NOT, _TEST, _ADD, _MOD, _MUL, _NEG, _POW = range(1, 11)
_LOGIC: Final = {"->": _IMPLIES, "or": _OR, "|": _OR, "and": _AND}
_TESTS: Final = frozenset(("==", "!=", "<=", "<", ">=", ">", "in", "divides", "not"))
#: The operations of the level of products, by their signs.
_ARITHMETIC: Final = {rule.sign: name for name, rule in BINARY.items() if rule.sign and name not in ("add", "pow")}


class DialectWarning(UserWarning):
    """Warns about text that the dialect "constrint" reads differently."""


class Grammar(ArrayReader):
    """Reads expressions and constraints from tokens.

    Attributes:
        names: Resolves a word to a variable or a number.
        named_number: Resolves a name with dots to a number.
    """

    def __init__(
        self,
        source: SourceText,
        words: list[Token],
        names: Callable[[str, int], Any],
        named_number: Callable[[str], e.Expr],
        constrint: bool = False,
    ) -> None:
        super().__init__(source, words)
        self.names, self.named_number, self.constrint = names, named_number, constrint
        self.nesting = 0

    def anything(self) -> Value:
        """Reads a number, a condition, a list or another value."""
        return self.value(_IMPLIES)

    def constraint(self) -> c.Constraint:
        """Reads a constraint."""
        token = self.token
        return self._as_constraint(self.value(_IMPLIES), token)

    def rule(self) -> tuple[list[c.Constraint], tuple[str, ...]]:
        """Reads a rule: a constraint, or those of a loop with their labels."""
        token = self.token
        value = self.value(_IMPLIES)
        if isinstance(value, Each):
            return list(value.parts), value.labels
        return [self._as_constraint(value, token)], ("",)

    def expression(self) -> e.Expr:
        """Reads an integer expression."""
        token = self.token
        return self._as_expr(self.value(_ADD), token)

    def objective(self) -> e.Expr | Ratio:
        """Reads a number that orders solutions: an integer expression or a fraction."""
        token = self.token
        return self.as_number(self.value(_ADD), token)

    def _as_constraint(self, value: Value, token: Token) -> c.Constraint:
        if isinstance(value, Each):
            return c.all_of(*value.parts)
        if isinstance(value, c.Constraint):
            return value
        if isinstance(value, e.Expr) and value.is_condition:
            return c.as_condition(value, "a rule")
        if self.token.value == "=":
            raise self.error("write `==` to compare", self.token)
        raise self.error(f"{kind_of(value)}, not a condition; compare it with something (== <= in)", token)

    def _as_expr(self, value: Value, token: Token) -> e.Expr:
        number = self.as_number(value, token)
        if isinstance(number, Ratio) and number.den == 1:
            return number.num
        if isinstance(number, Ratio):
            raise self.error(f"{kind_of(number)}, and an integer is expected; multiply it by {number.den}", token)
        return number

    def value(self, strength: int) -> Value:
        """Reads operators that bind at least as strongly as `strength`."""
        self.nesting += 1
        token = self.token
        if self.nesting > MAX_NESTING:
            raise self.error(f"nested more than {MAX_NESTING} levels deep; split the statement up", token)
        try:
            left: Value = self._prefix(strength)
            while True:
                operator = self._operator()
                level = self._level(operator)
                if operator is None or level < strength:
                    return left
                left = self._infix(left, token, operator, level)
        except ParseError:
            raise
        except ConstrintError as error:
            # A limit of the expressions themselves: add the position.
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

    def _prefix(self, strength: int) -> Any:
        token = self.token
        if self.accept("-"):
            self.skip_lines()
            number = self.as_number(self.value(_NEG), self.token)
            return -number if isinstance(number, Ratio) else e.neg(number)
        if token.kind == "word" and token.value == "not":
            self.next()
            self.skip_lines()
            if strength > _NOT:
                raise self.error("`not` cannot stand here; put it in brackets: (not ...)", token)
            return c.negate(self._as_constraint(self.value(_NOT), self.token))
        return self._atom()

    def _atom(self) -> Any:
        token = self.next()
        if token.kind == "number":
            return e.Const(int(token.value))
        if token.kind == "decimal":
            return self.decimal(token)
        if token.kind == "text":
            return Literal(token.value)
        if token.kind == "name":
            return self._named(token)
        if token.kind == "dotted":
            return self._dotted(token)
        if token.value == "(" and token.kind == "sign":
            return self._bracket()
        if token.value == "[" and token.kind == "sign":
            return self.indexed(self.listed(), token)
        if token.kind == "word":
            if token.value == "none":
                return Literal(None)
            if token.value in ("true", "false"):
                return c.AllOf(()) if token.value == "true" else c.AnyOf(())
            if token.value not in e.RESERVED:
                if self.token.value == "(" and self.token.kind == "sign" and token.value not in self.loops:
                    if token.value not in KNOWN:
                        raise self.error(no_function(token.value), token)
                    return self._call(token)
                return self._named(token)
        if token.value == "=":
            raise self.error("write `==` to compare", token)
        if token.value == "divides":
            raise self.error("`divides` stands between its numbers: write `7 divides a + b`", token)
        raise self.error(f"expected a number, a name or a bracket, found {self.describe(token)}", token)

    def _named(self, token: Token) -> Any:
        """The variable, number or array of a name, or one of an array's items."""
        if token.value in self.loops:
            return e.Const(self.loops[token.value])
        value = self.names(token.value, token.start)
        following = self.tokens[self.at]
        if not isinstance(value, TextArray) and following.kind == "sign" and following.value == "[":
            raise self.error(f"`{token.value[:40]}` is no array; declare one: var {token.value[:40]}[3] in 1..9", token)
        return self.indexed(value, token) if isinstance(value, TextArray) else value

    def _dotted(self, token: Token) -> e.Expr:
        """Read a dotted name, which is always a named number."""
        try:
            return self.named_number(token.value)
        except ConstrintError as error:
            raise self.error(str(error).rstrip("."), token) from None

    def _bracket(self) -> Value:
        """Read a bracket: one value, or several for a table."""
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

    def _call(self, name: Token) -> Any:
        """Reads the arguments of a function, or a loop that gives them."""
        if self.begins_loop(name.value in LOOPS):
            return called(self, name, self.looped(name.value in CARDINALITIES))
        variable, sign = (self.tokens[min(self.at + ahead, len(self.tokens) - 1)] for ahead in (1, 2))
        if name.value in LOOPS and variable.kind == "word" and (sign.kind, sign.value) == ("word", "in"):
            raise self.error(f"what a loop repeats stands in brackets: {name.value}(i in 1..3) (x[i] > 1)", name)
        self.next()
        self.brackets += 1
        args: list[tuple[Value, Token]] = []
        while not self.accept(")"):
            if args:
                self.expect(",", f"or `)` between the arguments of {name.value}")
            first = self.token
            args.append((self.value(_IMPLIES), first))
        self.brackets -= 1
        return called(self, name, args)

    def _infix(self, left: Value, start: Token, operator: Token, level: int) -> Value:
        if level == _TEST:
            return self._tests(left, start)
        if level in (_ADD, _MOD, _MUL):
            return self._run(self.as_number(left, start), operator, level)
        self.next()
        self.skip_lines()
        if level == _POW:
            base = self._as_expr(left, start)
            return e.Calculation("pow", (base, self._as_expr(self.value(_NEG), operator)))
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
        numbers: list[Number] = [left]
        while True:
            self.next()
            self.skip_lines()
            numbers.append(self.as_number(self.value(level + 1), self.token))
            again = self._operator()
            if again is None or self._level(again) != level:
                break
            signs.append(again)
        parts = [number for number in numbers if isinstance(number, e.Expr)]
        if len(parts) < len(numbers):
            return self._with_fractions(signs, numbers)
        if level == _ADD:
            return e.add(parts[0], *(p if s.value == "+" else e.neg(p) for s, p in zip(signs, parts[1:], strict=True)))
        self._warn(signs, parts)
        result, factors = parts[0], [parts[0]]
        for sign, part in zip(signs, parts[1:], strict=True):
            if sign.value == "*":
                factors.append(part)
                continue
            result = e.Calculation(_ARITHMETIC[sign.value], (e.mul(*factors), part))
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
                        f"`{sign.value}` needs integers; {kind_of(number)}: multiply it by its denominator", sign
                    )
                result = fractions(sign.value, result, part)
            elif sign.value in ("+", "-"):
                result = e.add(result, part if sign.value == "+" else e.neg(part))
            else:
                result = (
                    e.mul(result, part) if sign.value == "*" else e.Calculation(_ARITHMETIC[sign.value], (result, part))
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
        tail = "".join(f" {v} {shown(p)}" for v, p in zip(values[at + 1 :], parts[at + 2 :], strict=True))
        head = shown(left) if left is not None else "..."
        warnings.warn(
            f"{self.source.name or 'text'}:{line}: `{head} % {shown(right)}{tail}` is read here as "
            f"`({head} % {shown(right)}){tail}`; ConstrINT reads `{head} % ({shown(right)}{tail})`. "
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
                parts.append(self.one_of(side, self.values("[", "]"), start, inverted=operator.value == "!="))
            else:
                right = self.value(_ADD)
                parts.append(self.compared(side, operator, right))
                side, chained = right, True
        return c.all_of(*parts)

    def _membership(self, side: Value, start: Token, operator: Token) -> c.Constraint:
        if operator.value == "not":
            self.expect("in", "after `not`")
        if isinstance(side, Listed):
            rows = self.rows(side)
            parts = [part for part in rows.operands() if isinstance(part, e.Expr)]
            return rows if operator.value == "in" else c.with_values(parts, c.negate(rows))
        return self.one_of(side, self.members(), start, inverted=operator.value == "not")
