"""Reads one restriction written as a Python expression into a constraint, with `ast`; nothing is ever evaluated
by Python.

The constraint holds exactly where Python would find the expression true; where Python would raise (a division by zero)
the comparison counts as false. Integers, and floats whose rounding can be ruled out, become expressions of the model.
Other computations of Python (text, rounded floats, `x ** 0.5`) are evaluated for all values of the parameters in that
comparison (`evaluate`) and become a table.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, TypeVar

from constrint.errors import ConstrintError, ParseError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.expr import is_total
from constrint.model.logic import Element
from constrint.model.python.evaluate import (
    ARITHMETIC,
    HINTS,
    NotEvaluated,
    TooLong,
    Trials,
    answers,
    combinations,
    function_of,
    is_call,
)
from constrint.model.python.parameters import MAX_NESTING, TOO_DEEP, Parameters, TextPlace, rows_of
from constrint.model.python.quotient import Arithmetic, InexactError, Number, Quotient

MAX_CHARACTERS: Final = 20_000

T = TypeVar("T")
_COMPARISONS: Final[dict[type, str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def read_restriction(
    text: str, domains: Mapping[str, Domain], source: str = "restriction", trials: Trials | None = None
) -> c.Constraint:
    """Reads a restriction.

    Args:
        text: A Python expression.
        domains: The parameters with their values: rounding of true quotients is ruled out by them.
        source: Where the text stands, for messages.
        trials: Budget for deciding comparisons by trial of all values, shared by all restrictions.

    Returns:
        The constraint; where part of it became a table its reason is the text itself.

    Raises:
        ParseError: Where the text is no expression of the supported kind, with line, column and a caret.
    """
    if len(text) > MAX_CHARACTERS:
        raise ParseError(
            f"a restriction of {len(text):,} characters; at most {MAX_CHARACTERS:,} are read", source=source
        )
    # Python refuses an indented expression.
    place = TextPlace(text.strip(), source)
    reader = _RestrictionReader(place, domains, trials or Trials())
    constraint = reader.condition(place.parsed(), 0)
    return constraint.labelled(place.text) if reader.tried else constraint


def read_number(text: str, domains: Mapping[str, Domain], source: str = "expression") -> e.Expr:
    """Reads a Python expression whose value is a whole number, such as `tile_m * tile_n // 32`.

    Args:
        text: The expression; rounded division is written `//`.
        domains: The parameters with their values.
        source: Where the text stands, for messages.

    Raises:
        ParseError: Where the text is no such expression, with line, column and a caret.
    """
    if len(text) > MAX_CHARACTERS:
        raise ParseError(f"{len(text):,} characters; at most {MAX_CHARACTERS:,} are read", source=source)
    place = TextPlace(text.strip(), source)
    node = place.parsed()
    try:
        value = _RestrictionReader(place, domains, Trials()).number(node, 0)
    except InexactError as error:
        raise place.at(node, f"no whole number: {error}") from None
    if not isinstance(value, e.Expr):
        raise place.at(node, "a whole number is wanted; write // for a division that rounds down")
    return value


class _RestrictionReader:
    """Turns the tree of one restriction into a constraint."""

    def __init__(self, place: TextPlace, domains: Mapping[str, Domain], trials: Trials) -> None:
        self.place, self.domains, self.trials = place, domains, trials
        self.arithmetic = Arithmetic(domains)
        # Conditions without which Python raises inside the comparison that is being read.
        self.required: list[c.Constraint] = []
        self.parameters = Parameters(place, domains)
        self.tried = False

    def condition(self, node: ast.expr, depth: int) -> c.Constraint:
        """Read a node as a condition."""
        self._deeper(node, depth)
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value, depth + 1) for value in node.values]
            joined = c.all_of if isinstance(node.op, ast.And) else c.any_of
            return self._guarded(node, lambda: joined(*parts))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return c.negate(self.condition(node.operand, depth + 1))
        if isinstance(node, ast.Compare):
            return self._chain(node, depth + 1)
        if isinstance(node, ast.IfExp):
            test, yes, no = (self.condition(n, depth + 1) for n in (node.test, node.body, node.orelse))
            return self._guarded(node, lambda: c.any_of(c.all_of(test, yes), c.all_of(c.negate(test), no)))
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return c.AllOf(()) if node.value else c.AnyOf(())
        if is_call(node, "all") or is_call(node, "any"):
            items = _items(node)
            if items is not None:
                parts = [self.condition(item, depth + 1) for item in items]
                junction = c.all_of if is_call(node, "all") else c.any_of
                return self._guarded(node, lambda: junction(*parts))
        return self._decided(node, lambda: self.arithmetic.truth(self.number(node, depth + 1)), node)

    def _chain(self, node: ast.Compare, depth: int) -> c.Constraint:
        sides = [node.left, *node.comparators]
        parts = [
            self._test(node, op, left, right, depth)
            for op, (left, right) in zip(node.ops, itertools.pairwise(sides), strict=True)
        ]
        return self._guarded(node, lambda: c.all_of(*parts))

    def _test(self, node: ast.Compare, op: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> c.Constraint:
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._member(op, left, right, depth)
        whole = ast.copy_location(ast.Compare(left, [op], [right]), left)
        sign = _COMPARISONS.get(type(op))
        if sign is None:
            return self._tried(whole, node, HINTS[type(op)])

        def read() -> c.Constraint:
            return self.arithmetic.compare(self.number(left, depth), sign, self.number(right, depth))

        return self._decided(left, read, whole)

    def _member(self, op: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> c.Constraint:
        """Reads `left in right` or `left not in right`; a range of integers stays one."""
        inverted = isinstance(op, ast.NotIn)
        rows = rows_of(left, right, self.parameters)
        if rows is not None:
            return c.negate(rows) if inverted else rows

        def read() -> c.Constraint:
            if is_call(right, "range"):
                return self._within(left, right, inverted, depth)
            if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
                raise InexactError("`in` takes a list or a range here")
            members = [self.number(item, depth) for item in right.elts]
            value = self.number(left, depth)
            if isinstance(value, e.Expr) and all(isinstance(m, e.Const) for m in members):
                numbers = [m.number for m in members if isinstance(m, e.Const)]
                return (c.not_in if inverted else c.is_in)(value, numbers)
            sign, junction = ("!=", c.all_of) if inverted else ("==", c.any_of)
            return junction(*(self.arithmetic.compare(value, sign, member) for member in members))

        if isinstance(right, (ast.Tuple, ast.List, ast.Set)) and len(right.elts) > 1 and not _constants(right.elts):
            # One by one: some items may need to be tried, and each tries fewer parameters.
            sign = ast.NotEq() if inverted else ast.Eq()
            tests = [self._test(_compare(left, sign, item), sign, left, item, depth) for item in right.elts]
            return self._guarded(right, lambda: (c.all_of if inverted else c.any_of)(*tests))
        return self._decided(right, read, _compare(left, op, right))

    def _within(self, left: ast.expr, right: ast.expr, inverted: bool, depth: int) -> c.Constraint:
        assert isinstance(right, ast.Call)
        value = self.number(left, depth)
        numbers = [self.number(arg, depth) for arg in right.args]
        bounds = [b for b in numbers if isinstance(b, e.Expr)]
        if not isinstance(value, e.Expr) or len(bounds) < len(numbers) or not 1 <= len(bounds) <= 3:
            raise InexactError("a range of what may be no integers")
        constants = [b.number for b in bounds if isinstance(b, e.Const)]
        if len(constants) == len(bounds) and (len(constants) < 3 or constants[2] != 0):
            listed = range(*constants)
            return (c.not_in if inverted else c.is_in)(value, listed if listed.step > 0 else listed[::-1])
        low, high = (e.Const(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        if len(bounds) == 3 and not (isinstance(bounds[2], e.Const) and bounds[2].number == 1):
            raise InexactError("a range with a step and bounds that vary")
        if inverted:
            below, above = c.Comparison(value, "<", low), c.Comparison(value, ">=", high)
            return c.all_of(*(c.Comparison(b, "==", b) for b in (low, high, value)), c.any_of(below, above))
        return c.all_of(c.Comparison(low, "<=", value), c.Comparison(value, "<", high))

    def number(self, node: ast.expr, depth: int) -> Number:
        """Read a node as a number."""
        self._deeper(node, depth)
        name = self.parameters.name_of(node)
        if name is not None:
            return self.parameters.number(name)
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, depth)
        if isinstance(node, ast.BinOp):
            return self._binary(node, depth)
        if isinstance(node, ast.Compare):
            return self._truth(node, depth)
        if isinstance(node, ast.BoolOp):
            if all(map(_is_truth, node.values)):
                return self._truth(node, depth)
            raise InexactError("the value of `and` and `or` between numbers")
        if isinstance(node, ast.IfExp):
            test = self.condition(node.test, depth + 1)
            self.required += _evaluated(test)
            yes = self._chosen(node.body, c.negate(test), depth)
            no = self._chosen(node.orelse, test, depth)
            if isinstance(yes, e.Expr) and isinstance(no, e.Expr):
                return Element((e.Truth(test), no, yes))
            raise InexactError("`if` between fractions")
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        raise InexactError(HINTS.get(type(node), f"{type(node).__name__} is not supported in a restriction"))

    def _truth(self, node: ast.expr, depth: int) -> e.Expr:
        """A condition as 0 or 1; where Python raises in it, the comparison around it has no value."""
        for part in ast.walk(node):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
                divisor = self.number(part.right, depth + 1)
                if not isinstance(divisor, e.Expr) or not self.arithmetic.bounds.nonzero(divisor):
                    raise InexactError("a quotient by what may be 0 within a comparison of conditions")
        rule = self.condition(node, depth + 1)
        items = _items(node) if is_call(node, "any") or is_call(node, "all") else None
        # Python computes all items of a list before it looks at one.
        for each in [rule] if items is None else [self.condition(item, depth + 2) for item in items]:
            self.required += _evaluated(each)
        return e.Truth(rule)

    def _chosen(self, node: ast.expr, otherwise: c.Constraint, depth: int) -> Number:
        """Reads one side of `a if b else c`, which Python computes unless `otherwise` holds."""
        outer, self.required = self.required, []
        value = self.number(node, depth + 1)
        self.required = outer + [c.any_of(otherwise, part) for part in self.required]
        return value

    def _constant(self, node: ast.Constant) -> Number:
        value = node.value
        if isinstance(value, (bool, int)):
            return self._guarded(node, lambda: e.Const(int(value)))
        if isinstance(value, float) and math.isfinite(value):
            exact = Fraction(value)
            return Quotient(e.Const(exact.numerator), e.Const(exact.denominator))
        raise InexactError("a value that is no number")

    def _unary(self, node: ast.UnaryOp, depth: int) -> Number:
        if isinstance(node.op, ast.Not):
            return self._truth(node, depth)
        operand = self.number(node.operand, depth + 1)
        if isinstance(node.op, ast.Invert):
            if not isinstance(operand, e.Expr):
                raise InexactError("`~` of a fraction")
            return e.add(e.neg(operand), e.Const(-1))
        return self.arithmetic.negate(operand) if isinstance(node.op, ast.USub) else operand

    def _call(self, node: ast.Call, depth: int) -> Number:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        args = node.args
        if is_call(node, "sum") and (items := _items(node)) is not None:
            terms = [self.number(item, depth + 1) for item in items]
            return self._guarded(node, lambda: self._folded(e.Const(0), [("+", term) for term in terms]))
        if name in ("bool", "int", "float") and is_call(node, name) and len(args) == 1:
            if name == "bool":
                return self._truth(args[0], depth)
            value = self.number(args[0], depth + 1)
            return self._guarded(node, lambda: self.arithmetic.converted(name, value))
        if name in ("any", "all") and is_call(node, name) and _items(node) is not None:
            return self._truth(node, depth)
        if name not in ("min", "max", "abs") or not is_call(node, name):
            raise InexactError("this call")
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
                raise self.place.at(inner, "this operator is not supported")
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
                value = self.arithmetic.apply(sign, value, right)
        return value

    def _deeper(self, node: ast.expr, depth: int) -> None:
        if depth > 2 * MAX_NESTING:
            raise self.place.at(node, TOO_DEEP)

    def _guarded(self, node: ast.AST, build: Callable[[], T]) -> T:
        """Add the position to an error about a limit of the expressions."""
        try:
            return build()
        except ParseError:
            raise
        except ConstrintError as error:
            raise self.place.at(node, str(error)) from None

    def _decided(self, node: ast.expr, read: Callable[[], c.Constraint], whole: ast.expr) -> c.Constraint:
        """Read a test exactly, or else evaluate it for all values."""

        def exactly() -> c.Constraint:
            outer, self.required = self.required, []
            try:
                rule = read()
                return c.all_of(*self.required, rule)
            finally:
                self.required = outer

        try:
            return self._guarded(node, exactly)
        except InexactError as error:
            return self._tried(whole, node, str(error))

    def _tried(self, whole: ast.expr, node: ast.expr, reason: str) -> c.Constraint:
        """Evaluates a condition for all values."""
        names = self.parameters.names_in(whole)
        try:
            function = function_of(whole, {name: place for place, name in enumerate(names)}, self.parameters.name_of)
        except NotEvaluated as error:
            raise self.place.at(error.node, error.message) from None
        except RecursionError:
            raise self.place.at(node, TOO_DEEP) from None
        number = combinations(names, self.domains)
        if not self.trials.spend(whole, number):
            raise self.place.at(
                node,
                f"{reason}, and there are too many values to try ({number:,} combinations); "
                "write it with integers: multiply by the divisor, or use //",
            )
        try:
            found = answers(function, names, self.domains)
        except TooLong as error:
            raise self.place.at(node, f"{reason}, and trying all values meets {error}") from None
        if found.raised:
            raise self.place.at(node, f"Python raises for all values ({found.raised})")
        self.tried = True
        return self._guarded(node, lambda: found.constraint(self.parameters.variable))


def _compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.Compare:
    return ast.copy_location(ast.Compare(left, [op], [right]), right)


def _items(node: ast.expr) -> list[ast.expr] | None:
    """The items of the list that a call's only argument is."""
    assert isinstance(node, ast.Call)
    argument = node.args[0] if len(node.args) == 1 else None
    if not isinstance(argument, (ast.List, ast.Tuple)):
        return None
    return None if any(isinstance(item, ast.Starred) for item in argument.elts) else argument.elts


def _evaluated(rule: c.Constraint) -> list[c.Constraint]:
    """The conditions under which Python computes a condition without raising, as far as it looks at its parts."""
    if isinstance(rule, c.Not):
        return _evaluated(rule.part)
    if isinstance(rule, (c.AllOf, c.AnyOf)):
        needed: list[c.Constraint] = []
        decided: list[c.Constraint] = []
        for part in rule.parts:
            needed += [c.any_of(*decided, own) for own in _evaluated(part)]
            decided.append(part if isinstance(rule, c.AnyOf) else c.negate(part))
        return needed
    sides = [part for part in rule.operands() if isinstance(part, e.Expr) and not is_total(part)]
    values: list[c.Constraint] = [c.Comparison(side, "==", side) for side in sides]
    return [*values, c.Comparison(rule.divisor, "!=", e.Const(0))] if isinstance(rule, c.Divides) else values


def _constants(items: list[ast.expr]) -> bool:
    """Whether all items are plain constants, negative numbers included."""
    return all(isinstance(item.operand if isinstance(item, ast.UnaryOp) else item, ast.Constant) for item in items)


def _is_truth(node: ast.expr) -> bool:
    """Whether Python's value of a node is True or False."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_truth, node.values))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
