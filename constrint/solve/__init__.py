"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy."""

from constrint.solve.enumerate import brute_force, count, enumerate_space
from constrint.solve.explain import Conflict, ConflictMember, minimal_conflict
from constrint.solve.limits import Limits, SearchStats, Status
from constrint.solve.optimise import solve
from constrint.solve.pruning import RulePruning, pruning
from constrint.solve.relax import Relaxation, relaxations
from constrint.solve.solution import Solution
from constrint.solve.space import SearchSpace

__all__ = [
    "Conflict",
    "ConflictMember",
    "Limits",
    "Relaxation",
    "RulePruning",
    "SearchSpace",
    "SearchStats",
    "Solution",
    "Status",
    "brute_force",
    "count",
    "enumerate_space",
    "minimal_conflict",
    "pruning",
    "relaxations",
    "solve",
]
