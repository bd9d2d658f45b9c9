"""Questions at the borders: empty spaces, rules without a value, hints beyond 64 bits, conflicts that a limit left."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from constrint import parse
from constrint.errors import LimitReachedError
from constrint.model import Problem
from constrint.solve import Limits, enumerate_space, minimal_conflict, relaxations, solutions_in_order, solve
from constrint.solve.explain.conflict import Conflict
from constrint.solve.optimise import best_order
from tests.support.clock import within


def test_an_empty_space_with_a_variable_that_follows_answers_every_question() -> None:
    space = enumerate_space(parse("var z in {90000,120000}; var x in 0..200000; x == z-10; x % 11 in {3,4}"))
    assert (space.size, space.sample(1), space[0:3], list(space), space[[]]) == (0, [], [], [], [])
    assert {n: len(c) for n, c in space.take([]).items()} == {"z": 0, "x": 0}
    assert "0 of" in repr(space)
    assert "0 of" in space._repr_html_()
    assert space.best(3, parse("var x in 1..2; maximise x").objectives[0].expr) == []
    assert space.restrict(x=5).size == space.extend({"z": 90000}).size == 0
    with pytest.raises(IndexError, match="empty"):
        space.first()


@pytest.mark.parametrize("rule", ["x / 3 <= 5", "x / 3 >= 5", "x / 3 == 5", "6 // (x - x) < 3"])
def test_a_rule_that_never_has_a_value_is_a_conflict_with_ways_out(rule: str) -> None:
    problem = parse(f"var x in {{2, 4}}; {rule}")
    ways = relaxations(problem)
    assert f"drop {problem.constraints[0]}" in map(str, ways)
    assert all(w.problem.constraints == () or w.member.variable for w in ways)


@pytest.mark.parametrize("backend", ["auto", "native", "numpy", "cpsat", "brute"])
@pytest.mark.parametrize("value", [10**20, -(2**63), 2**63, 17])
def test_a_hint_outside_the_domain_is_no_help_and_no_error(backend: str, value: int) -> None:
    problem = parse("var x in 1..3; var y in 1..4; x < y; maximise x * y")
    assert solve(problem, backend=backend, hint={"x": value}).value == 12


def test_a_conflict_that_a_limit_left_says_so() -> None:
    conflict = minimal_conflict(parse("var x in 1..3; x > 4"))
    assert "limit" not in str(conflict)
    assert "before it was known whether fewer" in str(Conflict(conflict.members, minimal=False))


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_time_holds_between_solutions_too(backend: str) -> None:
    problem = parse("var a in 1..4000; var b in 1..4000; var c in 1..4000; a * b + c != 7")
    found = 0

    def walk() -> None:
        nonlocal found
        for _ in solutions_in_order(problem, Limits(max_seconds=0.3), backend):
            found += 1

    def ended() -> str:
        try:
            walk()
        except LimitReachedError as error:
            return str(error)
        return ""

    assert "max_seconds=0.3" in within(0.3 * 1.2 + 0.2, ended)
    assert found > 100


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_memory_of_what_waits_is_counted(backend: str) -> None:
    """Two components whose variables alternate: what comes next is compared, and kept until then."""
    problem = parse("var a in 1..4000; var b in 1..4000; var c in 1..4000; var d in 1..4000; a * 7 != c; b * 5 != d")
    walk = solutions_in_order(problem, Limits(max_bytes=100_000), backend)
    with pytest.raises(LimitReachedError, match="max_bytes=100000"):
        next(itertools.islice(walk, 100_000, None), None)


def test_a_walk_over_one_component_keeps_nothing() -> None:
    problem = parse("var a in 1..40; var b in 1..40; var c in 1..40; a * b + c != 7")
    walk = solutions_in_order(problem, Limits(max_bytes=2_000_000))
    assert sum(1 for _ in walk) == 40**3 - 14


@pytest.mark.parametrize("least", [-(2**63), -(2**63) - 1, 2**63, 2**64])
def test_orders_are_exact_at_the_borders_of_64_bits(least: int) -> None:
    problem = Problem()
    x = problem.int_var("x", values=[least, 5, 7])
    problem.maximise(x)
    problem.maximise(-x)
    space = enumerate_space(problem)
    order = best_order(problem, space.columns(), space.size)
    assert space.columns()["x"][order].tolist() == sorted([least, 5, 7], reverse=True)
    assert solve(problem).value == max(least, 7)


def test_weights_beyond_64_bits_order_exactly_and_rows_without_a_value_come_last() -> None:
    problem = Problem()
    x = problem.int_var("x", values=[2**63, 5, 0, 7])
    problem.add_soft(x > 5, weight=2**63 - 1)
    problem.add_soft(x <= 7, weight=2**63 - 1)
    problem.add_soft(x <= 8, weight=2**70)
    problem.minimise(6 // x)
    columns = {"x": np.array([2**63, 5, 0, 7], dtype=object)}
    order = best_order(problem, columns, 4)
    assert columns["x"][order].tolist() == [7, 5, 2**63, 0]
