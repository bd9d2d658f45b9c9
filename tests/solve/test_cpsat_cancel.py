"""A search by CP-SAT is cancelled also while it has found nothing."""

from __future__ import annotations

import random

from constrint.model import parse
from constrint.solve import Limits, Status, solve
from tests.support.clock import PATIENCE_S, worked


def split_problem(number: int, rules: int) -> str:
    """Which of many weights add up to half of them, for several weights at once: hard for every solver."""
    rng = random.Random(5)
    text = "\n".join(f"var v{i} in 0..1" for i in range(number)) + "\n"
    for _ in range(rules):
        weights = [rng.randint(1, 99) for _ in range(number)]
        terms = " + ".join(f"{w} * v{i}" for i, w in enumerate(weights))
        text += f"{terms} == {sum(weights) // 2}\n"
    return text


def test_cpsat_hears_that_a_search_is_cancelled() -> None:
    problem = parse(split_problem(50, 6))
    solve(parse("var x in 1..2"), backend="cpsat")

    answer = solve(problem, Limits(cancel=worked(0.5), max_seconds=PATIENCE_S), backend="cpsat")
    assert answer.status is Status.LIMIT_REACHED
    assert "cancelled" in answer.message
