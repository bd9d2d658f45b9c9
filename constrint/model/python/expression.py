"""Reads one restriction written as a Python expression into a constraint, with `ast`; nothing is ever evaluated
by Python.

Allowed: integers, names, `+ - * / // % **`, comparisons and chains of them, `in` and `not in` a list of
numbers, `and or not`, `min max abs`. The constraint holds exactly where Python would find the expression true;
where Python would raise (a division by zero) the comparison counts as false.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from constrint.errors import ConstrintError, ParseError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.python.float_trial import ARITHMETIC, first_difference
from constrint.model.python.quotient import EXACT_FLOAT, Arithmetic, InexactError, Number, Quotient

MAX_CHARACTERS: Final = 20_000
MAX_NESTING: Final = 80

T = TypeVar("T")
_COMPARISONS: Final[dict[type, str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_TOO_DEEP: Final = f"nested more than {MAX_NESTING} levels deep; split the restriction up"
_HINTS: Final[dict[type, str]] = {
    ast.BitAnd: "`&` is not supported; write `and` between conditions",
    ast.BitOr: "`|` is not supported; write `or` between conditions",
    ast.BitXor: "`^` is exclusive or in Python, which is not supported; a power is `**`",
    ast.LShift: "`<<` is not supported; write * 2 ** n",
    ast.RShift: "`>>` is not supported; write // 2 ** n",
    ast.Invert: "`~` is not supported; write `not` before a condition",
    ast.Is: "`is` is not supported; write ==",
    ast.IsNot: "`is not` is not supported; write !=",
    ast.IfExp: "`if ... else` is not supported; write (condition and a) or (not condition and b)",
    ast.Attribute: "attributes are not supported; use plain parameter names",
    ast.Subscript: "subscripts are not supported; use plain parameter names",
    ast.NamedExpr: "`:=` is not supported",
}


class _Place:
    """A restriction's text, to say where something stands."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source

    def error(self, message: str, line: int, column: int) -> ParseError:
        lines = self.text.split("\n")
        shown = "".join(ch if ch.isprintable() else " " for ch in lines[line - 1]) if line <= len(lines) else ""
        return ParseError(message, text="\n" * (line - 1) + shown, line=line, column=column, source=self.source)

    def at(self, node: ast.AST, message: str) -> ParseError:
        """An error at a node; ast counts columns in bytes of UTF-8."""
        line = getattr(node, "lineno", 1)
        lines = self.text.split("\n")
        prefix = lines[line - 1].encode()[: getattr(node, "col_offset", 0)] if line <= len(lines) else b""
        return self.error(message, line, len(prefix.decode(errors="replace")) + 1)


@dataclass(slots=True)
class Trials:
    """Steps left for comparisons whose rounding cannot be ruled out: these are tried on all values."""

    left: int = 400_000

    def spend(self, sides: Sequence[ast.expr], num_assignments: int) -> bool:
        """Takes the steps of one comparison; False when too few are left."""
        nodes = [type(node) for side in sides for node in ast.walk(side)]
        # A power may be long.
        steps = len(nodes) * num_assignments * (50 if ast.Pow in nodes else 1)
        affordable = steps <= self.left and len(nodes) <= 200
        self.left -= steps if affordable else 0
        return affordable


def read_restriction(
    text: str, domains: Mapping[str, Domain], source: str = "restriction", trials: Trials | None = None
) -> c.Constraint:
    """Reads a restriction.

    Args:
        text: A Python expression.
        domains: The parameters with their values: rounding of true quotients is ruled out by them.
        source: Where the text stands, for messages.
        trials: What may be spent on trying comparisons of rounded quotients, shared by restrictions.

    Raises:
        ParseError: Where the text is no expression of the supported kind, with line, column and a caret.
    """
    if len(text) > MAX_CHARACTERS:
        raise ParseError(
            f"a restriction of {len(text):,} characters; at most {MAX_CHARACTERS:,} are read", source=source
        )
    # Python refuses an indented expression.
    place = _Place(text.strip(), source)
    _check_nesting(place)
    return _Reader(place, domains, trials or Trials()).condition(_parsed(place), 0)


def _check_nesting(place: _Place) -> None:
    """Counts brackets and prefix operators first: Python's own parser may run out of stack."""
    if sum(map(place.text.count, ("(", "[", "{", "not", "-", "+", "~"))) <= MAX_NESTING:
        return
    depth = prefixes = 0
    for hit in re.finditer(r"\bnot\b|\S", place.text):
        token = hit.group()
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        prefixes = prefixes + 1 if token in ("not", "-", "+", "~") else 0
        if max(depth, prefixes) > MAX_NESTING:
            line = place.text.count("\n", 0, hit.start()) + 1
            column = hit.start() - place.text.rfind("\n", 0, hit.start())
            raise place.error(_TOO_DEEP, line, column)


