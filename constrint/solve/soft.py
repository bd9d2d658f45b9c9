"""Soft constraints as hard ones: a 0/1 variable for each says whether it is violated, and their weight is minimised."""

from __future__ import annotations

from constrint.model import Expr, Problem, any_of, negate
from constrint.model.expr import add
from constrint.model.problem import Objective


def hardened(problem: Problem) -> Problem:
    """The same problem without soft constraints: their total weight is its first objective.

    A problem without soft constraints is returned as it is.
    """
    if not problem.soft_constraints:
        return problem
    twin = problem.without_objective()
    prices: list[Expr] = []
    for number, soft in enumerate(problem.soft_constraints):
        name = f"violated_{number}"
        while name in twin.variables or name in twin.constants:
            name += "_"
        violated = twin.int_var(name, lower=0, upper=1)
        twin.add(any_of(soft.constraint, violated == 1))
        twin.add(any_of(negate(soft.constraint), violated == 0))
        prices.append(soft.weight * violated)
    return twin.with_objectives(Objective(add(*prices), maximise=False), *problem.objectives)
