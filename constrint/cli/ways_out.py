"""The nearest ways out of a conflict between a kernel's rules and the user's own: changes of the user's own rules only.

What a kernel or a GPU demands is no choice of the user, so no advice touches it. In a file every rule is the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrint.cli.question import Asked
    from constrint.model import Constraint
    from constrint.solve import Conflict, Relaxation


def ways_out(asked: Asked, conflict: Conflict | None) -> list[str]:
    """Changes after which the problem has a solution, the nearest first, a phrase each; none where there is none."""
    from constrint.solve import Conflict, relaxations

    if conflict is None:
        return []
    if asked.request is None:
        return [str(way) for way in relaxations(asked.problem, conflict)]
    own = {id(rule) for rule in asked.own}
    members = tuple(member for member in conflict.members if id(member.constraint) in own)
    single = [_phrase(asked, way) for way in relaxations(asked.problem, Conflict(members))]
    return single or _without_several(asked)


def _phrase(asked: Asked, way: Relaxation) -> str:
    """`tile_k = 64 instead of 128`, or what is dropped."""
    from constrint.model import Comparison, Const, Var

    rule = way.member.constraint
    kept = len(way.problem.constraints) == len(asked.problem.constraints)
    is_setting = isinstance(rule, Comparison) and rule.op == "==" and isinstance(rule.left, Var)
    if kept and is_setting and isinstance(rule.right, Const):
        return f"{rule.left.name} = {way.solution[rule.left.name]} instead of {rule.right.number}"
    return f"without {_option(rule)}" if rule is not None and not kept else way.text


def _option(rule: Constraint) -> str:
    """The argument that a rule comes from: `--set tile_k=128`."""
    return rule.because.removeprefix("asked for by ")


def _without_several(asked: Asked) -> list[str]:
    """Where no single change is enough: the user's rules that have to go, so that those before them can stay."""
    from constrint.solve import Status, solve

    problem = asked.problem.without(*asked.own)
    if solve(problem).status is not Status.FEASIBLE:
        return []
    dropped = []
    for rule in asked.own:
        with_it = problem.copy()
        with_it.add(rule)
        if solve(with_it).status is Status.FEASIBLE:
            problem = with_it
        else:
            dropped.append(_option(rule))
    return [f"without {' and '.join(dropped)}"] if dropped else []
