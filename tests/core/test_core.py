"""The compiled core answers exactly as the numpy path, declines what it cannot hold, and may be absent."""

from __future__ import annotations

import copy
import json
import pickle
import random
import shutil
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from constrint.core import compiled
from constrint.errors import CancelledError, LimitReachedError, ParseError, UndefinedValueError
from constrint.model import Problem, Var, divides, parse, render
from constrint.model.python import restrictions
from constrint.model.python.restrictions import SpaceProblem, load_space, problem_from_space
from constrint.solve import Limits, SearchSpace, enumerate_space, minimal_conflict, solutions_in_order, solve
from constrint.solve.budget import Budget, Status
from constrint.solve.engine import compiled as engine

SPACES = sorted(p for p in (Path(__file__).parents[1] / "data" / "spaces").glob("*.json") if p.stem != "counts")
LARGEST = 400_000

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")

pytestmark = pytest.mark.skipif(
    compiled is None and COMPILER is None, reason="the compiled core was not built (no C++ compiler)"
)


def test_the_core_is_there_where_a_compiler_is() -> None:
    assert compiled is not None, f"{COMPILER} is there, but installing did not build constrint.core._core"


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the core had not been built."""
    monkeypatch.setattr(engine, "core", None)
    monkeypatch.setattr(restrictions, "compiled", None)


def linked_problem(number: int) -> Problem:
    """Five to nine variables in long chains: several tables, linked and counted."""
    rng = random.Random(number)
    problem = Problem()
    many = [
        problem.int_var(f"v{i}", values=rng.sample(range(-4 if rng.random() < 0.3 else 1, 40), rng.randint(5, 12)))
        for i in range(rng.randint(5, 9))
    ]
    for a, b in pairwise(many):
        if rng.random() < 0.2:
            continue
        c = rng.choice(many)
        problem.add(
            rng.choice(
                [
                    divides(a, b),
                    a * b <= rng.randint(50, 400),
                    (a + b) % rng.randint(2, 4) == 0,
                    a * c + b >= rng.randint(20, 200),
                    b // a != rng.randint(0, 2),
                    a <= b,
                ]
            )
        )
    return problem


def rows(space: SearchSpace, names: tuple[str, ...]) -> list[tuple[int, ...]]:
    columns = space.columns()
    return list(zip(*(columns[n].tolist() for n in names), strict=True))


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_linked_tables_equal_those_of_numpy(start: int) -> None:
    for number in range(start, start + 20):
        problem = linked_problem(number)
        found = enumerate_space(problem)
        try:
            expected = enumerate_space(problem, Limits(max_rows=1 << 16), backend="numpy")
        except LimitReachedError:
            continue  # One table of what the core keeps as a tree has too many rows.
        assert found.size == expected.size, str(problem)
        if found.size > LARGEST:
            continue
        listed = rows(found, problem.names)
        assert sorted(listed) == sorted(rows(expected, problem.names)), str(problem)
        picked = range(0, found.size, max(1, found.size // 7))
        taken = found.take(picked)
        for at, i in enumerate(picked):
            assert listed[i] == tuple(int(taken[n][at]) for n in problem.names)
            assert found.index(found[i]) == i
        in_order = islice(solutions_in_order(problem), 5)
        assert list(in_order) == list(islice(solutions_in_order(problem, backend="numpy"), 5)), str(problem)


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_the_best_equals_that_of_numpy(start: int) -> None:
    for number in range(start, start + 20):
        problem = linked_problem(number)
        rng = random.Random(number)
        a, b, c = (Var(n) for n in rng.sample(problem.names, 3))
        expr = rng.choice([a * b, a + b - c, a // c, a % b + c, a**2 - b * c, a / b])
        problem.minimise(expr) if rng.random() < 0.5 else problem.maximise(expr)
        try:
            expected = solve(problem, Limits(max_rows=1 << 18, max_nodes=100, max_cells=1 << 22), "numpy")
        except UndefinedValueError:
            with pytest.raises(UndefinedValueError):
                solve(problem)
            continue
        if expected.status is Status.LIMIT_REACHED:
            continue
        found = solve(problem)
        assert (found.status, found.value) == (expected.status, expected.value)


@pytest.mark.parametrize(
    "text",
    [
        "var a in 1..60; var b in 1..30; var c in 1..50; var d in 0..300; a * b <= 300; b + c <= 40; d % c == 1",
        "var a in 1..60; var b in 1..9; var c in 1..2000; var d in -3..4; a * b <= 300; c % b == 0; d % 3 != a",
        "var a in 1..400; var b in 1..40; var c in 1..3; var d in 0..1; var e in 0..5; b < a; c + d < 4; a % 7 == e",
    ],
    ids=["a chain", "runs of many lengths", "several parts"],
)
def test_long_listings_equal_those_of_numpy(text: str) -> None:
    listed = []
    for backend in ("native", "numpy"):
        columns = enumerate_space(parse(text), backend=backend).columns()
        assert all(column.flags.aligned and column.flags.writeable for column in columns.values())
        rows = np.stack([column.astype(np.int64) for column in columns.values()])
        listed.append(rows[:, np.lexsort(rows)])
    assert listed[0].shape[1] > 50_000
    assert np.array_equal(listed[0], listed[1])


@pytest.mark.parametrize("path", SPACES, ids=lambda p: p.stem)
def test_published_spaces_without_the_core(path: Path, absent: None) -> None:
    problem = load_space(path)
    assert not isinstance(problem, SpaceProblem)
    assert enumerate_space(problem).size == json.loads(path.read_text())["expected"]


@pytest.mark.parametrize("path", SPACES, ids=lambda p: p.stem)
def test_what_the_core_read_is_the_problem_that_python_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_core = load_space(path)
    assert isinstance(by_core, SpaceProblem)
    assert by_core.core is not None
    monkeypatch.setattr(restrictions, "compiled", None)
    by_python = load_space(path)
    assert by_core.names == by_python.names
    assert by_core == by_python
    assert parse(render(by_core)) == parse(render(by_python))


def test_a_problem_that_the_core_read_is_like_any_other() -> None:
    problem = problem_from_space({"a": [1, 2, 3, 4], "b": (2, 4)}, ["a < b", "a % 2 == 0"], "pair")
    assert enumerate_space(problem).size == 1
    for twin in (copy.copy(problem), copy.deepcopy(problem), pickle.loads(pickle.dumps(problem)), problem.copy()):
        assert twin == problem
        assert enumerate_space(twin).size == 1
    c = problem.int_var("c", values=[5, 6])
    problem.add(c * problem.int_var("d", lower=1, upper=3) == 15)
    assert problem.names == ("a", "b", "c", "d")
    assert list(enumerate_space(problem)) == [{"a": 2, "b": 4, "c": 5, "d": 3}]
    assert solve(problem).assignment == {"a": 2, "b": 4, "c": 5, "d": 3}


def test_a_solved_problem_and_its_space_can_be_copied_and_pickled() -> None:
    problem = linked_problem(3)
    space = enumerate_space(problem)
    assert problem.core is not None
    for twin in (copy.copy(problem), copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        assert twin == problem
        assert twin.core is None
        assert enumerate_space(twin).size == space.size
    for other in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert rows(other, problem.names) == rows(space, problem.names)
        assert other[space.size // 2] == space[space.size // 2]


def declined() -> Iterator[Problem]:
    """Problems beyond the core: many values, wide numbers, no variable at all."""
    many = Problem("many values")
    x = many.int_var("x", lower=1, upper=5000)
    many.add(x * x % 1000 == 49)
    yield many
    wide = Problem("wide numbers")
    y = wide.int_var("y", values=[1, 2, 3, 2**40])
    wide.add(y * y * y <= 2**119)
    yield wide
    far = Problem("a wide domain")
    z = far.int_var("z", values=[2**70, 5])
    far.add(z >= 6)
    yield far
    yield Problem("nothing")


@pytest.mark.parametrize("problem", list(declined()), ids=lambda p: p.name)
def test_what_the_core_declines_is_solved_all_the_same(problem: Problem) -> None:
    space = enumerate_space(problem)
    assert list(space) == list(enumerate_space(problem, backend="numpy"))
    assert problem.core is None or engine.enumerate_factors(problem, Budget(Limits())) is None


@pytest.mark.parametrize(
    "text",
    ["a +", "a ** b > 1", "a / 3 == 1", "a.b > 1", "lambda: 1", "a if b else 1", "unknown > 1", "a == 1_000", "a in b"],
)
def test_a_mistake_is_pythons_to_explain(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer() -> tuple[str, object]:
        try:
            return "", problem_from_space({"a": [1, 2, 3], "b": [1, 2]}, ["a > 0", text])
        except ParseError as error:
            return str(error), None

    with_core = answer()
    monkeypatch.setattr(restrictions, "compiled", None)
    assert answer() == with_core


def large_problem() -> Problem:
    params = {n: list(range(1, 200)) for n in "abcd"}
    return problem_from_space(params, ["a * b + c * d >= 40", "a * d != b * c"])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(max_cells=10_000), "max_cells=10000"),
        (Limits(max_rows=10_000), "max_rows=10000"),
        (Limits(max_bytes=10_000), "max_bytes=10000"),
        (Limits(max_seconds=0.05), "max_seconds"),
    ],
    ids=["cells", "rows", "bytes", "seconds"],
)
def test_limits_hold_inside_the_core(limits: Limits, message: str) -> None:
    with pytest.raises(LimitReachedError, match=message):
        enumerate_space(large_problem(), limits)


def test_a_search_in_the_core_reports_and_can_be_cancelled() -> None:
    seen: list[int] = []
    limits = Limits(progress=lambda stats: seen.append(stats.cells), cancel=lambda: len(seen) > 5)
    with pytest.raises(CancelledError):
        enumerate_space(large_problem(), limits)
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_an_error_in_a_progress_callback_comes_through() -> None:
    def fail(stats: object) -> None:
        raise RuntimeError("no room on the screen")

    with pytest.raises(RuntimeError, match="no room"):
        enumerate_space(large_problem(), Limits(progress=fail))


def test_conflicts_are_found_through_the_core() -> None:
    problem = problem_from_space({"a": [1, 2, 3], "b": [4, 5]}, ["a > b", "a + b > 0"])
    assert not enumerate_space(problem)
    assert not solve(problem)
    assert "a > b" in str(minimal_conflict(problem))


def test_a_walk_to_its_end_counts_every_solution_and_says_how_far_it_came() -> None:
    assert compiled is not None
    problem = parse("var a in 1..60; var b in 1..60; var c in 1..60; (a * b + c) % 7 == 3")
    walk = engine.walk_in_order(problem, Budget(Limits()))
    assert isinstance(walk, engine.CompiledWalk)
    held, (component,) = walk._walk, walk.components
    assert set(component) == {"a", "b", "c"}
    assert compiled.walk_state(held, 0) == (0, 0.0)
    half = 60 * 60 * 60 // 14
    for _ in range(half):
        compiled.walk_next(held, 0, 1 << 40, None)
    number, share = compiled.walk_state(held, 0)
    assert number == half
    assert share == pytest.approx(0.5, abs=0.02)
    assert compiled.walk_to_end(held, 0, 1 << 40, None)[0] == "end"
    assert compiled.walk_state(held, 0) == (enumerate_space(problem).size, 1.0)
    with pytest.raises(IndexError, match="no component"):
        compiled.walk_state(held, 1)
