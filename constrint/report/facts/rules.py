"""What each rule removes: alone, beyond all others, and in turn on the way from the full product to what is valid."""

from __future__ import annotations

from collections.abc import Collection

from constrint.errors import LimitReachedError
from constrint.model import Constraint, Problem
from constrint.report.facts.records import RuleFacts
from constrint.select.rank import KernelProblem
from constrint.solve import Limits, RulePruning, count, pruning, would_remove

#: Seconds that counting may take: without counts a report still says what the rules are.
MAX_SECONDS = 10.0
#: The kind of a rule of the user's own.
YOURS = "yours"


def rule_facts(request: KernelProblem, own: Collection[int]) -> tuple[RuleFacts, ...]:
    """The rules of a kernel's space: those that prune by what each removes alone, then the estimated ones.

    Args:
        request: The kernel and its space.
        own: The user's own rules, by `id`.
    """
    problem = request.problem
    try:
        limits = Limits(max_seconds=MAX_SECONDS)
        pruned = sorted(pruning(problem, limits), key=lambda found: -found.removes_alone)
        left = _left(problem, [found.constraint for found in pruned], limits)
        doubted = would_remove(problem, limits)
    except LimitReachedError:
        prune = [_facts(rule, own, prunes=True) for rule in problem.constraints]
        return (*prune, *(_facts(rule, own, prunes=False) for rule in problem.estimates))
    facts = [_facts(one.constraint, own, True, one, after) for one, after in zip(pruned, left, strict=True)]
    return (*facts, *(_facts(one.constraint, own, False, one) for one in doubted))


def _left(problem: Problem, rules: list[Constraint], limits: Limits) -> list[int]:
    """How many configurations are left after each rule and those before it."""
    growing = problem.without(*rules)
    left = []
    for rule in rules:
        growing.add(rule)
        left.append(count(growing, limits))
    return left


def _facts(
    rule: Constraint,
    own: Collection[int],
    prunes: bool,
    counted: RulePruning | None = None,
    left: int | None = None,
) -> RuleFacts:
    return RuleFacts(
        name=rule.name or str(rule),
        rule=str(rule),
        kind=YOURS if id(rule) in own else rule.kind,
        because=rule.because,
        prunes=prunes,
        removes_alone=None if counted is None else counted.removes_alone,
        removes_only=None if counted is None else counted.removes_only,
        left=left,
    )
