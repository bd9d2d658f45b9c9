"""Ways out of a conflict: the nearest changes of the user's own rules after which a configuration is valid.

Rules of a kernel or a GPU are fixed, so no advice changes them. In a file all rules are the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from constrint.answers.question import StatedProblem
from constrint.errors import LimitReachedError, RulesInConflict
from constrint.model import Constraint, Problem, Var
from constrint.model.problem import named_constants
from constrint.solve import Limits, Relaxation, Status, relaxations, solve


def ways_out(stated: StatedProblem, conflict: RulesInConflict | None, limits: Limits | None = None) -> list[str]:
    """Changes after which the problem has a solution, the nearest first, a phrase each; empty without such a change."""
    if conflict is None:
        return []
    try:
        return _ways_out(stated, conflict, limits)
    except LimitReachedError:
        return []


def _ways_out(stated: StatedProblem, conflict: RulesInConflict, limits: Limits | None) -> list[str]:
    if stated.request is None:
        # Limits of a GPU are fixed, too.
        ways = relaxations(stated.problem, conflict, limits, among=lambda member: not _names_a_gpu(member.constraint))
        return [str(relaxation) for relaxation in ways or relaxations(stated.problem, conflict, limits)]
    own = {id(rule) for rule in stated.own}
    ways = relaxations(stated.problem, conflict, limits, among=lambda member: id(member.constraint) in own)
    return [_phrase(stated, relaxation) for relaxation in ways] or _several_changes(stated)


def _names_a_gpu(rule: Constraint | None) -> bool:
    return rule is not None and any("." in name for name in named_constants(rule))


def _phrase(stated: StatedProblem, relaxation: Relaxation) -> str:
    """`tile_k = 64 instead of 128`, or `without --where ...`."""
    rule = relaxation.member.constraint
    if rule is None:
        return relaxation.text
    if len(relaxation.problem.constraints) < len(stated.problem.constraints):
        return f"without {_option(rule)}"
    name = _setting(rule)
    return _changed(name, relaxation.solution[name], rule) if name else relaxation.text


def _several_changes(stated: StatedProblem) -> list[str]:
    """One way to change several of the user's rules if no single change is enough; a greedy, not a minimal choice.

    In their order, each rule that cannot hold beside the earlier ones changes: a setting takes the nearest value that
    can hold, another rule is dropped.
    """
    problem = stated.problem.without(*stated.own)
    if not _has_solution(problem):
        return []
    held: list[Constraint] = []
    refused: list[Constraint] = []
    for rule in stated.own:
        (held if _has_solution(problem, *held, rule) else refused).append(rule)
    changes = []
    for rule in refused:
        name = _setting(rule)
        value = _nearest(problem, held, name, rule) if name else None
        if value is None:
            changes.append(f"without {_option(rule)}")
        else:
            held.append(Var(name) == value)
            changes.append(_changed(name, value, rule))
    return [" and ".join(changes)] if changes else []


def _nearest(problem: Problem, held: Iterable[Constraint], name: str, rule: Constraint) -> int | None:
    """The value nearest to those of a setting with which the problem and the held rules have a solution."""
    stated = _values(rule)
    if problem.variables[name].labels is not None:
        # Labels have no distance.
        return None
    for value in sorted(problem.variables[name].values, key=lambda v: (min(abs(v - w) for w in stated), -v)):
        if _has_solution(problem, *held, Var(name) == value):
            return value
    return None


def _has_solution(problem: Problem, *rules: Constraint) -> bool:
    stated = problem.copy()
    for rule in rules:
        stated.add(rule)
    return solve(stated).status is Status.FEASIBLE


def _setting(rule: Constraint) -> str:
    """The parameter of a `--set`; empty for a `--where`."""
    return next(iter(rule.variables)) if rule.because.startswith("asked for by --set ") else ""


def _values(rule: Constraint) -> list[int]:
    """The values of a `--set`."""
    return [int(text) for text in rule.because.partition("=")[2].split(",")]


def _changed(name: str, value: int, rule: Constraint) -> str:
    return f"{name} = {value} instead of {' or '.join(map(str, _values(rule)))}"


def _option(rule: Constraint) -> str:
    """The option that added a rule: `--set tile_k=128`."""
    return rule.because.removeprefix("asked for by ")
