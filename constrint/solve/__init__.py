"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy."""

from constrint.solve.backends import Backend, get_backend, list_backends
from constrint.solve.best import Ranked
from constrint.solve.enumerate import brute_force, count, enumerate_space
from constrint.solve.explain import Conflict, ConflictMember, minimal_conflict
from constrint.solve.lexical import solutions_in_order
from constrint.solve.limits import Limits, SearchStats, Status
from constrint.solve.optimise import solve
from constrint.solve.pruning import RulePruning, pruning
from constrint.solve.relax import Relaxation, relaxations, ways_out
from constrint.solve.solution import Solution
from constrint.solve.space import SearchSpace
from constrint.solve.whynot import BrokenRule, WhyNot, why_not

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
