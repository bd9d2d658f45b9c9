"""Propagation: narrows domains to a fixed point without trying combinations. Sound, not complete.

Bounds travel through expressions in both directions. `4 divides x` gives x a step of 4; `x divides 100` leaves the
divisors of 100. Of a disjunction each alternative is tried alone; values that none of them leaves are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from constrint.model import (
    AllOf,
    AnyOf,
    Comparison,
    Constraint,
    Divides,
    Domain,
    Expr,
    Implies,
    IsIn,
    Not,
    Operation,
    Table,
    Var,
)
from constrint.model.divisors import FACTOR_LIMIT, divisors
from constrint.model.expr import is_total
from constrint.model.work import step
from constrint.solve.propagation.domains import Contradiction, Domains, narrow

# Bounds of cyclic constraints on huge ranges can creep one step at a time; narrowing less is still sound.
MAX_ROUNDS: Final = 60
MAX_DIVISORS: Final = 1 << 16
# Longer tables narrow nothing: looking through them in every round would take too long.
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


def normal(item: Constraint) -> Constraint:
    """Moves negations inwards where that keeps the meaning, and writes implications as alternatives."""
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
    elif isinstance(rule, Table):
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
    if not isinstance(expr, Operation):
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
    if isinstance(expr, Operation) and expr.op in ("mul", "neg"):
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


def _tabled(state: Domains, rule: Table) -> None:
    """Keeps the values of the rows that every variable still allows."""
    rows = rule.rows
    if len(rows) > MAX_TABLE:
        return
    for place, expr in enumerate(rule.exprs):
        known = state.bounds(expr)
        if known is None:
            continue
        domain = state.of[expr.name] if isinstance(expr, Var) else None
        rows = tuple(
            row for row in rows if known[0] <= row[place] <= known[1] and (domain is None or row[place] in domain)
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
