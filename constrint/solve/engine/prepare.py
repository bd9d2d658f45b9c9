"""Prepares a problem for numpy: narrowed domains, axes, fixed and derived variables, and linked variables."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from constrint.errors import LimitReachedError
from constrint.model import AllOf, Calculation, Comparison, Constraint, Domain, Expr, Problem, Var, Word, is_in
from constrint.model.columns import ExactColumn, test
from constrint.model.expr import add, neg
from constrint.solve.budget import Budget
from constrint.solve.propagation import is_implied, propagate, substitute
from constrint.solve.space.axes import Axis, axis_from_domain

# Domains up to this size are filtered by evaluating constraints on them; larger ones are propagated first.
SMALL: Final = 4096
# Values filtered in one batch.
PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A constraint to evaluate, with the variables that are not fixed yet."""

    constraint: Constraint
    scope: frozenset[str]


@dataclass(slots=True)
class Prepared:
    """A problem prepared for the search: axes, remaining checks, fixed and derived variables."""

    axes: dict[str, Axis] = field(default_factory=dict)  #: Values of every variable that some check still touches.
    free: dict[str, Domain] = field(default_factory=dict)  #: Domains of variables that no check touches.
    fixed: dict[str, int] = field(default_factory=dict)  #: Variables with one value left.
    #: Variables whose value follows from others, in an order in which each can be computed.
    derived: dict[str, Expr] = field(default_factory=dict)
    checks: list[TableCheck] = field(default_factory=list)  #: Constraints over at least two unfixed variables.
    feasible: bool = True  #: False when a contradiction was found already.


def flatten(constraints: Iterable[Constraint], kept: Container[str] = ()) -> list[Constraint]:
    """Splits conjunctions into their parts, except words (`all_different`, `circuit`) that are `kept`."""
    flat: list[Constraint] = []
    for constraint in constraints:
        if isinstance(constraint, AllOf) and not (isinstance(constraint, Word) and constraint.word in kept):
            flat.extend(flatten(constraint.parts, kept))
        else:
            flat.append(constraint)
    return flat


def prepare(problem: Problem, budget: Budget) -> Prepared:
    """Simplify a problem as far as no combination of values is needed."""
    constraints = flatten(problem.constraints)
    domains: dict[str, Domain] = dict(problem.variables)
    state = Prepared()
    if any(d.size > SMALL for d in domains.values()):
        narrowed = propagate(domains, constraints)
        if narrowed is None:
            state.feasible = False
            return state
        domains = narrowed
        constraints = [c for c in _derive(domains, constraints, state) if not is_implied(c, domains)]
    touched = frozenset().union(*(c.variables for c in constraints)) if constraints else frozenset()
    for name, domain in domains.items():
        if name in state.derived:
            continue
        if domain.size == 1:
            state.fixed[name] = domain.lower
        elif name not in touched:
            state.free[name] = domain
        else:
            state.axes[name] = _listed(name, domain, budget)
    _filter(constraints, state, budget)
    return state


def _listed(name: str, domain: Domain, budget: Budget) -> Axis:
    limit = budget.limits.max_values
    if domain.size > limit:
        raise LimitReachedError(
            f"variable {name!r} still has {domain.size} values ({domain.lower}..{domain.upper}) left; "
            f"the search lists at most {limit}. Bound it more tightly or raise max_values."
        )
    # Values of 64 bits, and of 32 beside them where these suffice.
    budget.take_bytes(12 * domain.size, f"a list of the values of {name!r}")
    return axis_from_domain(domain)


def fixed_columns(fixed: Mapping[str, int]) -> dict[str, ExactColumn]:
    """Fixed variables as columns of one number."""
    return {name: ExactColumn(value, (value, value)) for name, value in fixed.items()}