def _parsed(place: _Place) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(place.text, mode="eval").body
    except SyntaxError as error:
        lines = place.text.split("\n")
        # Python gives no position for what is missing at the end.
        at = (error.lineno, error.offset) if error.lineno and error.offset else (len(lines), len(lines[-1]) + 1)
        raise place.error(f"not a Python expression: {error.msg}", *at) from None
    except ValueError:
        raise place.error("not a Python expression: it holds characters that Python cannot read", 1, 1) from None
    except (RecursionError, MemoryError):
        raise place.error("too long or nested too deep for Python's parser; split the restriction up", 1, 1) from None


class _Reader:
    """Turns the tree of one restriction into a constraint."""

    def __init__(self, place: _Place, domains: Mapping[str, Domain], trials: Trials) -> None:
        self.place, self.domains, self.trials = place, domains, trials
        self.arithmetic = Arithmetic(domains)

    def condition(self, node: ast.expr, depth: int) -> c.Constraint:
        """Reads a node whose truth counts."""
        self._deeper(node, depth)
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value, depth + 1) for value in node.values]
            joined = c.all_of if isinstance(node.op, ast.And) else c.any_of
            return self._guarded(node, lambda: joined(*parts))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return c.negate(self.condition(node.operand, depth + 1))
        if isinstance(node, ast.Compare):
            return self._chain(node, depth + 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return c.AllOf(()) if node.value else c.AnyOf(())
        return self._decided(node, lambda: self.arithmetic.truth(self.number(node, depth + 1)), [node])

    def _chain(self, node: ast.Compare, depth: int) -> c.Constraint:
        sides = [node.left, *node.comparators]
        parts = [
            self._test(node, op, left, right, depth)
            for op, (left, right) in zip(node.ops, itertools.pairwise(sides), strict=True)
        ]
        return self._guarded(node, lambda: c.all_of(*parts))

    def _test(self, node: ast.Compare, op: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> c.Constraint:
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._member(left, right, depth, isinstance(op, ast.In))
        sign = _COMPARISONS.get(type(op))
        if sign is None:
            raise self.place.at(node, _HINTS.get(type(op), "this comparison is not supported"))
        return self._equal_or(sign, left, right, depth)

    def _equal_or(self, sign: str, left: ast.expr, right: ast.expr, depth: int) -> c.Constraint:
        def read() -> c.Constraint:
            return self.arithmetic.compare(self.number(left, depth), sign, self.number(right, depth))

        return self._decided(left, read, [left, right], sign)

    def _member(self, left: ast.expr, right: ast.expr, depth: int, inside: bool) -> c.Constraint:
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            raise self.place.at(right, "`in` takes a list of numbers here: x in (1, 2, 4)")
        members: list[int] = []
        for item in right.elts:
            number = self._decided(item, lambda item=item: self.number(item, depth))  # type: ignore[misc]
            if not isinstance(number, e.Const):
                break
            members.append(number.number)
        try:
            value = self.number(left, depth)
        except InexactError:
            value = None
        if isinstance(value, e.Expr) and len(members) == len(right.elts):
            return self._guarded(right, lambda: (c.is_in if inside else c.not_in)(value, members))
        tests = [self._equal_or("==" if inside else "!=", left, item, depth) for item in right.elts]
        return self._guarded(right, lambda: (c.any_of if inside else c.all_of)(*tests))

    def number(self, node: ast.expr, depth: int) -> Number:
        """Reads a node whose value counts."""
        self._deeper(node, depth)
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            operand = self.number(node.operand, depth + 1)
            return self.arithmetic.negate(operand) if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp):
            return self._binary(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        kind = getattr(node, "op", node)
        if isinstance(node, (ast.Compare, ast.BoolOp)) or isinstance(kind, ast.Not):
            raise self.place.at(node, "a condition stands where a number is expected; join them by and, or")
        raise self.place.at(node, _HINTS.get(type(kind), f"{type(node).__name__} is not supported in a restriction"))

    def _constant(self, node: ast.Constant) -> Number:
        value = node.value
        if isinstance(value, (bool, int)):
            return self._guarded(node, lambda: e.Const(int(value)))
        if isinstance(value, float):
            if value.is_integer() and abs(value) <= EXACT_FLOAT:
                return Quotient(e.Const(int(value)), e.Const(1))
            raise self.place.at(node, f"the number {value} is no integer; write a fraction as a quotient: 1 / 2")
        raise self.place.at(node, f"only integers are supported, not {type(value).__name__}")

    def _name(self, node: ast.Name) -> e.Expr:
        if node.id in self.domains:
            return e.Var(node.id)
        near = difflib.get_close_matches(node.id, list(self.domains), n=1, cutoff=0.5)
        known = f"did you mean {near[0]!r}?" if near else f"the parameters are {', '.join(list(self.domains)[:20])}."
        raise self.place.at(node, f"there is no parameter {node.id!r}; {known}")

    def _call(self, node: ast.Call, depth: int) -> Number:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        plain = not node.keywords and not any(isinstance(arg, ast.Starred) for arg in node.args)
        if name not in ("min", "max", "abs") or not plain:
            raise self.place.at(node, "this call is not supported; only min(...), max(...) and abs(...) are")
        args = node.args
        if name != "abs" and len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
            args = args[0].elts
        if (len(args) != 1) if name == "abs" else (len(args) < 2 and args is node.args) or not args:
            raise self.place.at(node, f"{name} takes {'one number' if name == 'abs' else 'two or more numbers'}")
        numbers = [self.number(arg, depth + 1) for arg in args]
        return self._guarded(node, lambda: self.arithmetic.call(name, numbers))

    def _binary(self, node: ast.BinOp, depth: int) -> Number:
        """Reads the operators down the left side in a loop: long sums cost no nesting."""
        chain: list[ast.BinOp] = []
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp):
            if type(inner.op) not in ARITHMETIC:
                raise self.place.at(inner, _HINTS.get(type(inner.op), "this operator is not supported"))
            chain.append(inner)
            inner = inner.left
        value = self.number(inner, depth + 1)
        steps = [(ARITHMETIC[type(n.op)][0], self.number(n.right, depth + 1)) for n in reversed(chain)]
        return self._guarded(node, lambda: self._folded(value, steps))

    def _folded(self, value: Number, steps: list[tuple[str, Number]]) -> Number:
        for level, group in itertools.groupby(steps, key=lambda step: "+" if step[0] == "-" else step[0]):
            run = list(group)
            terms = [right for _, right in run if isinstance(right, e.Expr)]
            if level in ("+", "*") and isinstance(value, e.Expr) and len(terms) == len(run):
                signed = [t if sign != "-" else e.neg(t) for (sign, _), t in zip(run, terms, strict=True)]
                value = (e.add if level == "+" else e.mul)(value, *signed)
                continue
            for sign, right in run:
                value = self._applied(sign, value, right)
        return value

    def _applied(self, sign: str, left: Number, right: Number) -> Number:
        arithmetic = self.arithmetic
        if sign in ("+", "-"):
            return arithmetic.add(left, right, sign)
        methods: dict[str, Callable[[Number, Number], Number]] = {
            "*": arithmetic.multiply,
            "/": arithmetic.divide,
            "//": arithmetic.floor_divide,
            "%": arithmetic.modulo,
            "**": arithmetic.power,
        }
        return methods[sign](left, right)

    def _deeper(self, node: ast.expr, depth: int) -> None:
        if depth > 2 * MAX_NESTING:
            raise self.place.at(node, _TOO_DEEP)

    def _guarded(self, node: ast.AST, build: Callable[[], T]) -> T:
        """Says where a limit of the expressions was met."""
        try:
            return build()
        except ParseError:
            raise
        except ConstrintError as error:
            raise self.place.at(node, str(error)) from None

    def _decided(self, node: ast.expr, read: Callable[[], T], sides: Sequence[ast.expr] = (), sign: str = "!=") -> T:
        """Reads a test; where rounding might matter, all values are tried instead."""
        try:
            return self._guarded(node, read)
        except InexactError as error:
            reason = str(error)
        if not sides:
            raise self.place.at(node, f"{reason}; rewrite it with integers")
        self.arithmetic = Arithmetic(self.domains, trusting=True)
        try:
            constraint = self._guarded(node, read)
        except InexactError as error:
            raise self.place.at(node, f"{error}; rewrite it with integers") from None
        finally:
            self.arithmetic = Arithmetic(self.domains)
        assert isinstance(constraint, c.Constraint)
        if not self.trials.spend(sides, math.prod(self.domains[name].size for name in constraint.variables)):
            raise self.place.at(
                node, f"{reason}, and there are too many values to try; multiply by the divisor, or use //"
            )
        wrong = self._guarded(node, lambda: first_difference(constraint, sides, sign, self.domains))
        if wrong is not None:
            shown = ", ".join(f"{name} = {value}" for name, value in wrong.items())
            raise self.place.at(
                node, f"{reason}: for {shown} Python's rounding changes the answer; multiply by the divisor, or use //"
            )
        return constraint
