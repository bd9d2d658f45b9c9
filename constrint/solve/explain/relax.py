"""The nearest ways out of a contradiction: for each rule in it the smallest change that is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from constrint.model import Comparison, Const, Constraint, Domain, Expr, Problem, Var
from constrint.solve.explain.conflict import (
    QUESTION,
    Conflict,
    ConflictMember,
    minimal_conflict,
    rule_text,
    widened,
)
from constrint.solve.optimise import solve
from constrint.solve.solution import Solution


@dataclass(frozen=True)
class Relaxation:
    """One change after which the whole problem has a solution.

    Attributes:
        member: The rule that is changed.
        text: The change as a sentence.
        problem: The changed problem.
        solution: A solution of the changed problem.
        condition: The change as a condition: "num_stages <= 2".
        cost: How far the rule is moved, relative to its bound; infinite for a rule that is dropped.
    """

    member: ConflictMember
    text: str
    problem: Problem
    solution: dict[str, int]
    condition: str = ""
    cost: float = math.inf

    def __str__(self) -> str:
        return self.text


def relaxations(problem: Problem, conflict: Conflict | None = None) -> list[Relaxation]:
    """Finds, for each rule of a minimal conflict, the smallest change of that rule alone that is enough.

    A comparison's bound is moved as little as possible; a domain gets the nearest value that works; any
    other rule is dropped. The cheapest change comes first. Rules for which no such change is enough (a second
    conflict remains) are left out, so the list may be empty.
    """
    found = []
    for member in (conflict or minimal_conflict(problem)).members:
        way = _domain(problem, member) if member.constraint is None else _rule(problem, member, member.constraint)
        if way is not None:
            found.append(way)
    return sorted(found, key=lambda way: way.cost)


def ways_out(found: Sequence[Relaxation]) -> str:
    """Writes ways out as a sentence: "fits if num_stages <= 2, or tile_k <= 32"; "" when there is none."""
    return f"fits if {', or '.join(way.condition for way in found)}" if found else ""


def _answer(problem: Problem, objective: Expr | None = None) -> Solution:
    asked = problem.copy()
    asked.objective = None
    if objective is not None:
        asked.minimise(objective)
    return solve(asked, QUESTION)


def _domain(problem: Problem, member: ConflictMember) -> Relaxation | None:
    name = member.variable
    domain = problem.variables[name]
    open_problem = problem.with_domain(name, widened(domain))
    nearest = None
    # Nearest above and nearest below the range of the domain; inside it, any value that is not a member.
    for low, high, sign in (
        (domain.lower, widened(domain).upper, 1),
        (widened(domain).lower, domain.upper, -1),
    ):
        part = open_problem.with_domain(name, Domain.from_range(low, high))
        answer = _answer(part, sign * Var(name))
        if answer and (nearest is None or _distance(domain, answer[name]) < _distance(domain, nearest)):
            nearest = answer[name]
    if nearest is None:
        return None
    values = [*domain.listed, nearest] if domain.listed is not None else None
    wider = (
        Domain.from_values(values, domain.because)
        if values is not None
        else Domain.from_range(min(domain.lower, nearest), max(domain.upper, nearest), 1, domain.because)
    )
    changed = problem.with_domain(name, wider)
    answer = _answer(changed)
    if not answer:
        return None
    relation = "<=" if nearest < domain.lower else ">=" if nearest > domain.upper else "="
    cost = _distance(domain, nearest) / max(1, abs(domain.lower), abs(domain.upper))
    return Relaxation(
        member, f"allow {name} = {nearest}", changed, answer.assignment, f"{name} {relation} {nearest}", cost
    )


def _distance(domain: Domain, value: int) -> int:
    members = domain.listed if domain.listed is not None else (domain.lower, domain.upper)
    return min(abs(value - v) for v in members)


def _rule(problem: Problem, member: ConflictMember, rule: Constraint) -> Relaxation | None:
    without = problem.without(rule)
    moved = _moved(rule, without) if isinstance(rule, Comparison) else None
    if moved is not None:
        changed = problem.without(rule)
        changed.add(moved, because=rule.because, name=rule.name)
        answer = _answer(changed)
        if answer:
            return Relaxation(
                member,
                f"{rule_text(changed.constraints[-1])} (instead of {_bound(rule)})",
                changed,
                answer.assignment,
                f"the bound of {rule.name or rule} were {_bound(moved)}",
                abs(_bound(moved) - _bound(rule)) / max(1, abs(_bound(rule))),
            )
    answer = _answer(without)
    if not answer:
        return None
    named = rule.name or str(rule)
    return Relaxation(member, f"drop {named}", without, answer.assignment, f"{named} is dropped")


def _bound(rule: Constraint) -> int:
    """The number that a comparison bounds its other side by."""
    if isinstance(rule, Comparison):
        for side in (rule.right, rule.left):
            if isinstance(side, Const):
                return side.number
    return 0


def _moved(rule: Comparison, without: Problem) -> Comparison | None:
    """The comparison with its constant bound moved as far as the others need; None if it has none."""
    left, op, right = rule.left, rule.op, rule.right
    if op == "==":
        return _nearest_value(rule, without)
    if op == "!=":
        return None
    if isinstance(right, Const) and left.variables:
        side, at_most = left, op in ("<=", "<")
    elif isinstance(left, Const) and right.variables:
        side, at_most = right, op in (">=", ">")
    else:
        return None
    answer = _answer(without, side if at_most else -side)
    if not answer:
        return None
    return Comparison(side, "<=" if at_most else ">=", Const(side.value(answer.assignment)))


def _nearest_value(rule: Comparison, without: Problem) -> Comparison | None:
    """An equality with a number, moved to the nearest number that the others allow."""
    side, number = (rule.left, rule.right) if isinstance(rule.right, Const) else (rule.right, rule.left)
    if not isinstance(number, Const) or not side.variables:
        return None
    found = []
    for sign in (1, -1):
        half = without.copy()
        half.add(sign * side >= sign * number.number)
        answer = _answer(half, sign * side)
        if answer:
            found.append(side.value(answer.assignment))
    if not found:
        return None
    return Comparison(side, "==", Const(min(found, key=lambda value: abs(value - number.number))))