def _filter(constraints: list[Constraint], state: Prepared, budget: Budget) -> None:
    """Applies constraints on at most one unfixed variable until none is left; keeps the others as checks."""
    waiting = constraints
    again = True
    while again:
        again = False
        fixed = fixed_columns(state.fixed)
        later: list[Constraint] = []
        for constraint in waiting:
            scope = [n for n in constraint.variables if n not in state.fixed]
            if len(scope) > 1:
                later.append(constraint)
                continue
            again |= _apply_alone(constraint, scope, fixed, state, budget)
            if not state.feasible:
                return
        waiting = later
    state.checks = [TableCheck(c, frozenset(n for n in c.variables if n not in state.fixed)) for c in waiting]
    linked = frozenset().union(*(c.scope for c in state.checks)) if state.checks else frozenset()
    for name in [n for n in state.axes if n not in linked]:
        # Only single-variable constraints touched it: its remaining values are free of the others.
        axis = state.axes.pop(name)
        state.free[name] = Domain.from_members(tuple(axis.values.tolist()))


def _apply_alone(
    constraint: Constraint, scope: list[str], fixed: dict[str, ExactColumn], state: Prepared, budget: Budget
) -> bool:
    """Filters one variable's axis; returns True when that fixed the variable."""
    if not scope:
        verdict = test(constraint, {n: fixed[n] for n in constraint.variables})
        state.feasible &= bool(np.all(verdict))
        return False
    (name,) = scope
    axis = state.axes[name]
    others = {n: fixed[n] for n in constraint.variables if n != name}
    mask = np.empty(len(axis), dtype=bool)
    for start in range(0, len(axis), PIECE):
        piece = slice(start, start + PIECE)
        mask[piece] = test(constraint, {**others, name: ExactColumn(axis.values[piece], axis.bounds)})
        budget.stats.cells += len(mask[piece])
        budget.tick()
    if mask.all():
        return False
    kept = axis.keep(mask)
    state.axes[name] = kept
    if len(kept) == 0:
        state.feasible = False
    elif len(kept) == 1:
        value = kept.bounds[0]
        del state.axes[name]
        state.fixed[name] = value
        fixed[name] = ExactColumn(value, (value, value))
        return True
    return False


def _derive(domains: dict[str, Domain], constraints: list[Constraint], state: Prepared) -> list[Constraint]:
    """Replaces a large variable by an expression where an equality determines it: x == 2 * y removes x."""
    definitions: list[tuple[str, Expr]] = []
    while True:
        large = [n for n, d in domains.items() if d.size > SMALL and n not in dict(definitions)]
        step = _definition(sorted(large, key=lambda n: -domains[n].size), constraints)
        if step is None:
            break
        name, expr, used = step
        definitions.append((name, expr))
        rest = [substitute(c, name, expr) for c in constraints if c is not used]
        # The value must lie in the variable's own domain; an undefined value lies nowhere.
        constraints = [*rest, is_in(expr, domains[name])]
    for name, expr in reversed(definitions):
        state.derived[name] = expr
    return constraints


def _definition(names: list[str], constraints: list[Constraint]) -> tuple[str, Expr, Constraint] | None:
    for name in names:
        for constraint in constraints:
            if isinstance(constraint, Comparison) and constraint.op == "==" and name in constraint.variables:
                expr = _isolated(name, constraint)
                if expr is not None:
                    return name, expr, constraint
    return None


def _terms(expr: Expr) -> list[Expr]:
    return list(expr.args) if isinstance(expr, Calculation) and expr.op == "add" else [expr]


def _isolated(name: str, equality: Comparison) -> Expr | None:
    """Solves an equality for a variable that occurs in it once, as a bare term."""
    terms = _terms(equality.left) + [neg(t) for t in _terms(equality.right)]
    mine = [t for t in terms if name in t.variables]
    if len(mine) != 1 or len(terms) < 2:
        return None
    (term,) = mine
    rest = [t for t in terms if t is not term]
    total = add(*rest)
    if isinstance(term, Var):
        return neg(total)
    if isinstance(term, Calculation) and term.op == "neg" and isinstance(term.args[0], Var):
        return total
    return None


def components(names: Iterable[str], scopes: Iterable[frozenset[str]]) -> list[list[str]]:
    """Groups variables that are linked, directly or not, by some scope."""
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for scope in scopes:
        first, *rest = scope
        for other in rest:
            leader[find(other)] = find(first)
    groups: dict[str, list[str]] = {}
    for name in leader:
        groups.setdefault(find(name), []).append(name)
    return list(groups.values())
