"""Whether a conflict is one: contradictory, and nothing in it superfluous where that is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from constrint.model import Constraint, Domain, Problem
from constrint.solve import Conflict, ConflictMember, Limits, solve
from constrint.solve.explain.reduction import widened

#: Seconds in which a search may show that a conflict without one member is a conflict still.
MAX_SECONDS = 0.1
#: Assignments that are tried one by one at most.
MOST_TRIED = 20_000


def fault_of(problem: Problem, conflict: Conflict) -> str:
    """What is wrong with a conflict; empty where nothing is."""
    if not conflict.members:
        return "a conflict of nothing"
    # Contradictory, wherever the variables lie whose domains are not named.
    if can_hold(kept(problem, conflict.members, near)):
        return f"no conflict: {conflict}"
    if not conflict.minimal:
        return ""
    for member in conflict.members:
        others = [m for m in conflict.members if m is not member]
        if can_hold(kept(problem, others, near)):
            continue
        rest = kept(problem, others, lambda _, d: widened(d))
        # On the widest domains no search ends; what is shown must not be that there is none.
        if solve(rest, Limits(max_seconds=MAX_SECONDS)).status.name == "INFEASIBLE":
            return f"{member.text!r} is superfluous in {conflict}"
    return ""


def kept(problem: Problem, members: Iterable[ConflictMember], outside: Callable[[str, Domain], Domain]) -> Problem:
    """The problem of some members of a conflict; `outside` says where a variable lies whose domain is no member."""
    members = list(members)
    constraints = [m.constraint for m in members if m.constraint is not None]
    named = {m.variable for m in members}
    rest = Problem()
    for name, domain in problem.variables.items():
        if name in named or any(name in c.variables for c in constraints):
            rest.declare(name, domain if name in named else outside(name, domain))
    for constraint in constraints:
        rest.add(constraint)
    return rest


def near(name: str, domain: Domain) -> Domain:
    """Values of the wide range that can be tried one by one."""
    wide = widened(domain)
    near = {*range(max(wide.lower, -9), min(wide.upper, 70)), wide.lower, wide.upper}
    near |= {v for v in (*range(100, 900, 25), 3600, 4096, 65535) if v in wide}
    near |= set(domain) if domain.size <= 4096 else {domain.lower, domain.upper}
    return Domain.from_values(sorted(near))


def can_hold(problem: Problem) -> bool:
    """Whether an assignment was found in which all hold; where there are too many to try, by a search."""
    if math.prod(domain.size for domain in problem.variables.values()) <= MOST_TRIED:
        return _holds_somewhere(problem)
    return bool(solve(problem, Limits(max_seconds=MAX_SECONDS)))


def _holds_somewhere(problem: Problem) -> bool:
    """Try the assignments in plain Python; a constraint is tested as soon as all its variables have values."""
    names = list(problem.variables)
    due: list[list[Constraint]] = [[] for _ in range(len(names) + 1)]
    for constraint in problem.constraints:
        due[max((1 + names.index(name) for name in constraint.variables), default=0)].append(constraint)
    assignment: dict[str, int] = {}

    def completes(number: int) -> bool:
        if not all(constraint.holds(assignment) for constraint in due[number]):
            return False
        if number == len(names):
            return True
        for value in problem.variables[names[number]]:
            assignment[names[number]] = value
            if completes(number + 1):
                return True
        return False

    return completes(0)
