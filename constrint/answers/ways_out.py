"""Ways out of a conflict: the nearest changes of the user's own rules after which a configuration is valid.

Rules of a kernel or a GPU are fixed, so no advice changes them. In a file all rules are the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from constrint.answers.question import StatedProblem
from constrint.errors import LimitReachedError, RulesInConflict
from constrint.model import Constraint
from constrint.model.problem import named_constants
from constrint.solve import Limits, Relaxation, changes_together, relaxations


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
        ways = ways or relaxations(stated.problem, conflict, limits)
        return [str(relaxation) for relaxation in ways] or _together(stated, stated.problem.constraints, limits)
    own = {id(rule) for rule in stated.own}
    ways = relaxations(stated.problem, conflict, limits, among=lambda member: id(member.constraint) in own)
    return [_phrase(stated, relaxation) for relaxation in ways] or _together(stated, stated.own, limits)


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


def _together(stated: StatedProblem, rules: Sequence[Constraint], limits: Limits | None) -> list[str]:
    """The fewest of some rules that have to change together, as one phrase; empty where that is not enough."""
    changes = changes_together(stated.problem, limits, rules)
    if changes is None:
        return []
    few = "" if changes.is_smallest else " (not shown to be the fewest)"
    phrases = []
    for change in changes.rules:
        name = _setting(change.rule) if stated.request is not None else ""
        if name and stated.problem.variables[name].labels is None:
            phrases.append(_changed(name, changes.solution[name], change.rule))
        else:
            phrases.append(change.text if stated.request is None else f"without {_option(change.rule)}")
    return [" and ".join(phrases) + few]


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
