"""Propagation: narrows domains to a fixed point without trying combinations. Sound, not complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from constrint.model import (
    AllOf,
    AnyOf,
    Calculation,
    Comparison,
    Const,
    Constraint,
    Divides,
    Domain,
    Expr,
    Implies,
    InTable,
    IsIn,
    Not,
    Truth,
    Var,
    Word,
)
from constrint.model.columns import decided
from constrint.model.divisors import FACTOR_LIMIT, divisors
from constrint.model.expr import is_total
from constrint.model.logic import rebuilt
from constrint.model.operations import step
from constrint.solve.intervals import Contradiction, Domains, narrow

# Bounds of cyclic constraints on huge ranges can creep one step at a time; narrowing less is still sound.
MAX_ROUNDS: Final = 60
MAX_DIVISORS: Final = 1 << 16
# Longer tables narrow nothing: a pass over them in every round would take too long.
MAX_TABLE: Final = 20_000
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<=": ">", ">": "<=", "<": ">=", ">=": "<"}


def propagate(domains: dict[str, Domain], constraints: Sequence[Constraint]) -> dict[str, Domain] | None:
    """Narrows domains.

    Returns:
        The narrowed domains, or None when some variable has no value left (no solution exists).
    """
    state = Domains(dict(domains))
    rules = [normal(c) for c in constraints]
    dirty: set[str] | None = None
    try:
        for _ in range(MAX_ROUNDS):
            state.changed = set()
            for rule in rules:
                if dirty is None or rule.variables & dirty or rule.variables & state.changed:
                    revise(state, rule)
            if not state.changed:
                break
            dirty = state.changed
    except Contradiction:
        return None
    return state.of


def is_implied(rule: Constraint, domains: Mapping[str, Domain]) -> bool:
    """Whether the domains alone show that a rule always holds; False where that takes more than bounds and steps."""
    state = Domains(dict(domains))
    if isinstance(rule, Comparison) and is_total(rule.left) and is_total(rule.right):
        a, b = state.bounds(rule.left), state.bounds(rule.right)
        if a is not None and b is not None and decided(rule.op, a, b):
            return True
        remainder, number = rule.left, rule.right
        if (
            rule.op == "=="
            and isinstance(remainder, Calculation)
            and remainder.op == "mod"
            and isinstance(number, Const)
        ):
            modulus = state.bounds(remainder.args[1])
            return (
                modulus is not None
                and modulus[0] == modulus[1]
                and _leaves(remainder.args[0], number.number, modulus[0], domains)
            )
        return False
    if isinstance(rule, Divides) and isinstance(rule.divisor, Const) and rule.divisor.number:
        return _leaves(rule.number, 0, abs(rule.divisor.number), domains)
    if isinstance(rule, IsIn) and isinstance(rule.expr, Var):
        own, allowed = domains[rule.expr.name], rule.domain
        if allowed.listed is not None:
            return own.size <= len(allowed.listed) and all(v in allowed for v in own)
        inside = allowed.lower <= own.lower and own.upper <= allowed.upper
        return inside and _leaves(rule.expr, allowed.lower % allowed.step, allowed.step, domains)
    if isinstance(rule, IsIn) and is_total(rule.expr) and rule.domain.listed is None and rule.domain.step == 1:
        bounds = state.bounds(rule.expr)
        return bounds is not None and rule.domain.lower <= bounds[0] and bounds[1] <= rule.domain.upper
    return isinstance(rule, AnyOf) and any(is_implied(part, domains) for part in rule.parts)


def _leaves(expr: Expr, remainder: int, modulus: int, domains: Mapping[str, Domain]) -> bool:
    """Whether a range of values leaves one remainder throughout."""
    if not isinstance(expr, Var) or domains[expr.name].listed is not None:
        return False
    domain = domains[expr.name]
    return domain.lower % modulus == remainder and (domain.size == 1 or domain.step % modulus == 0)


def normal(item: Constraint) -> Constraint:
    """Normalise: negations move inwards where that is equivalent, implications become disjunctions."""
    if isinstance(item, Implies):
        return AnyOf((normal(Not(item.condition)), normal(item.consequence)))
    if isinstance(item, (AllOf, AnyOf)):
        return (AllOf if isinstance(item, AllOf) else AnyOf)(tuple(normal(p) for p in item.parts))
    if not isinstance(item, Not):
        return item
    part = item.part
    if isinstance(part, Not):
        return normal(part.part)
    if isinstance(part, Implies):
        return AllOf((normal(part.condition), normal(Not(part.consequence))))
    if isinstance(part, (AllOf, AnyOf)):
        other = AnyOf if isinstance(part, AllOf) else AllOf
        return other(tuple(normal(Not(p)) for p in part.parts))
    if isinstance(part, Comparison) and is_total(part.left) and is_total(part.right):
        return Comparison(part.left, _OPPOSITE[part.op], part.right)
    return item


def revise(state: Domains, rule: Constraint) -> None:
    """Narrows domains by one rule."""
    step()
    if isinstance(rule, Comparison):
        _compare(state, rule)
    elif isinstance(rule, Divides):
        _divides(state, rule.divisor, rule.number)
    elif isinstance(rule, IsIn):
        _member(state, rule)
    elif isinstance(rule, InTable):
        _tabled(state, rule)
    elif isinstance(rule, AllOf):
        for part in rule.parts:
            revise(state, part)
    elif isinstance(rule, AnyOf):
        _any_of(state, rule)


def _compare(state: Domains, rule: Comparison) -> None:
    left, op, right = rule.left, rule.op, rule.right
    if op in (">=", ">"):
        left, op, right = right, ("<=" if op == ">=" else "<"), left
    a, b = state.bounds(left), state.bounds(right)
    if op == "==":
        _equal(state, left, right)
    elif op == "!=":
        if a is not None and b is not None and a[0] == a[1] == b[0] == b[1]:
            raise Contradiction(str(rule))
        _differ(state, left, b)
        _differ(state, right, a)
    else:
        slack = 0 if op == "<=" else 1
        if b is not None:
            narrow(state, left, None, b[1] - slack)
        if a is not None:
            narrow(state, right, a[0] + slack, None)


def _differ(state: Domains, side: Expr, other: tuple[int, int] | None) -> None:
    if not isinstance(side, Var) or other is None or other[0] != other[1]:
        return
    domain = state.of[side.name]
    if domain.listed is not None and other[0] in domain.listed:
        state.choose(side.name, [v for v in domain.listed if v != other[0]])
    elif domain.lower == other[0]:
        state.clip(side.name, other[0] + 1, None)
    elif domain.upper == other[0]:
        state.clip(side.name, None, other[0] - 1)


def _equal(state: Domains, left: Expr, right: Expr) -> None:
    for _ in range(2):
        b = state.bounds(right)
        if b is not None:
            narrow(state, left, b[0], b[1])
            if b[0] == b[1]:
                _equals_number(state, left, b[0])
        left, right = right, left
    if isinstance(left, Var) and isinstance(right, Var):
        for one, other in ((left, right), (right, left)):
            listed = state.of[other.name].listed
            if listed is not None:
                state.intersect(one.name, listed)


def _equals_number(state: Domains, expr: Expr, number: int) -> None:
    """Uses expr == number: factors of a product divide it, a remainder of 0 is divisibility."""
    if not isinstance(expr, Calculation):
        return
    if expr.op == "mul" and number != 0:
        for factor in expr.args:
            _divides_number(state, factor, number)
    elif expr.op == "mod":
        modulus = state.bounds(expr.args[1])
        if number == 0:
            _divides(state, expr.args[1], expr.args[0])
        elif isinstance(expr.args[0], Var) and modulus is not None and modulus[0] == modulus[1] > 0:
            if not 0 <= number < modulus[0]:
                raise Contradiction(str(expr))
            state.congruent(expr.args[0].name, number, modulus[0])


def _divides(state: Domains, divisor: Expr, number: Expr) -> None:
    """Uses that `divisor`, which is not 0, divides `number`."""
    d, n = state.bounds(divisor), state.bounds(number)
    if d == (0, 0):
        raise Contradiction(str(divisor))
    if d is not None and d[0] == 0:
        narrow(state, divisor, 1, None)
    if n is not None and n[0] == n[1] != 0:
        _divides_number(state, divisor, n[0])
    elif n is not None and (n[0] > 0 or n[1] < 0):
        largest = max(abs(n[0]), abs(n[1]))
        narrow(state, divisor, -largest, largest)
    if d is not None and d[0] == d[1] and isinstance(number, Var):
        state.congruent(number.name, 0, abs(d[0]))


def _divides_number(state: Domains, expr: Expr, number: int) -> None:
    """Uses that `expr` divides a number other than 0, and with it every factor of `expr`."""
    if isinstance(expr, Calculation) and expr.op in ("mul", "neg"):
        for factor in expr.args:
            _divides_number(state, factor, number)
    elif isinstance(expr, Var):
        size = abs(number)
        state.clip(expr.name, -size, size)
        if size < FACTOR_LIMIT:
            domain = state.of[expr.name]
            if domain.size <= MAX_DIVISORS and domain.listed is not None:
                state.choose(expr.name, [v for v in domain.listed if v != 0 and size % v == 0])
                return
            positive = divisors(size)
            negative = [-d for d in reversed(positive)] if domain.lower < 0 else []
            state.intersect(expr.name, [*negative, *positive])
    else:
        narrow(state, expr, -abs(number), abs(number))


def _member(state: Domains, rule: IsIn) -> None:
    domain = rule.domain
    narrow(state, rule.expr, domain.lower, domain.upper)
    if not isinstance(rule.expr, Var):
        return
    name = rule.expr.name
    if domain.listed is not None:
        state.intersect(name, domain.listed)
    elif domain.step > 1:
        state.congruent(name, domain.lower, domain.step)


def _tabled(state: Domains, rule: InTable) -> None:
    """Keeps the values of the rows that every variable still allows."""
    rows = rule.rows
    if len(rows) > MAX_TABLE:
        return
    for place, expr in enumerate(rule.exprs):
        bounds = state.bounds(expr)
        if bounds is None:
            continue
        domain = state.of[expr.name] if isinstance(expr, Var) else None
        rows = tuple(
            row for row in rows if bounds[0] <= row[place] <= bounds[1] and (domain is None or row[place] in domain)
        )
    if not rows:
        raise Contradiction(str(rule.exprs))
    for place, expr in enumerate(rule.exprs):
        values = sorted({row[place] for row in rows})
        if isinstance(expr, Var):
            state.intersect(expr.name, values)
        else:
            narrow(state, expr, values[0], values[-1])


def _holding(state: Domains, condition: Constraint, truth: bool) -> None:
    revise(state, normal(condition if truth else Not(condition)))


Domains.holding = _holding


def _any_of(state: Domains, rule: AnyOf) -> None:
    """Tries every alternative alone; keeps the values that at least one of them leaves."""
    alive: list[Domains] = []
    for part in rule.parts:
        trial = state.copy()
        try:
            revise(trial, part)
        except Contradiction:
            continue
        if not trial.changed:
            return
        alive.append(trial)
    if not alive:
        raise Contradiction("every alternative")
    for name in set.intersection(*(t.changed for t in alive)):
        options = [t.of[name] for t in alive]
        if all(o.listed is not None for o in options):
            state.intersect(name, sorted({v for o in options for v in o.listed or ()}))
        else:
            state.clip(name, min(o.lower for o in options), max(o.upper for o in options))
            if len(options) == 1:
                state.set(name, options[0])


# Remainders of squares, cubes and higher powers are few modulo these.
MODULI: Final = (4, 5, 7, 8, 9, 11, 13, 16)

Residues = frozenset[int]


def impossible(domains: Mapping[str, Domain], constraints: Iterable[Constraint]) -> bool:
    """Whether some equality is impossible because the remainders of its two sides always differ."""
    for constraint in constraints:
        if not isinstance(constraint, Comparison) or constraint.op != "==":
            continue
        for modulus in MODULI:
            if not _residues(constraint.left, domains, modulus) & _residues(constraint.right, domains, modulus):
                return True
    return False


def _residues(expr: Expr, domains: Mapping[str, Domain], modulus: int) -> Residues:
    """Remainders that an expression may leave."""
    if isinstance(expr, Const):
        return frozenset((expr.number % modulus,))
    if isinstance(expr, Var):
        return _of_domain(domains[expr.name], modulus)
    if isinstance(expr, Truth):
        return frozenset((0, 1 % modulus))
    assert isinstance(expr, Calculation)
    if expr.op == "neg":
        return frozenset(-a % modulus for a in _residues(expr.args[0], domains, modulus))
    if expr.op == "pow" and isinstance(expr.args[1], Const) and expr.args[1].number >= 0:
        exponent = expr.args[1].number
        return frozenset(pow(a, exponent, modulus) for a in _residues(expr.args[0], domains, modulus))
    if expr.op not in ("add", "mul"):
        return frozenset(range(modulus))
    first, *others = (_residues(a, domains, modulus) for a in expr.args)
    for other in others:
        first = frozenset((a + b if expr.op == "add" else a * b) % modulus for a in first for b in other)
    return first


def _of_domain(domain: Domain, modulus: int) -> Residues:
    values = domain.values
    if domain.listed is None:
        # A range repeats its remainders after at most `modulus` values.
        values = values[:modulus]
    return frozenset(v % modulus for v in values)


def substitute_expr(expr: Expr, name: str, value: Expr) -> Expr:
    """Replaces the variable `name` in an expression."""
    if name not in expr.variables:
        return expr
    if isinstance(expr, Var):
        return value
    if isinstance(expr, Truth):
        return Truth(substitute(expr.condition, name, value))
    assert isinstance(expr, Calculation)
    return rebuilt(expr, tuple(substitute_expr(a, name, value) for a in expr.args))


def substitute(item: Constraint, name: str, value: Expr) -> Constraint:
    """Replaces the variable `name` in a constraint; reason and name of the rule stay."""
    if name not in item.variables:
        return item
    new: Constraint
    if isinstance(item, Comparison):
        new = Comparison(substitute_expr(item.left, name, value), item.op, substitute_expr(item.right, name, value))
    elif isinstance(item, Divides):
        new = Divides(substitute_expr(item.divisor, name, value), substitute_expr(item.number, name, value))
    elif isinstance(item, IsIn):
        new = IsIn(substitute_expr(item.expr, name, value), item.domain)
    elif isinstance(item, Word):
        new = item.changed(lambda node: (substitute_expr if isinstance(node, Expr) else substitute)(node, name, value))
    elif isinstance(item, InTable):
        new = InTable(tuple(substitute_expr(e, name, value) for e in item.exprs), item.rows)
    elif isinstance(item, (AllOf, AnyOf)):
        new = type(item)(tuple(substitute(p, name, value) for p in item.parts))
    elif isinstance(item, Not):
        new = Not(substitute(item.part, name, value))
    else:
        assert isinstance(item, Implies)
        new = Implies(substitute(item.condition, name, value), substitute(item.consequence, name, value))
    return new.labelled(item.because, item.name, item.kind)
