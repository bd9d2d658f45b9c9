"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy.

The package can be called: `constrint.solve(problem)` is `constrint.solve.solve(problem)`, so that
`from constrint import solve` is the function, whatever was imported before. Names are imported when they are first
asked for.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from constrint.lazy import lazily, names_of

if TYPE_CHECKING:
    from constrint.solve.backends.backend import list_backends
    from constrint.solve.budget import Limits, SearchStats, Status
    from constrint.solve.enumeration import (
        Count,
        brute_force,
        count,
        count_within,
        enumerate_space,
        solutions_in_order,
    )
    from constrint.solve.explain.conflict import (
        Conflict,
        ConflictMember,
        Relaxation,
        minimal_conflict,
        relaxations,
        ways_out,
    )
    from constrint.solve.explain.why_not import BrokenRule, RulePruning, WhyNot, pruning, why_not, would_remove
    from constrint.solve.optimise import best_solutions, solve
    from constrint.solve.solution import Solution
    from constrint.solve.space.best import Ranked
    from constrint.solve.space.space import SearchSpace

_NAMES: Final = {
    "backends.backend": ("list_backends",),
    "budget": ("Limits", "SearchStats", "Status"),
    "enumeration": ("Count", "brute_force", "count", "count_within", "enumerate_space", "solutions_in_order"),
    "explain.conflict": (
        "Conflict",
        "ConflictMember",
        "Relaxation",
        "minimal_conflict",
        "relaxations",
        "ways_out",
    ),
    "explain.why_not": ("BrokenRule", "RulePruning", "WhyNot", "pruning", "why_not", "would_remove"),
    "optimise": ("best_solutions", "solve"),
    "solution": ("Solution",),
    "space.best": ("Ranked",),
    "space.space": ("SearchSpace",),
}
__getattr__ = lazily(__name__, _NAMES)
__dir__ = names_of(globals(), _NAMES)

__all__ = [
    "BrokenRule",
    "Conflict",
    "ConflictMember",
    "Count",
    "Limits",
    "Ranked",
    "Relaxation",
    "RulePruning",
    "SearchSpace",
    "SearchStats",
    "Solution",
    "Status",
    "WhyNot",
    "best_solutions",
    "brute_force",
    "count",
    "count_within",
    "enumerate_space",
    "list_backends",
    "minimal_conflict",
    "pruning",
    "relaxations",
    "solutions_in_order",
    "solve",
    "ways_out",
    "why_not",
    "would_remove",
]


class _Callable(ModuleType):
    """A package that is called like the function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from constrint.solve.optimise import solve

        return solve(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
