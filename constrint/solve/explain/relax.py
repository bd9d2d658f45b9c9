"""The nearest ways out of a contradiction: for each rule in it the smallest change that is enough.

A change is only proposed when the changed problem was solved, so every way out holds. What no change of a single rule
mends is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constrint.errors import CancelledError, LimitReachedError, RulesInConflict
from constrint.model import Comparison, Const, Domain, IsIn, Problem, Var, is_in
from constrint.model.coding import Coding
from constrint.solve.budget import Budget, Limits
from constrint.solve.explain.conflict import ConflictMember, minimal_conflict, rule_text
from constrint.solve.explain.questions import Questions
from constrint.solve.explain.reduction import widened

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
    solution: dict[str, Any]
    condition: str = ""
    cost: float = math.inf

    def __str__(self) -> str:
        return self.text


def relaxations(
    problem: Problem,
    conflict: RulesInConflict | None = None,
    limits: Limits | None = None,
    *,
    among: Callable[[ConflictMember], bool] | None = None,
) -> list[Relaxation]:
    """Finds, for each rule of a minimal conflict, the smallest change of that rule alone that is enough.

    The bound of a comparison is moved as little as possible. A domain gets the nearest value that works. A rule that
    lists values of a variable gets the nearest other value of that variable's domain. Any other rule is dropped. Rules
    for which no such change is enough, because a second conflict remains, are left out: the list may be empty.

    Args:
        problem: A problem without a solution.
        conflict: The rules in conflict, where they are known already.
        limits: How much work is allowed, for the conflict as well. What was not tried before a limit is left out.
        among: Which of these rules may be changed, for example only those that a user asked for; all when None.

    Returns:
        The ways out, the cheapest first.

    Raises:
        UsageError: When the problem has a solution.
        LimitReachedError: When it could not be decided whether it has one.
        CancelledError: When the caller's own signal came.
    """
    budget = Budget(limits or Limits())
    known = conflict or minimal_conflict(problem, limits)
    questions = Questions(budget.rest())
    ways: list[Relaxation] = []
    try:
        for member in known.members:
            if among is None or among(member):
                way = _WayOut(problem, member, questions).found()
                ways += [way] if way is not None else []
    except CancelledError:
        raise
    except LimitReachedError:
        pass  # What was found so far holds.
    return sorted(ways, key=lambda way: way.cost)


def ways_out(ways: Sequence[Relaxation]) -> str:
    """Writes ways out as a sentence: "fits if num_stages <= 2, or tile_k <= 32"; "" when there is none."""
    return f"fits if {', or '.join(way.condition for way in ways)}" if ways else ""


class _WayOut:
    """The smallest change of one rule or one domain that is enough."""

    def __init__(self, problem: Problem, member: ConflictMember, questions: Questions) -> None:
        self.problem, self.member, self.questions = problem, member, questions

    def found(self) -> Relaxation | None:
        """The change; None where none is enough."""
        rule = self.member.constraint
        if rule is None:
            return self._wider_domain()
        without = self.problem.without(rule)
        changed: Relaxation | None = None
        if any(self.problem.variables[name].scale != 1 for name in rule.variables):
            # Its bound is that of codes, which nobody asks about.
            pass
        elif isinstance(rule, Comparison):
            changed = self._moved_bound(without, rule)
        elif isinstance(rule, IsIn) and isinstance(rule.expr, Var):
            changed = self._other_value(without, rule, rule.expr)
        named = rule.name or str(rule)
        return changed or self._way(without, f"drop {named}", f"{named} is dropped")

    def _way(self, changed: Problem, text: str, condition: str, cost: float = math.inf) -> Relaxation | None:
        """A change, if the changed problem has a solution."""
        answer = self.questions.decide(changed)
        coding = Coding.of(changed)
        solution = answer.assignment if coding is None else coding.decoded(answer.assignment)
        return Relaxation(self.member, text, changed, solution, condition, cost) if answer else None

    def _wider_domain(self) -> Relaxation | None:
        """The domain with the nearest further value that is enough."""
        name = self.member.variable
        domain = self.problem.variables[name]
        if domain.labels is not None:
            # No value is nearest to those that it has.
            return None
        open_problem = self.problem.with_domain(name, widened(domain))
        nearest = None
        # Nearest above and nearest below the range of the domain; inside it, any value that is not a member.
        for low, high, sign in ((domain.lower, widened(domain).upper, 1), (widened(domain).lower, domain.upper, -1)):
            part = open_problem.with_domain(name, Domain.from_range(low, high))
            answer = self.questions.decide(part, sign * Var(name))
            if answer and (nearest is None or _distance(domain, answer[name]) < _distance(domain, nearest)):
                nearest = answer[name]
        if nearest is None:
            return None
        if domain.listed is not None:
            wider = Domain.from_values([*domain.listed, nearest], domain.because)
        else:
            wider = Domain.from_range(min(domain.lower, nearest), max(domain.upper, nearest), 1, domain.because)
        changed = self.problem.with_domain(name, wider)
        relation = "<=" if nearest < domain.lower else ">=" if nearest > domain.upper else "="
        cost = _distance(domain, nearest) / max(1, abs(domain.lower), abs(domain.upper))
        return self._way(changed, f"allow {name} = {nearest}", f"{name} {relation} {nearest}", cost)

    def _other_value(self, without: Problem, rule: IsIn, variable: Var) -> Relaxation | None:
        """A rule that lists values of a variable, with the nearest other value of its domain instead."""
        domain = rule.domain
        if domain.size > _TRIED_VALUES:
            return None
        value = next(self._values_that_fit(without, variable, set(domain)), None)
        if value is None:
            return None
        changed = without.copy()
        changed.add(is_in(variable, [value]), because=rule.because, name=rule.name)
        cost = min(abs(value - v) for v in domain) / max(1, abs(domain.lower), abs(domain.upper))
        text = f"{variable} == {value} (instead of one of {domain})"
        return self._way(changed, text, f"{variable} = {value}", cost)

    def _values_that_fit(self, problem: Problem, variable: Var, away_from: Collection[int]) -> Iterator[int]:
        """Values of a variable with which the problem has a solution, the nearest to some numbers first.

        Of equally near ones the upper one comes first. Nothing is yielded for a variable with many values.
        """
        domain = problem.variables[variable.name]
        if domain.size > _TRIED_VALUES:
            return
        for value in sorted(domain, key=lambda v: (min(abs(v - w) for w in away_from), -v)):
            only = Domain.from_values([value])
            if value not in away_from and self.questions.decide(problem.with_domain(variable.name, only)):
                yield value

    def _moved_bound(self, without: Problem, rule: Comparison) -> Relaxation | None:
        """A comparison with its constant bound moved as far as the others need; None where it has no such bound."""
        moved = self._moved(rule, without)
        if moved is None:
            return None
        changed = without.copy()
        stored = changed.add(moved, because=rule.because, name=rule.name)
        old, new = _bound(rule), _bound(moved)
        text, condition = f"{rule_text(stored)} (instead of {old})", f"the bound of {rule.name or rule} were {new}"
        return self._way(changed, text, condition, abs(new - old) / max(1, abs(old)))

    def _moved(self, rule: Comparison, without: Problem) -> Comparison | None:
        """The comparison with another number."""
        left, op, right = rule.left, rule.op, rule.right
        if op == "==":
            return self._nearest_equality(rule, without)
        if op == "!=":
            return None
        if isinstance(right, Const) and left.variables:
            side, at_most = left, op in ("<=", "<")
        elif isinstance(left, Const) and right.variables:
            side, at_most = right, op in (">=", ">")
        else:
            return None
        answer = self.questions.decide(without, side if at_most else -side)
        if not answer:
            return None
        return Comparison(side, "<=" if at_most else ">=", Const(side.value(answer.assignment)))

    def _nearest_equality(self, rule: Comparison, without: Problem) -> Comparison | None:
        """An equality with a number, moved to the nearest number that the others allow."""
        side, number = (rule.left, rule.right) if isinstance(rule.right, Const) else (rule.right, rule.left)
        if not isinstance(number, Const) or not side.variables:
            return None
        if isinstance(side, Var) and without.variables[side.name].size <= _TRIED_VALUES:
            value = next(self._values_that_fit(without, side, (number.number,)), None)
            return None if value is None else Comparison(side, "==", Const(value))
        nearest = []
        for sign in (1, -1):
            half = without.copy()
            half.add(sign * side >= sign * number.number)
            answer = self.questions.decide(half, sign * side)
            if answer:
                nearest.append(side.value(answer.assignment))
        if not nearest:
            return None
        return Comparison(side, "==", Const(min(nearest, key=lambda value: abs(value - number.number))))


def _distance(domain: Domain, value: int) -> int:
    members = domain.listed if domain.listed is not None else (domain.lower, domain.upper)
    return min(abs(value - v) for v in members)


def _bound(rule: Comparison) -> int:
    """The number that a comparison bounds its other side by; 0 where neither side is a number."""
    for side in (rule.right, rule.left):
        if isinstance(side, Const):
            return side.number
    return 0
