"""Builds a CP-SAT model of a problem, every expression bounded first.

An expression becomes a linear term with bounds and the literals that say that it has a value. Helper
variables are functions of the problem's variables, so that every solution is listed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from constrint.errors import UndefinedValueError, UnsupportedError
from constrint.model import (
    AllOf,
    AnyOf,
    Calculation,
    Comparison,
    Const,
    Constraint,
    Divides,
    Domain,
    Element,
    Expr,
    Implies,
    InTable,
    IsIn,
    Not,
    Truth,
    Var,
    Word,
)
from constrint.model.constraint import OPERATORS
from constrint.model.operations import (
    BINARY,
    Interval,
    abs_bounds,
    add_bounds,
    apply,
    floordiv_bounds,
    fold,
    mod_bounds,
    mul_bounds,
    neg_bounds,
    pow_bounds,
)
from constrint.solve.backends.cpsat_words import require_word

# CP-SAT adds up bounds in 64 bits; below this magnitude a handful of terms is safe.
SAFE: Final = 1 << 50
# A function without an encoding of its own becomes a table of at most this many rows.
MAX_TABLE: Final = 20_000
# CP-SAT 9.15 loses rows of tables with wider values (4294967302 beside -2): these are listed by their place.
TABLE_LIMIT: Final = 1 << 31
# A constraint over at most this many combinations is listed instead of translated.
MAX_LISTED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Term:
    """A linear term of the model, its bounds, and the literals that must hold for it to have a value."""

    linear: Any
    bounds: Interval
    defined: tuple[Any, ...] = ()


class ModelBuilder:
    """Translates expressions and constraints into one CP-SAT model."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        from ortools.sat.python import cp_model

        self.library = cp_model
        self.model: Any = cp_model.CpModel()
        self.domains = domains
        self.variables: dict[str, Any] = {n: self._variable(n, d) for n, d in domains.items()}
        self._terms: dict[tuple[Any, ...], Term] = {}
        self._true: Any = None
        self._places: dict[str, Any] = {}

    def _variable(self, name: str, domain: Domain) -> Any:
        self._check((domain.lower, domain.upper), f"variable {name!r}")
        if domain.listed is not None:
            return self.model.new_int_var_from_domain(self.library.Domain.from_values(domain.listed), name)
        if domain.step == 1 or domain.size == 1:
            return self.model.new_int_var(domain.lower, domain.upper, name)
        var = self.model.new_int_var(domain.lower, domain.upper, name)
        times = self.model.new_int_var(0, domain.size - 1, "")
        self.model.add(var == times * domain.step + domain.lower)
        return var

    def _check(self, bounds: Interval | None, what: object) -> Interval:
        if bounds is None or max(abs(bounds[0]), abs(bounds[1])) > SAFE:
            raise UnsupportedError(
                f"{what} may leave the range of {SAFE} that is safe in CP-SAT; "
                "bound it more tightly or use the native back-end."
            )
        return bounds

    def new(self, bounds: Interval, what: object) -> Any:
        """A new variable of the model within bounds."""
        self._check(bounds, what)
        return self.model.new_int_var(*bounds, "")

    def _constant(self, truth: bool) -> Any:
        if self._true is None:
            self._true = self.model.new_constant(1)
        return self._true if truth else ~self._true

    def _both(self, literals: tuple[Any, ...]) -> Any:
        """A literal equivalent to the conjunction of `literals`."""
        if len(literals) == 1:
            return literals[0]
        result = self.model.new_bool_var("")
        self.model.add_bool_and(literals).only_enforce_if(result)
        self.model.add_bool_or([~x for x in literals]).only_enforce_if(~result)
        return result

    def optimise(self, expr: Expr, maximise: bool) -> None:
        """Sets the objective; it must have a value."""
        term = self.term(expr)
        for literal in term.defined:
            self.model.add(literal == 1)
        (self.model.maximize if maximise else self.model.minimize)(term.linear)

    # Expressions

    def term(self, expr: Expr) -> Term:
        """Translates an expression."""
        key = expr.key()
        if key not in self._terms:
            self._terms[key] = self._translate(expr)
        return self._terms[key]

    def _translate(self, expr: Expr) -> Term:
        if isinstance(expr, Var):
            domain = self.domains[expr.name]
            return Term(self.variables[expr.name], (domain.lower, domain.upper))
        if isinstance(expr, Const):
            self._check((expr.number, expr.number), f"the number {expr}")
            return Term(expr.number, (expr.number, expr.number))
        if isinstance(expr, Truth):
            return Term(self.literal(expr.condition), (0, 1))
        assert isinstance(expr, Calculation)
        if isinstance(expr, Element):
            return self._element(expr)
        return fold(
            expr.op,
            [self.term(a) for a in expr.args],
            lambda op, a: _negated(a) if op == "neg" else self._absolute(a, expr),
            lambda op, a, b: self._binary(op, a, b, expr),
        )

    def _element(self, expr: Element) -> Term:
        """One literal per place of the index; where it holds, the target is that item."""
        index = self.term(expr.args[0])
        low, high = max(index.bounds[0], 0), min(index.bounds[1], len(expr.args) - 2)
        if low > high:
            return Term(0, (0, 0), (self._constant(False),))
        items = [self.term(item) for item in expr.args[1 + low : 2 + high]]
        bounds = min(i.bounds[0] for i in items), max(i.bounds[1] for i in items)
        target = self.new(bounds, expr)
        here = [self.decided(index.linear, "==", low + place) for place in range(len(items))]
        there = []
        for literal, item in zip(here, items, strict=True):
            self.model.add(target == item.linear).only_enforce_if(literal)
            there.append(self._all([literal, *item.defined]))
        self.model.add(target == bounds[0]).only_enforce_if(self._all([~literal for literal in here]))
        everywhere = index.bounds == (low, high) and not any(item.defined for item in items)
        has_value = () if everywhere else (~self._all([~literal for literal in there]),)
        return Term(target, bounds, (*index.defined, *has_value))

    def _absolute(self, a: Term, what: object) -> Term:
        bounds = abs_bounds(a.bounds)
        target = self.new(bounds, what)
        self.model.add_abs_equality(target, a.linear)
        return Term(target, bounds, a.defined)

    def _binary(self, op: str, a: Term, b: Term, what: object) -> Term:
        defined = (*a.defined, *b.defined)
        if op == "add":
            bounds = self._check(add_bounds(a.bounds, b.bounds), what)
            return Term(a.linear + b.linear, bounds, defined)
        if op == "mul":
            return self._product(a, b, what)
        if op in ("min", "max"):
            bounds = self._check(BINARY[op].bounds(a.bounds, b.bounds), what)
            target = self.new(bounds, what)
            equality = self.model.add_min_equality if op == "min" else self.model.add_max_equality
            equality(target, [a.linear, b.linear])
            return Term(target, bounds, defined)
        if op in ("floordiv", "mod", "div"):
            return self._division(op, a, b, what)
        if op == "ceildiv":
            return _negated(self._division("floordiv", _negated(a), b, what))
        if op == "pow" and b.bounds[0] == b.bounds[1] >= 0 and b.bounds[1] <= 64:
            return self._power(a, b, what)
        return self._table(op, a, b, what)

    def _product(self, a: Term, b: Term, what: object) -> Term:
        bounds = self._check(mul_bounds(a.bounds, b.bounds), what)
        defined = (*a.defined, *b.defined)
        for one, other in ((a, b), (b, a)):
            if one.bounds[0] == one.bounds[1]:
                return Term(other.linear * one.bounds[0], bounds, defined)
        target = self.new(bounds, what)
        self.model.add_multiplication_equality(target, [a.linear, b.linear])
        return Term(target, bounds, defined)

    def _power(self, a: Term, b: Term, what: object) -> Term:
        exponent = b.bounds[0]
        bounds = self._check(pow_bounds(a.bounds, b.bounds), what)
        result = Term(1, (1, 1), (*a.defined, *b.defined))
        for _ in range(exponent):
            result = self._product(Term(a.linear, a.bounds), Term(result.linear, result.bounds), what)
        return Term(result.linear, bounds, (*a.defined, *b.defined))

    def _division(self, op: str, a: Term, b: Term, what: object) -> Term:
        """Quotient and remainder together: a = q * b + r, with r between 0 and b."""
        defined = (*a.defined, *b.defined)
        if b.bounds[0] <= 0 <= b.bounds[1]:
            b, nonzero = self._without_zero(b, what)
            defined = (*defined, nonzero)
        quotient_bounds = floordiv_bounds(a.bounds, b.bounds)
        rest_bounds = mod_bounds(a.bounds, b.bounds)
        quotient = Term(self.new(quotient_bounds, what), quotient_bounds)
        # The product is a - r: its bounds follow from those, not from the corners of q * b.
        low, high = a.bounds[0] - rest_bounds[1], a.bounds[1] - rest_bounds[0]
        product = self.new((low, high), what)
        rest = self.new(rest_bounds, what)
        if b.bounds[0] == b.bounds[1]:
            self.model.add(product == quotient.linear * b.bounds[0])
        else:
            self._check(mul_bounds(quotient_bounds, b.bounds), what)
            self.model.add_multiplication_equality(product, [quotient.linear, b.linear])
        self.model.add(product + rest == a.linear)
        self._between_zero_and(rest, b)
        if op == "mod":
            return Term(rest, rest_bounds, defined)
        if op == "div":
            defined = (*defined, self.decided(rest, "==", 0))
        return Term(quotient.linear, quotient_bounds, defined)

    def _without_zero(self, b: Term, what: object) -> tuple[Term, Any]:
        """Replaces a divisor of 0 by 1; the literal says where it was another."""
        nonzero = self.decided(b.linear, "!=", 0)
        bounds = min(b.bounds[0], 1), max(b.bounds[1], 1)
        safe = self.new(bounds, what)
        self.model.add(safe == b.linear).only_enforce_if(nonzero)
        self.model.add(safe == 1).only_enforce_if(~nonzero)
        self.model.add(safe != 0)
        return Term(safe, bounds), nonzero

    def _between_zero_and(self, rest: Any, b: Term) -> None:
        if b.bounds[0] > 0:
            self.model.add(rest >= 0)
            self.model.add(rest < b.linear)
            return
        if b.bounds[1] < 0:
            self.model.add(rest <= 0)
            self.model.add(rest > b.linear)
            return
        positive = self.decided(b.linear, ">=", 1)
        self.model.add(rest >= 0).only_enforce_if(positive)
        self.model.add(rest < b.linear).only_enforce_if(positive)
        self.model.add(rest <= 0).only_enforce_if(~positive)
        self.model.add(rest > b.linear).only_enforce_if(~positive)

    def _table(self, op: str, a: Term, b: Term, what: object) -> Term:
        """Encodes a function of two small operands as a table."""
        rows_a, rows_b = (range(t.bounds[0], t.bounds[1] + 1) for t in (a, b))
        if len(rows_a) * len(rows_b) > MAX_TABLE:
            raise UnsupportedError(
                f"{what} is a function of {len(rows_a)} x {len(rows_b)} values; CP-SAT gets a table of at most "
                f"{MAX_TABLE}. Bound the operands or use the native back-end."
            )
        rows: list[tuple[int, int, int, int]] = []
        for x, y in itertools.product(rows_a, rows_b):
            try:
                rows.append((x, y, apply(op, (x, y)), 1))
            except UndefinedValueError:
                rows.append((x, y, 0, 0))
        bounds = min(r[2] for r in rows), max(r[2] for r in rows)
        if max(map(abs, (*bounds, *a.bounds, *b.bounds))) >= TABLE_LIMIT:
            raise UnsupportedError(
                f"{what} has values beyond {TABLE_LIMIT}, which CP-SAT's tables do not hold; "
                "bound it more tightly or use the native back-end."
            )
        target = self.new(bounds, what)
        has_value = self.model.new_bool_var("")
        operands = [self.new(t.bounds, what) for t in (a, b)]
        for variable, t in zip(operands, (a, b), strict=True):
            self.model.add(variable == t.linear)
        self.model.add_allowed_assignments([*operands, target, has_value], rows)
        partial = () if all(r[3] for r in rows) else (has_value,)
        return Term(target, bounds, (*a.defined, *b.defined, *partial))

    # Constraints

    def decided(self, left: Any, op: str, right: Any) -> Any:
        """A literal that holds exactly where `left op right` holds."""
        literal = self.model.new_bool_var("")
        self._enforce(left, op, right, literal)
        return literal

    def _enforce(self, left: Any, op: str, right: Any, literal: Any) -> None:
        opposite = {"==": "!=", "!=": "==", "<=": ">", ">": "<=", "<": ">=", ">=": "<"}[op]
        for relation, when in ((op, literal), (opposite, ~literal)):
            self.model.add(_related(left, relation, right)).only_enforce_if(when)

    def require(self, item: Constraint) -> None:
        """Adds a constraint that must hold."""
        if self._listed(item):
            return
        if isinstance(item, Comparison):
            left, right = self.term(item.left), self.term(item.right)
            if _is_number(left.linear) and _is_number(right.linear):
                self.model.add(self.literal(item) == 1)
                return
            for literal in (*left.defined, *right.defined):
                self.model.add(literal == 1)
            self.model.add(_related(left.linear, item.op, right.linear))
        elif isinstance(item, Word) and require_word(self, item):
            return
        elif isinstance(item, InTable) and all(isinstance(e, Var) for e in item.exprs):
            self.model.add_allowed_assignments([self.term(e).linear for e in item.exprs], list(item.rows))
        elif isinstance(item, AllOf):
            for part in item.parts:
                self.require(part)
        else:
            self.model.add(self.literal(item) == 1)

    def _listed(self, item: Constraint) -> bool:
        """Adds a constraint over few combinations as the list of those that satisfy it: no helper variables."""
        names = sorted(item.variables)
        if not names or self._is_linear(item):
            return False
        wide = [max(abs(self.domains[n].lower), abs(self.domains[n].upper)) >= TABLE_LIMIT for n in names]
        follows, expr = ("", None) if any(wide) else _follows(item)
        free = [n for n in names if n != follows]
        if math.prod(self.domains[n].size for n in free) > MAX_LISTED:
            return False
        rows: list[tuple[int, ...]] = []
        for values in itertools.product(*(self.domains[n] for n in free)):
            row = dict(zip(free, values, strict=True))
            if expr is not None:
                try:
                    row[follows] = expr.value(row)
                except UndefinedValueError:
                    continue
                if row[follows] not in self.domains[follows]:
                    continue
            elif not item.holds(row):
                continue
            rows.append(tuple(row[n] for n in names))
        columns = [self._place(n) if is_wide else self.variables[n] for n, is_wide in zip(names, wide, strict=True)]
        if any(wide):
            places = [
                {v: i for i, v in enumerate(self.domains[n])} if w else {} for n, w in zip(names, wide, strict=True)
            ]
            rows = [tuple(at.get(v, v) for at, v in zip(places, row, strict=True)) for row in rows]
        self.model.add_allowed_assignments(columns, rows)
        return True

    def _is_linear(self, item: Constraint) -> bool:
        """Whether a constraint compares sums that are safe, which CP-SAT takes as they are."""
        if not (isinstance(item, Comparison) and _is_sum(item.left) and _is_sum(item.right)):
            return False
        try:
            self.term(item.left), self.term(item.right)
        except UnsupportedError:
            return False
        return True

    def _place(self, name: str) -> Any:
        """Index of a variable's value in its domain, as a variable."""
        if name not in self._places:
            values = list(self.domains[name])
            at = self.model.new_int_var(0, len(values) - 1, "")
            here = [self.model.new_bool_var("") for _ in values]
            self.model.add_exactly_one(here)
            self.model.add(sum(i * literal for i, literal in enumerate(here)) == at)
            self.model.add(sum(v * literal for v, literal in zip(values, here, strict=True)) == self.variables[name])
            self._places[name] = at
        return self._places[name]

    def literal(self, item: Constraint) -> Any:
        """A literal that holds exactly where the constraint holds."""
        if isinstance(item, Not):
            return ~self.literal(item.part)
        if isinstance(item, AllOf):
            return self._all([self.literal(p) for p in item.parts])
        if isinstance(item, AnyOf):
            return ~self._all([~self.literal(p) for p in item.parts])
        if isinstance(item, Implies):
            return ~self._all([self.literal(item.condition), ~self.literal(item.consequence)])
        return self._atom(item)

    def _all(self, literals: list[Any]) -> Any:
        return self._both(tuple(literals)) if literals else self._constant(True)

    def _atom(self, item: Constraint) -> Any:
        if isinstance(item, Comparison):
            left, right = self.term(item.left), self.term(item.right)
            if _is_number(left.linear) and _is_number(right.linear):
                truth = bool(_related(left.linear, item.op, right.linear))
                return self._all([*left.defined, *right.defined, self._constant(truth)])
            verdict = self.decided(left.linear, item.op, right.linear)
            return self._all([*left.defined, *right.defined, verdict])
        if isinstance(item, Divides):
            rest = self.term(Calculation("mod", (item.number, item.divisor)))
            return self._all([*rest.defined, self.decided(rest.linear, "==", 0)])
        if isinstance(item, InTable):
            return self._row_of(item)
        assert isinstance(item, IsIn)
        return self._member(item)

    def _row_of(self, item: InTable) -> Any:
        """A literal per value of a column, one per row that holds where all of its values do, and their disjunction."""
        if len(item.rows) > MAX_TABLE:
            raise UnsupportedError(
                f"a condition on a table of {len(item.rows)} rows; CP-SAT gets one of at most {MAX_TABLE}. "
                "Require the table by itself, or use the native back-end."
            )
        terms = [self.term(e) for e in item.exprs]
        values: list[dict[int, Any]] = []
        for place, term in enumerate(terms):
            values.append({v: self.is_value(term, v) for v in sorted({row[place] for row in item.rows})})
        rows = [self._all([known[v] for known, v in zip(values, row, strict=True)]) for row in item.rows]
        return self._all([*(x for t in terms for x in t.defined), ~self._all([~row for row in rows])])

    def is_value(self, term: Term, value: int) -> Any:
        """A literal that holds exactly where a term has a value."""
        if not term.bounds[0] <= value <= term.bounds[1]:
            return self._constant(False)
        return (
            self._constant(term.linear == value) if _is_number(term.linear) else self.decided(term.linear, "==", value)
        )

    def _member(self, item: IsIn) -> Any:
        term = self.term(item.expr)
        if _is_number(term.linear):
            return self._all([*term.defined, self._constant(term.linear in item.domain)])
        domain = item.domain
        self._check((domain.lower, domain.upper), str(item))
        if domain.listed is not None or domain.step == 1:
            listed = self.library.Domain.from_values(domain.listed or ())
            inside = listed if domain.listed is not None else self.library.Domain(domain.lower, domain.upper)
            literal = self.model.new_bool_var("")
            expr = self.library.LinearExpr.sum([term.linear])
            self.model.add_linear_expression_in_domain(expr, inside).only_enforce_if(literal)
            self.model.add_linear_expression_in_domain(expr, inside.complement()).only_enforce_if(~literal)
            return self._all([*term.defined, literal])
        offset = Calculation("add", (item.expr, Const(-domain.lower)))
        rest = self.term(Calculation("mod", (offset, Const(domain.step))))
        checks = [
            self.decided(term.linear, ">=", domain.lower),
            self.decided(term.linear, "<=", domain.upper),
            self.decided(rest.linear, "==", 0),
        ]
        return self._all([*term.defined, *checks])


def _is_sum(expr: Expr) -> bool:
    """Whether an expression is a sum of variables times numbers, which CP-SAT takes without helper variables."""
    if not isinstance(expr, Calculation):
        return isinstance(expr, (Var, Const))
    if expr.op == "mul":
        return sum(not isinstance(a, Const) for a in expr.args) <= 1 and all(map(_is_sum, expr.args))
    return expr.op in ("add", "neg") and all(map(_is_sum, expr.args))


def _follows(item: Constraint) -> tuple[str, Expr | None]:
    """The variable that an equality gives as an expression of the others; "" and None where there is none."""
    if isinstance(item, Comparison) and item.op == "==":
        for one, other in ((item.left, item.right), (item.right, item.left)):
            if isinstance(one, Var) and one.name not in other.variables:
                return one.name, other
    return "", None


def _negated(term: Term) -> Term:
    return Term(-term.linear, neg_bounds(term.bounds), term.defined)


def _is_number(linear: Any) -> bool:
    return isinstance(linear, int)


def _related(left: Any, op: str, right: Any) -> Any:
    return OPERATORS[op](left, right)
