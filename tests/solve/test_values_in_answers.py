"""Hints, the k best, soft rules and what spaces are asked: all of these take and give values, never their codes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from constrint.errors import UsageError
from constrint.model import Problem, any_of, not_in, parse, render
from constrint.model.ratio import Symbol, expression_of
from constrint.solve import (
    SearchSpace,
    all_optima,
    best_solutions,
    enumerate_space,
    minimal_conflict,
    relaxations,
    solve,
    why_not,
)
from tests.solve.test_values import mixed, typed

BACKENDS = ("auto", "native", "numpy", "brute", "cpsat", "python-constraint")


def halves() -> Problem:
    """Fractions, texts with None, True and False, and integers."""
    problem = Problem("halves")
    x, s = problem.var("x", [0.5, 1.5, 2.5]), problem.var("s", ["a", "b", None])
    b, n = problem.bool_var("b"), problem.int_var("n", values=[4, 2, 1])
    problem.add(x * 2 <= n + 1)
    problem.add(any_of(s != "a", b))
    return problem


def rows_of(problem: Problem) -> list[dict[str, Any]]:
    """The solutions of `halves` by plain Python, in declared order."""
    rows = [
        {"x": x, "s": s, "b": b, "n": n}
        for x in (0.5, 1.5, 2.5)
        for s in ("a", "b", None)
        for b in (False, True)
        for n in (4, 2, 1)
        if x * 2 <= n + 1 and (s != "a" or b)
    ]
    assert len(rows) == enumerate_space(problem).size
    return rows


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_k_best_with_a_hint_and_soft_rules(backend: str) -> None:
    problem = halves()
    x, n = 2 * problem_var(problem, "x"), problem_var(problem, "n")
    s = problem_var(problem, "s")
    problem.add_soft(x >= 5, weight=5, name="wide")
    problem.add_soft(s == "a")
    problem.maximise(n)
    problem.minimise(x)

    def rank(row: dict[str, Any]) -> tuple[Any, ...]:
        return 5 * (row["x"] < 2.5) + (row["s"] != "a"), -row["n"], row["x"]

    expected = sorted(map(rank, rows_of(problem)))
    found = best_solutions(problem, 7, backend=backend, hint={"x": 1.5, "s": None, "b": True, "n": 4})
    assert [rank(answer.assignment) for answer in found] == expected[:7]
    assert len({str(answer.assignment) for answer in found}) == 7
    for answer in found:
        assert typed([answer.assignment])[0] in typed(rows_of(problem))
        assert answer.penalty == rank(answer.assignment)[0]
        names = [soft.constraint.name for soft in answer.violated]
        assert ("wide" in names) == (answer.assignment["x"] < 2.5)
    best = solve(problem, backend=backend, hint={"x": 99.0, "s": "none of them"})
    assert rank(best.assignment) == expected[0]
    assert 's = "a"' in str(best)
    assert parse(render(problem)) == problem


def problem_var(problem: Problem, name: str) -> Any:
    """What `var` returned for a variable."""
    return expression_of(name, problem.variables[name])


def test_hints_that_are_no_values_are_refused() -> None:
    with pytest.raises(UsageError, match="can be hashed"):
        solve(halves(), hint={"s": ["a"]})


def test_spaces_of_random_values_are_asked_in_values() -> None:
    compared = 0
    for seed in range(120):
        rng = random.Random(seed)
        problem, pools = mixed(seed)
        made = {name: problem.var(name, values) for name, values in pools.items()}
        for name, values in pools.items():
            if isinstance(made[name], Symbol) and rng.random() < 0.7:
                problem.add(made[name] != rng.choice(values))
        space = enumerate_space(problem)
        rows = list(space)
        wanted: dict[str, Any] = {}
        kept = rows
        for name in rng.sample(list(pools), rng.randint(1, 3)):
            other = 777 if problem.variables[name].labels is None else "no value of it"
            values = rng.sample([*pools[name], other], rng.randint(0, len(pools[name])))
            wanted[name] = rng.choice([list(values), set(values), iter(values)])
            kept = [row for row in kept if row[name] in values]
        compared += 0 < len(kept) < len(rows)
        assert typed(space.restrict(**wanted)) == typed(kept)
        low, high = sorted(rng.randint(0, len(rows)) for _ in range(2))
        assert typed(space[low:high]) == typed(rows[low:high])
        if rows:
            picked = [rng.randrange(len(rows)) for _ in range(3)]
            assert [typed([row]) for row in space[picked]] == [typed([rows[i]]) for i in picked]
            assert space.contains_columns(space.columns())
        twin = enumerate_space(problem, backend="numpy")
        assert space == twin
        assert hash(space) == hash(twin)
        assert not rows or space != space.exclude(rows[0])
    assert compared > 20


def space_of(values: list[Any]) -> SearchSpace:
    """One variable without rules."""
    problem = Problem()
    problem.var("x", values)
    return enumerate_space(problem)


def test_spaces_are_equal_by_values_not_by_codes() -> None:
    texts = space_of(["a", "b"])
    assert texts == space_of(["a", "b"])
    assert texts == space_of(["b", "a"])
    for other in (["c", "d"], [0, 1], [0.5, 1.5], [None, "a"]):
        assert texts != space_of(other)
        assert space_of(other) != texts


def test_a_tuple_that_is_a_value_is_one_value() -> None:
    space = space_of([(1, 2), (3, 4), 1])
    for wanted, found in (((1, 2), [(1, 2)]), ([(1, 2), 1], [(1, 2), 1])):
        assert typed(space.restrict(x=wanted)) == typed({"x": value} for value in found)
    assert space.restrict(x=[]).size == space.restrict(x="nothing").size == 0


def test_shown_as_frames_and_html() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    space = enumerate_space(halves())
    frame = space.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert typed(frame.to_dict("records")) == typed(space)
    assert "2.5" in space._repr_html_()


def test_not_in_of_values_means_none_of_them() -> None:
    problem = halves()
    problem.add(not_in(problem_var(problem, "s"), ["a", None]))
    assert {str(row["s"]) for row in enumerate_space(problem)} == {"b"}
    assert parse(render(problem)) == problem
    assert why_not(problem, {"x": 0.5, "s": "a", "b": True, "n": 4}).broken[0].text == 's not in {"a", none}'


FRACTIONS = """
var s in {0.5, 1.5}
var k in 1..4
big: s * k >= 5 because "enough"
small: k <= 3
other: s + k <= 2.5
minimise s * k + s
"""


def test_rules_and_objectives_over_fractions_are_in_the_numbers_that_were_stated() -> None:
    problem = parse(FRACTIONS)
    assert [str(rule) for rule in problem.constraints] == ["s * k >= 5", "k <= 3", "s + k <= 2.5"]
    assert "s * k >= 5" in str(minimal_conflict(problem))
    assert [way.text for way in relaxations(problem) if "instead" in way.text] == ["s * k >= 1.5 (instead of 5)"]
    assert [rule.seen for rule in why_not(problem, {"s": 0.5, "k": 4}).broken] == [
        "2 >= 5 is false",
        "4 <= 3 is false",
        "4.5 <= 2.5 is false",
    ]


@pytest.mark.parametrize("backend", ["native", "numpy", "cpsat"])
def test_objectives_over_fractions_have_their_own_values(backend: str) -> None:
    problem = parse("var s in {0.5, 1.5}; var k in 1..4; s * k >= 2; minimise s * k + s; maximise k * 0.25")
    best = solve(problem, backend=backend)
    assert (best.values, best.bound, str(problem.objectives[0])) == ((2.5, 1), 2.5, "minimise s * k + s")
    assert [dict(row) for row in all_optima(problem, backend="native")] == [{"s": 0.5, "k": 4}]


def test_what_is_written_of_fractions_is_read_as_the_same() -> None:
    rng = random.Random(38)

    def drawn(depth: int) -> str:
        if depth == 0:
            return rng.choice(["a", "b", "k", "m", str(rng.randint(1, 6)), "0.5", "1.25"])
        return f"({drawn(depth - 1)} {rng.choice('+-**')} {drawn(depth - 1)})"

    head = "var a in {0.5, 1.5}; var b in {0.25, 1, 2.5}; var k in 1..4; var m in -2..3\n"
    for _ in range(300):
        rule = f"{drawn(rng.randint(1, 3))} {rng.choice(['<=', '==', '>', '!='])} a + {drawn(rng.randint(0, 2))}"
        problem = parse(f"{head}{rule}\nminimise {drawn(2)}")
        assert parse(render(problem)) == problem, rule
