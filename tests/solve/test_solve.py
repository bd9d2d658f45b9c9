import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import InfeasibleError, LimitReachedError, UndefinedValueError, UsageError
from constrint.model import Problem, Var, parse
from constrint.solve import (
    Limits,
    Status,
    brute_force,
    enumerate_space,
    solutions_in_order,
    solve,
)
from constrint.solve.backends import native
from constrint.solve.budget import Budget
from constrint.solve.engine import factored
from tests.support import strategies

CASES = json.loads((Path(__file__).parents[1] / "data" / "constrint_language_cases.json").read_text())


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["id"])
def test_language_cases_have_their_true_solutions(case: dict[str, Any]) -> None:
    problem = parse(case["text"], dialect=CASES["dialect"])
    space = enumerate_space(problem)
    if "count" in case:
        assert space.size == case["count"]
    else:
        key = lambda a: tuple(sorted(a.items()))  # noqa: E731
        assert sorted(map(key, space)) == sorted(map(key, case["solutions"]))
    assert solve(problem).status is (Status.FEASIBLE if space else Status.INFEASIBLE)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_first_solution_is_the_first_by_declared_order(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    solutions = brute_force(problem)
    answer = solve(problem)
    assert bool(answer) == bool(solutions)
    if solutions:
        assert answer.require() == solutions[0]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_best_solution_is_best(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    expr = data.draw(strategies.expressions(tuple(problem.variables)))
    smallest = data.draw(st.booleans())
    problem.minimise(expr) if smallest else problem.maximise(expr)
    values = []
    for solution in brute_force(problem):
        try:
            values.append(expr.value(solution))
        except UndefinedValueError:
            continue
    if not values:
        return
    answer = solve(problem)
    assert answer.value == (min(values) if smallest else max(values))
    assert expr.value(answer.require()) == answer.value
    assert all(c.holds(answer.assignment) for c in problem.constraints)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_depth_first_search_agrees_with_brute_force(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factored, "ENUMERABLE", 3)
        found = factored.search_one(problem, Budget(Limits()))
    solutions = brute_force(problem)
    assert (found is None) == (not solutions)
    assert found is None or found in solutions


def test_undeclared_names_are_searched_in_64_bits() -> None:
    answer = solve(parse("a * b == 10403 * c; a > c; b > c; c >= 5; a != 10403 * c; b != 10403 * c"))
    found = answer.require()
    assert found["a"] * found["b"] == 10403 * found["c"]
    far = solve(parse("x * x == 123456789 * 123456789; y == x + 2 ^ 40; y % 2 == 1")).require()
    assert far == {"x": 123456789, "y": 123456789 + 2**40}
    best = solve(parse("x % y == 3; y >= 1000; minimise x + y")).require()
    assert best["x"] + best["y"] == 1003


def test_a_limit_is_reported_not_guessed() -> None:
    hard = parse("x ^ 3 + y ^ 3 == z ^ 3")
    answer = solve(hard, Limits(max_nodes=50))
    assert answer.status is Status.LIMIT_REACHED
    with pytest.raises(LimitReachedError, match="max_nodes"):
        answer.require()


def test_infeasible_answers_carry_their_conflict() -> None:
    answer = solve(parse('problem p; var k in {16, 32} because "the instruction"; k divides 100 because "no rest"'))
    assert answer.status is Status.INFEASIBLE
    with pytest.raises(InfeasibleError, match="the instruction") as caught:
        answer.require()
    assert caught.value.conflict is not None
    assert [m.because for m in caught.value.conflict.members] == ["the instruction", "no rest"]


def test_an_objective_without_any_value_is_an_error() -> None:
    with pytest.raises(UndefinedValueError, match="objective"):
        solve(parse("var x in 1..3; minimise x / 5"))


def test_search_and_tables_agree_on_an_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse("var x in 1..60; var y in 1..60; x * y % 7 == 3; x + y >= 20; maximise 3 * x - y * y")
    by_tables = solve(problem).value
    monkeypatch.setattr(native, "_TABLE_ROWS", 1)
    assert solve(problem).value == by_tables


@settings(deadline=None, max_examples=40)
@given(start=st.integers(0, 10**9))
def test_solutions_come_in_declared_order(random_problem: Callable[[int], Problem], start: int) -> None:
    for number in range(start, start + 10):
        problem = random_problem(number)
        assert list(solutions_in_order(problem)) == brute_force(problem), str(problem)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_drawn_problems_are_walked_in_declared_order_without_the_core(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    assert list(solutions_in_order(problem, backend="numpy")) == brute_force(problem)


def test_a_walk_in_order_needs_no_tables() -> None:
    problem = parse("\n".join(f"var x{i} in 1..1000" for i in range(12)))
    for i in range(11):
        problem.add(Var(f"x{i}") * 2 <= Var(f"x{i + 1}") + 3, name=f"rule{i}")
    first, second = itertools.islice(solutions_in_order(problem), 2)
    assert list(first.values()) == [1] * 12
    assert list(second.values()) == [1] * 11 + [2]
    hard = parse("var x in 1..3000; var y in 1..3000; x * x == 7 * y * y - 1")
    with pytest.raises(LimitReachedError, match="max_cells"):
        next(solutions_in_order(hard, Limits(max_cells=9)))


@pytest.mark.parametrize(
    "text",
    [
        "var x in 1..100; x <= 9 ^ 9 ^ 9",
        "var x in 1..100; var y in 1..100; x ^ y ^ y <= 10 ^ 30",
        "var x in 1..9; var y in 1..99; x ^ y ^ 9 % 7 == 3",
        "x * y * z * w == 2 ^ 200; x > 2 ^ 40",
        "x ^ 5 + y ^ 5 == z ^ 5 + 1; x > y; y > 1",
        "var x in -9223372036854775808..9223372036854775807; x * x * x <= -7; x % 3 == 1",
        "x % y == z; y % z == x; z % x == y",
        "lcm(x, y) == 2 ^ 62; gcd(x, y) == 2 ^ 31; x != y",
    ],
)
def test_huge_numbers_end_in_an_answer_or_a_clear_error(text: str) -> None:
    try:
        problem = parse(text)
        answer = solve(problem, Limits(max_seconds=1, max_nodes=2000))
    except (LimitReachedError, UsageError):
        return
    if answer:
        assert all(c.holds(answer.assignment) for c in problem.constraints)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("var x in 4611686018427387904..4611686018427387906; x * 4 > 2 ^ 64", {"x": 4611686018427387905}),
        ("var x in {3037000500, 3037000499}; x * x > 2 ^ 63 - 1", {"x": 3037000500}),
        ("var x in {46341, 46340}; var y in {46341, 46340}; x * y < 2 ^ 31", {"x": 46341, "y": 46340}),
        ("var x in {65536, 65535}; var y in {32768}; x * y <= 2 ^ 31 - 1", {"x": 65535, "y": 32768}),
        ("var x in {2097152}; var y in {2097152}; var z in {2097152, 2097151}; x * y * z < 2 ^ 63", None),
    ],
)
def test_nothing_wraps_at_32_or_64_bits(text: str, expected: dict[str, int] | None) -> None:
    problem = parse(text)
    assert sorted(map(str, enumerate_space(problem))) == sorted(map(str, brute_force(problem)))
    answer = solve(problem)
    if expected is not None:
        assert answer.require() == expected
    assert answer.assignment == (brute_force(problem) or [{}])[0]
