"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy."""

from constrint.solve.backends.backend import Backend
from constrint.solve.backends.registry import get_backend, list_backends
from constrint.solve.budget import Limits, SearchStats, Status
from constrint.solve.engine.walk import solutions_in_order
from constrint.solve.enumerate import brute_force, count, enumerate_space
from constrint.solve.explain.conflict import Conflict, ConflictMember, minimal_conflict
from constrint.solve.explain.pruning import RulePruning, pruning
from constrint.solve.explain.relax import Relaxation, relaxations, ways_out
from constrint.solve.explain.why_not import BrokenRule, WhyNot, why_not
from constrint.solve.optimise import solve
from constrint.solve.solution import Solution
from constrint.solve.space.best import Ranked
from constrint.solve.space.space import SearchSpace

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
]
