"""The smallest set of changes where no single one helps: of rules that conflict, and of an invalid configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constrint.errors import ConstrintError
from constrint.model import Comparison, Const, Constraint, Expr, IsIn, Objective, Problem, Truth, Var, negate
from constrint.model.encode import Coding
from constrint.model.expr import absolute, add, is_total, maximum, minimum
from constrint.model.text.render import number_text, unit_of
from constrint.solve.budget import UNLIMITED, Budget, Limits, Status
from constrint.solve.explain.conflict import rule_text
from constrint.solve.optimise import solve

# Seconds of the search where the caller has no limit, and its share of the remaining time where there is one.
_SECONDS: Final = 0.8
_SHARE: Final = 0.5
# Listed values whose nearest one is measured.
_MOST_LISTED: Final = 64


@dataclass(frozen=True)
class ChangedRule:
    """One of several rules that change together.

    Attributes:
        rule: The rule.
        text: The change as a sentence: "x <= 12 (instead of 10)", or "drop NAME".
    """

    rule: Constraint
    text: str


@dataclass(frozen=True)
class Changes:
    """Rules which have to change together.

    Attributes:
        rules: The changed rules, as few as possible, and of as few those that move least in their own numbers.
        solution: A solution after these changes.
        is_smallest: Whether no smaller set is enough; False where a limit came first.
    """

    rules: tuple[ChangedRule, ...]
    solution: dict[str, Any]
    is_smallest: bool

    def __str__(self) -> str:
        few = "" if self.is_smallest else " (not shown to be the fewest)"
        return " and ".join(change.text for change in self.rules) + few


def changes_together(
    problem: Problem, limits: Limits | None = None, among: Sequence[Constraint] | None = None
) -> Changes | None:
    """The fewest rules of a problem without a solution that have to change together.

    Args:
        problem: The problem.
        limits: Limits of the search; without `max_seconds`, about a second.
        among: The rules that may change; all of them when None. Domains stay.

    Returns:
        The changes; None where no change of these rules is enough, or none was found within the limits.
    """
    rules = problem.constraints if among is None else tuple(among)
    plain = problem.without(*rules).without_objective()
    moved = [move for rule in rules if (move := _moved(problem, rule)) is not None]
    fewest = Objective(add(Const(0), *(Truth(negate(rule)) for rule in rules)), maximise=False)
    nearest = Objective(add(Const(0), *moved), maximise=False)
    found = _solved(plain.with_objectives(fewest, *([nearest] if moved else [])), limits)
    if found is None:
        return None
    values, is_smallest = found
    broken = [rule for rule in rules if not rule.holds(values)]
    coding = Coding.of(problem)
    solution = dict(values) if coding is None else coding.decoded(values)
    return Changes(tuple(ChangedRule(r, _text(problem, r, values)) for r in broken), solution, is_smallest)


def nearest_valid(
    problem: Problem, values: Mapping[str, int], limits: Limits | None = None
) -> tuple[dict[str, int], bool] | None:
    """The fewest variables that make a configuration valid together, with values near the present ones.

    Args:
        problem: The problem, with at least one solution.
        values: The configuration, by codes.
        limits: Limits of the search; without `max_seconds`, about a second.

    Returns:
        The changed values by variable, and whether fewer are shown not to be enough; None where none were found.
    """
    changed: list[Expr] = [Const(0)]
    far: list[Expr] = [Const(0)]
    for name, domain in problem.variables.items():
        own = Const(values[name])
        changed.append(Truth(Comparison(Var(name), "!=", own)))
        if domain.scale:
            far.append(absolute(Var(name) - own))
    plain = Problem(problem.name)
    for name, domain in problem.variables.items():
        plain.declare(name, domain if domain.labels is None else _coded(domain))
    for rule in problem.constraints:
        plain.add(rule)
    found = _solved(
        plain.with_objectives(*(Objective(add(*terms), maximise=False) for terms in (changed, far))), limits, values
    )
    if found is None:
        return None
    nearest, is_smallest = found
    return {n: v for n, v in nearest.items() if v != values[n]}, is_smallest


def _coded(domain: Any) -> Any:
    return type(domain).from_values(domain.listed or ())


def _solved(
    problem: Problem, limits: Limits | None, hint: Mapping[str, int] | None = None
) -> tuple[dict[str, int], bool] | None:
    """The best solution found, and whether it is proven."""
    budget = Budget(limits or UNLIMITED)
    left = budget.seconds_left()
    try:
        part = budget.part(_SECONDS if left is None else _SHARE * left)
        answer = solve(problem, part, hint=hint)
    except ConstrintError:
        return None
    return (answer.assignment, answer.status is Status.FEASIBLE) if answer.assignment else None


def _bounded(problem: Problem, rule: Constraint) -> tuple[Expr, str, int] | None:
    """The side, the sign and the number of a comparison with a number; None for another rule."""
    if not isinstance(rule, Comparison) or not all(problem.variables[n].scale for n in rule.variables):
        return None
    turned = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}
    for side, op, number in (
        (rule.left, rule.op, rule.right),
        (rule.right, turned.get(rule.op, rule.op), rule.left),
    ):
        if isinstance(number, Const) and side.variables:
            return side, op, number.number
    return None


def _moved(problem: Problem, rule: Constraint) -> Expr | None:
    """How far the numbers of a rule are from what would make it true, as an expression; None where it has no number."""
    bounded = _bounded(problem, rule)
    if bounded is not None and is_total(bounded[0]):
        side, op, number = bounded
        if op == "!=":
            return None
        if op == "==":
            return absolute(side - number)
        least = number - (op == "<") + (op == ">")
        return maximum(0, side - least if op in ("<=", "<") else least - side)
    if isinstance(rule, IsIn) and isinstance(rule.expr, Var) and problem.variables[rule.expr.name].scale == 1:
        listed = rule.domain.listed
        if listed is not None and len(listed) <= _MOST_LISTED:
            return minimum(*(absolute(rule.expr - value) for value in listed))
    return None


def _text(problem: Problem, rule: Constraint, values: Mapping[str, int]) -> str:
    bounded = _bounded(problem, rule)
    if bounded is not None and bounded[1] != "!=" and is_total(bounded[0]):
        side, op, number = bounded
        relation = {"<": "<=", ">": ">="}.get(op, op)
        label = f"{rule.name}: " if rule.name else ""
        changed = Comparison(side, relation, Const(side.value(values)))
        return f"{label}{rule_text(changed)} (instead of {number_text(number, unit_of(changed))})"
    if isinstance(rule, IsIn) and isinstance(rule.expr, Var) and problem.variables[rule.expr.name].scale == 1:
        return f"{rule.expr} == {values[rule.expr.name]} (instead of one of {rule.domain})"
    return f"drop {rule.name or rule_text(rule)}"
