import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import InfeasibleError, LimitReachedError, UndefinedValueError
from constrint.model import parse
from constrint.solve import Limits, Status, brute_force, enumerate_space, optimise, search, solve
from constrint.solve.limits import Budget

CASES = json.loads((Path(__file__).parents[1] / "data" / "constrint_language_cases.json").read_text())


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["id"])
def test_language_cases_have_their_true_solutions(case):
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
def test_first_solution_is_the_first_by_declared_order(strategies, data):
    problem = data.draw(strategies.problems())
    solutions = brute_force(problem)
    answer = solve(problem)
    assert bool(answer) == bool(solutions)
    if solutions:
        assert answer.require() == solutions[0]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_best_solution_is_best(strategies, data):
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
def test_depth_first_search_agrees_with_brute_force(strategies, data):
    problem = data.draw(strategies.problems())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "ENUMERABLE", 3)
        found = search.search_one(problem, Budget(Limits()))
    solutions = brute_force(problem)
    assert (found is None) == (not solutions)
    assert found is None or found in solutions


def test_undeclared_names_are_searched_in_64_bits():
    answer = solve(parse("a * b == 10403 * c; a > c; b > c; c >= 5; a != 10403 * c; b != 10403 * c"))
    found = answer.require()
    assert found["a"] * found["b"] == 10403 * found["c"]
    far = solve(parse("x * x == 123456789 * 123456789; y == x + 2 ^ 40; y % 2 == 1")).require()
    assert far == {"x": 123456789, "y": 123456789 + 2**40}
    best = solve(parse("x % y == 3; y >= 1000; minimise x + y")).require()
    assert best["x"] + best["y"] == 1003


def test_a_limit_is_reported_not_guessed():
    hard = parse("x ^ 3 + y ^ 3 == z ^ 3")
    answer = solve(hard, Limits(max_nodes=50))
    assert answer.status is Status.LIMIT_REACHED
    with pytest.raises(LimitReachedError, match="max_nodes"):
        answer.require()


def test_infeasible_answers_carry_their_conflict():
    answer = solve(parse('problem p; var k in {16, 32} because "the instruction"; k divides 100 because "no rest"'))
    assert answer.status is Status.INFEASIBLE
    with pytest.raises(InfeasibleError, match="the instruction") as caught:
        answer.require()
    assert caught.value.conflict is not None
    assert [m.because for m in caught.value.conflict.members] == ["the instruction", "no rest"]


def test_an_objective_without_any_value_is_an_error():
    with pytest.raises(UndefinedValueError, match="objective"):
        solve(parse("var x in 1..3; minimise x / 5"))


def test_search_and_tables_agree_on_an_objective(monkeypatch):
    problem = parse("var x in 1..60; var y in 1..60; x * y % 7 == 3; x + y >= 20; maximise 3 * x - y * y")
    by_tables = solve(problem).value
    monkeypatch.setattr(optimise, "_TABLE_ROWS", 1)
    assert solve(problem).value == by_tables
