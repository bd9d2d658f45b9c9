"""Declared order where a variable that follows from others is declared before them, in every way to ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from constrint import parse
from constrint.model import Problem, Var
from constrint.solve import best_solutions, enumerate_space, solutions_in_order, solve

TEXTS = (
    "var x in 0..20000; var y in 1..3; x == 20000 - 5000 * y",
    "var w in {2, 1}; var x in 0..200000; var u in 1..2; var y in 1..9; var z in {4, 3, 100}; x == y * z; w != u",
    "var x in -9000..9000; var y in 1..6; var z in -9000..9000; z == 3 * x; x == 100 * (y - 3) * (y - 5)",
)
INPUTS = {"y": range(1, 10), "z": (4, 3, 100), "w": (2, 1), "u": (1, 2)}


def expected(text: str) -> list[dict[str, int]]:
    """All solutions in declared order, found by trying the inputs."""
    if text is TEXTS[0]:
        return [{"x": 20000 - 5000 * y, "y": y} for y in (3, 2, 1)]
    if text is TEXTS[1]:
        found = [
            {"w": w, "x": y * z, "u": 3 - w, "y": y, "z": z} for w in (2, 1) for y in range(1, 10) for z in (4, 3, 100)
        ]
        return sorted(found, key=lambda s: (-s["w"], s["x"], s["y"], (4, 3, 100).index(s["z"])))
    rows = [(100 * (y - 3) * (y - 5), y) for y in range(1, 7)]
    return [{"x": x, "y": y, "z": 3 * x} for x, y in sorted(rows)]


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("text", TEXTS)
def test_solutions_come_in_declared_order_of_a_variable_that_follows_from_later_ones(text: str, backend: str) -> None:
    problem, wanted = parse(text), expected(text)
    assert list(solutions_in_order(problem, backend=backend)) == wanted
    assert solve(problem, backend=backend).assignment == wanted[0]
    assert [s.assignment for s in best_solutions(problem, 3, backend=backend)] == wanted[:3]
    space = enumerate_space(problem, backend=backend)
    assert space.first() == wanted[0]
    assert space.exclude(wanted[0]).first() == wanted[1]
    assert space.exclude(*wanted[:2]).first() == wanted[2]


def test_the_first_of_very_many_is_found_by_search() -> None:
    problem = parse("var x in 1..10000000000; var y in 1..100000; var z in 1..100000; x == y * z; x % 7 == 3")
    assert solve(problem).assignment == {"x": 3, "y": 1, "z": 3}


@pytest.mark.parametrize("listed", [None, range(20000, -1, -1)], ids=["range", "preferred"])
def test_ties_go_to_what_comes_first_by_a_variable_that_follows_from_later_ones(listed: Any) -> None:
    problem = Problem()
    x = problem.int_var("x", listed) if listed else problem.int_var("x", lower=0, upper=20000)
    y = problem.int_var("y", lower=1, upper=3)
    problem.add(x == 20000 - 5000 * y)
    best = enumerate_space(problem).best(3, Var("x") + 5000 * y)
    assert [b.config["y"] for b in best] == ([1, 2, 3] if listed else [3, 2, 1])
