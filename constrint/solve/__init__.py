"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy."""

from typing import TYPE_CHECKING

from constrint.lazy import lazily
from constrint.solve.backends.backend import Backend
from constrint.solve.backends.registry import get_backend, list_backends
from constrint.solve.budget import Limits, SearchStats, Status
from constrint.solve.enumerate import brute_force, count, enumerate_space
from constrint.solve.solution import Solution
from constrint.solve.space.space import SearchSpace

if TYPE_CHECKING:
    from constrint.solve.explain.conflict import Conflict, ConflictMember, minimal_conflict
    from constrint.solve.explain.pruning import RulePruning, pruning, would_remove
    from constrint.solve.explain.relax import Relaxation, relaxations, ways_out
    from constrint.solve.explain.why_not import BrokenRule, WhyNot, why_not
    from constrint.solve.in_order import solutions_in_order
    from constrint.solve.optimise import solve
    from constrint.solve.space.best import Ranked

__getattr__ = lazily(
    __name__,
    {
        "explain.conflict": ("Conflict", "ConflictMember", "minimal_conflict"),
        "explain.pruning": ("RulePruning", "pruning", "would_remove"),
        "explain.relax": ("Relaxation", "relaxations", "ways_out"),
        "explain.why_not": ("BrokenRule", "WhyNot", "why_not"),
        "in_order": ("solutions_in_order",),
        "optimise": ("solve",),
        "space.best": ("Ranked",),
    },
)

__all__ = [
    "Backend",
    "BrokenRule",
    "Conflict",
    "ConflictMember",
    "Limits",
    "Ranked",
    "Relaxation",
    "RulePruning",
    "SearchSpace",
    "SearchStats",
    "Solution",
    "Status",
    "WhyNot",
    "brute_force",
    "count",
    "enumerate_space",
    "get_backend",
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
