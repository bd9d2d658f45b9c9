"""The nearest ways out of a contradiction: for each rule in it the smallest change that is enough.

A change is only proposed when the changed problem was solved, so every way out holds. What no change of a single rule
mends is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from constrint.errors import RulesInConflict
from constrint.model import Comparison, Const, Domain, Expr, IsIn, Problem, Var, is_in
from constrint.model.coding import Coding
from constrint.solve.backends.native import NativeBackend
from constrint.solve.explain.conflict import QUESTION, ConflictMember, minimal_conflict, rule_text, widened
from constrint.solve.solution import Solution

# A variable with more values is not tried value by value: its nearest value is found by minimising instead.
_TRIED_VALUES: Final = 32


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


def relaxations(
    problem: Problem, conflict: RulesInConflict | None = None, *, among: Callable[[ConflictMember], bool] | None = None
) -> list[Relaxation]:
    """Finds, for each rule of a minimal conflict, the smallest change of that rule alone that is enough.

    The bound of a comparison is moved as little as possible. A domain gets the nearest value that works. A rule that
    lists values of a variable gets the nearest other value of that variable's domain. Any other rule is dropped. Rules
    for which no such change is enough, because a second conflict remains, are left out: the list may be empty.

    Args:
        problem: A problem without a solution.
        conflict: The rules in conflict, where they are known already.
        among: Which of these rules may be changed, for example only those that a user asked for; all when None.

    Returns:
        The ways out, the cheapest first.
    """
    members: Sequence[ConflictMember] = (conflict or minimal_conflict(problem)).members
    ways = (_way_out(problem, member) for member in members if among is None or among(member))
    return sorted((way for way in ways if way is not None), key=lambda way: way.cost)


def ways_out(ways: Sequence[Relaxation]) -> str:
    """Writes ways out as a sentence: "fits if num_stages <= 2, or tile_k <= 32"; "" when there is none."""
    return f"fits if {', or '.join(way.condition for way in ways)}" if ways else ""


def _way_out(problem: Problem, member: ConflictMember) -> Relaxation | None:
    """The smallest change of one rule or one domain; None where none is enough."""
    rule = member.constraint
    if rule is None:
        return _wider_domain(problem, member)
    without = problem.without(rule)
    changed: Relaxation | None = None
    if any(problem.variables[name].scale != 1 for name in rule.variables):
        # Its bound is that of codes, which nobody asks about.
        pass
    elif isinstance(rule, Comparison):
        changed = _moved_bound(without, member, rule)
    elif isinstance(rule, IsIn) and isinstance(rule.expr, Var):
        changed = _other_value(without, member, rule, rule.expr)
    named = rule.name or str(rule)
    return changed or _way(member, without, f"drop {named}", f"{named} is dropped")


def _answer(problem: Problem, objective: Expr | None = None) -> Solution:
    asked = problem.without_objective()
    if objective is not None:
        asked.minimise(objective)
    return NativeBackend().solve(asked, QUESTION)


def _way(
    member: ConflictMember, changed: Problem, text: str, condition: str, cost: float = math.inf
) -> Relaxation | None:
    """A change, if the changed problem has a solution."""
    answer = _answer(changed)
    coding = Coding.of(changed)
    solution = answer.assignment if coding is None else coding.decoded(answer.assignment)
    return Relaxation(member, text, changed, solution, condition, cost) if answer else None


def _wider_domain(problem: Problem, member: ConflictMember) -> Relaxation | None:
    """The domain with the nearest further value that is enough."""
    name = member.variable
    domain = problem.variables[name]
    if domain.labels is not None:
        # No value is nearest to those that it has.
        return None
    open_problem = problem.with_domain(name, widened(domain))
    nearest = None
    # Nearest above and nearest below the range of the domain; inside it, any value that is not a member.
    for low, high, sign in ((domain.lower, widened(domain).upper, 1), (widened(domain).lower, domain.upper, -1)):
        part = open_problem.with_domain(name, Domain.from_range(low, high))
        answer = _answer(part, sign * Var(name))
        if answer and (nearest is None or _distance(domain, answer[name]) < _distance(domain, nearest)):
            nearest = answer[name]
    if nearest is None:
        return None
    if domain.listed is not None:
        wider = Domain.from_values([*domain.listed, nearest], domain.because)
    else:
        wider = Domain.from_range(min(domain.lower, nearest), max(domain.upper, nearest), 1, domain.because)
    changed = problem.with_domain(name, wider)
    relation = "<=" if nearest < domain.lower else ">=" if nearest > domain.upper else "="
    cost = _distance(domain, nearest) / max(1, abs(domain.lower), abs(domain.upper))
    return _way(member, changed, f"allow {name} = {nearest}", f"{name} {relation} {nearest}", cost)


def _distance(domain: Domain, value: int) -> int:
    members = domain.listed if domain.listed is not None else (domain.lower, domain.upper)
    return min(abs(value - v) for v in members)


def _other_value(without: Problem, member: ConflictMember, rule: IsIn, variable: Var) -> Relaxation | None:
    """A rule that lists values of a variable, with the nearest other value of its domain instead."""
    domain = rule.domain
    if domain.size > _TRIED_VALUES:
        return None
    value = next(_values_that_fit(without, variable, set(domain)), None)
    if value is None:
        return None
    changed = without.copy()
    changed.add(is_in(variable, [value]), because=rule.because, name=rule.name)
    cost = min(abs(value - v) for v in domain) / max(1, abs(domain.lower), abs(domain.upper))
    text = f"{variable} == {value} (instead of one of {domain})"
    return _way(member, changed, text, f"{variable} = {value}", cost)


def _values_that_fit(problem: Problem, variable: Var, away_from: Collection[int]) -> Iterator[int]:
    """Values of a variable with which the problem has a solution, the nearest to some numbers first; upper ones first.

    Nothing is yielded for a variable with many values.
    """
    domain = problem.variables[variable.name]
    if domain.size > _TRIED_VALUES:
        return
    for value in sorted(domain, key=lambda v: (min(abs(v - w) for w in away_from), -v)):
        if value not in away_from and _answer(problem.with_domain(variable.name, Domain.from_values([value]))):
            yield value


def _moved_bound(without: Problem, member: ConflictMember, rule: Comparison) -> Relaxation | None:
    """A comparison with its constant bound moved as far as the others need; None where it has no such bound."""
    moved = _moved(rule, without)
    if moved is None:
        return None
    changed = without.copy()
    stored = changed.add(moved, because=rule.because, name=rule.name)
    old, new = _bound(rule), _bound(moved)
    text, condition = f"{rule_text(stored)} (instead of {old})", f"the bound of {rule.name or rule} were {new}"
    return _way(member, changed, text, condition, abs(new - old) / max(1, abs(old)))


def _bound(rule: Comparison) -> int:
    """The number that a comparison bounds its other side by; 0 where neither side is a number."""
    for side in (rule.right, rule.left):
        if isinstance(side, Const):
            return side.number
    return 0


def _moved(rule: Comparison, without: Problem) -> Comparison | None:
    """The comparison with another number."""
    left, op, right = rule.left, rule.op, rule.right
    if op == "==":
        return _nearest_equality(rule, without)
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


def _nearest_equality(rule: Comparison, without: Problem) -> Comparison | None:
    """An equality with a number, moved to the nearest number that the others allow."""
    side, number = (rule.left, rule.right) if isinstance(rule.right, Const) else (rule.right, rule.left)
    if not isinstance(number, Const) or not side.variables:
        return None
    if isinstance(side, Var) and without.variables[side.name].size <= _TRIED_VALUES:
        value = next(_values_that_fit(without, side, (number.number,)), None)
        return None if value is None else Comparison(side, "==", Const(value))
    nearest = []
    for sign in (1, -1):
        half = without.copy()
        half.add(sign * side >= sign * number.number)
        answer = _answer(half, sign * side)
        if answer:
            nearest.append(side.value(answer.assignment))
    if not nearest:
        return None
    return Comparison(side, "==", Const(min(nearest, key=lambda value: abs(value - number.number))))
