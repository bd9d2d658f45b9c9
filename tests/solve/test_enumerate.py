import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import LimitReachedError, UnknownNameError, UsageError
from constrint.model import Problem, parse
from constrint.solve import Limits, brute_force, count, enumerate_space
from constrint.solve.budget import available_bytes
from constrint.solve.engine import factored
from constrint.solve.engine import prepare as preparation
from constrint.solve.space import axes
from tests.support import strategies

SPACES = Path(__file__).parents[1] / "data" / "spaces"
COUNTS = json.loads((SPACES / "counts.json").read_text())


def space_file(name: str) -> Problem:
    return parse((SPACES / f"{name}.constrint").read_text(), source=name)


@pytest.fixture(
    scope="module",
    params=[{}, {"small": 0, "piece": 16}],
    ids=["as shipped", "propagated, in pieces"],
)
def paths(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests through every path of the solver by moving its thresholds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "SMALL", request.param.get("small", preparation.SMALL))
        patch.setattr(factored, "_PIECE_CELLS", request.param.get("piece", factored._PIECE_CELLS))
        yield


def rows(problem: Problem, assignments: Iterable[Mapping[str, int]]) -> list[tuple[int, ...]]:
    return [tuple(a[n] for n in problem.variables) for a in assignments]


@settings(deadline=None, max_examples=35)
@given(st.data())
def test_space_equals_brute_force(paths: None, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    expected = rows(problem, brute_force(problem))
    space = enumerate_space(problem)
    found = rows(problem, space)
    assert len(found) == len(set(found))
    assert sorted(found) == sorted(expected)
    assert len(space) == space.size == len(expected)
    columns = space.columns()
    assert list(columns) == list(problem.variables)
    assert list(zip(*(c.tolist() for c in columns.values()), strict=True)) == found
    for i in range(min(5, len(found))):
        assert rows(problem, [space[i], space[-1 - i]]) == [found[i], found[-1 - i]]


@settings(deadline=None, max_examples=35)
@given(st.data())
def test_parts_of_a_space_equal_brute_force(paths: None, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    solutions = brute_force(problem)
    space = enumerate_space(problem)
    names = data.draw(st.lists(st.sampled_from(list(problem.variables)), unique=True))
    columns, counts = space.project(names)
    keys = list(zip(*(columns[n].tolist() for n in names), strict=True)) if names else [()] * len(counts)
    assert len(keys) == len(set(keys))
    assert dict(zip(keys, counts.tolist(), strict=True)) == Counter(tuple(s[n] for n in names) for s in solutions)
    assignment = {n: data.draw(st.sampled_from(list(d))) for n, d in problem.variables.items()}
    partial = {n: assignment[n] for n in names}
    completions = [s for s in solutions if all(s[n] == v for n, v in partial.items())]
    extended = space.extend(partial)
    assert sorted(rows(problem, extended)) == sorted(rows(problem, completions))
    assert extended.size == len(completions)
    assert space.contains(assignment) == (assignment in solutions)
    assert extended.contains(assignment) == (assignment in completions)
    near = [s for s in solutions if sum(s[n] != assignment[n] for n in s) == 1]
    assert sorted(rows(problem, space.neighbours(assignment))) == sorted(rows(problem, near))


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_published_spaces_have_their_counts(name: str) -> None:
    assert count(space_file(name)) == COUNTS[name]


def test_every_row_of_a_published_space_is_valid_and_distinct() -> None:
    problem = space_file("gemm_clblast")
    columns = {n: c.astype(np.int64) for n, c in enumerate_space(problem).columns().items()}
    for constraint in problem.constraints:
        assert constraint.holds_columns(columns).all()
    assert len(np.unique(np.stack(list(columns.values())), axis=1)[0]) == COUNTS["gemm_clblast"]


def test_a_large_space_stays_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    space = enumerate_space(space_file("atf_gemm_10x500x64"))
    assert space.size == 251_370_000
    assert space.stats.rows < 100_000
    last = space[space.size - 1]
    assert space.contains(last)
    assert all(c.holds(last) for c in space.problem.constraints)
    monkeypatch.setattr(axes, "available_bytes", lambda: 2 << 30)
    for listed in (space, enumerate_space(space.problem, backend="numpy")):
        with pytest.raises(LimitReachedError, match=r"251370000 rows of \d+ bytes; .* Project"):
            listed.columns()
    columns, counts = space.project(["L_CB_SIZE_L_2", "CACHE_L_CB"])
    assert counts.sum() == space.size
    first = {n: int(columns[n][0]) for n in columns}
    assert space.extend(first).size == counts[0]


@pytest.mark.slow
@pytest.mark.skipif(available_bytes() < 2 << 30, reason="listing 2 ^ 27 rows and more takes two gigabytes of memory")
@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_memory_alone_limits_a_listing(backend: str) -> None:
    space = enumerate_space(parse("var a in 1..600; var b in 1..600; var c in 1..600; a != b"), backend=backend)
    assert space.size == 600 * 599 * 600 > 1 << 27
    columns = space.columns()
    assert all(len(c) == space.size and c.dtype == np.int16 for c in columns.values())
    assert not np.any(columns["a"] == columns["b"])
    for at in (0, 1 << 27, space.size - 1):
        assert {n: int(c[at]) for n, c in columns.items()} == space[at]


def test_huge_free_ranges_cost_nothing() -> None:
    problem = Problem()
    x = problem.int_var("x", lower=-(2**63), upper=2**63 - 1)
    problem.int_var("y", lower=0, upper=10**30, step=10)
    z = problem.int_var("z", values=[1, 2, 3])
    problem.add(z != 2)
    space = enumerate_space(problem)
    assert space.size == 2 * 2**64 * (10**29 + 1)
    with pytest.raises(OverflowError, match="size"):
        len(space)
    for config in (space[0], space[space.size - 1], *space.sample(3, seed=1)):
        assert space.contains(config)
    assert space.restrict(x=-(2**63), y=10**30).size == 2
    assert space.restrict(y=5).size == 0
    assert enumerate_space(problem).project(["z"])[1].tolist() == [space.size // 2] * 2
    problem.add(x >= 2**63 - 3)
    assert enumerate_space(problem).project(["x"])[0]["x"].tolist() == [2**63 - 3, 2**63 - 2, 2**63 - 1]


def test_values_beyond_64_bits_are_exact() -> None:
    problem = parse("var a in {4294967296, 18446744073709551616}\nvar b in {1, 4294967296}\na * b == 2 ^ 64")
    assert sorted(s["a"] for s in enumerate_space(problem)) == [2**32, 2**64]


def test_variables_that_follow_from_others_need_no_table() -> None:
    problem = parse("var x in 1..300; var y in 1..300; var z; var w; z == x * y + 1; w == z * z; z % 7 == 0")
    space = enumerate_space(problem)
    expected = {(x, y) for x in range(1, 301) for y in range(1, 301) if (x * y + 1) % 7 == 0}
    assert {(s["x"], s["y"]) for s in itertools.islice(space, space.size)} == expected
    assert all(s["z"] == s["x"] * s["y"] + 1 and s["w"] == s["z"] ** 2 for s in space)
    columns, counts = space.project(["z"])
    assert counts.sum() == space.size
    assert sorted(columns["z"].tolist()) == sorted({x * y + 1 for x, y in expected})
    assert sorted(rows(problem, space.restrict(z=7))) == [(1, 6, 7, 49), (2, 3, 7, 49), (3, 2, 7, 49), (6, 1, 7, 49)]
    assert space.contains({"x": 2, "y": 3, "z": 7, "w": 49})
    assert not space.contains({"x": 2, "y": 3, "z": 8, "w": 49})


def test_limits_are_honest() -> None:
    problem = parse("x <= y")
    with pytest.raises(LimitReachedError, match=r"'x'.*max_values"):
        enumerate_space(problem)
    wide = parse("var x in 1..3000; var y in 1..3000; x * y % (x + y) != 7")
    with pytest.raises(LimitReachedError, match="max_rows"):
        enumerate_space(wide, Limits(max_rows=1_000_000))
    with pytest.raises(LimitReachedError, match="max_seconds"):
        enumerate_space(wide, Limits(max_seconds=0.0))


def test_an_empty_space_answers_everything() -> None:
    space = enumerate_space(parse("var x in 1..3; var y in {5}; x > y; x * y == 3"))
    assert not space
    assert (space.size, len(space), list(space), space.sample(3)) == (0, 0, [], [])
    assert {n: c.tolist() for n, c in space.columns().items()} == {"x": [], "y": []}
    assert space.project(["x"])[1].tolist() == []
    assert not space.contains({"x": 1, "y": 5})
    assert space.extend({"x": 1}).size == 0
    with pytest.raises(IndexError):
        space[0]


def test_a_problem_without_variables_has_one_or_no_solution() -> None:
    assert list(enumerate_space(Problem())) == [{}]
    assert count(parse("1 == 1")) == 1
    assert count(parse("1 == 2")) == 0


def test_columns_use_the_smallest_dtype() -> None:
    space = enumerate_space(
        parse("var a in {-1, 127}; var b in {128, -5}; var c in {70000, 1}; var d in {2147483648, 0}")
    )
    kinds = {n: c.dtype for n, c in space.columns().items()}
    assert kinds == {"a": np.int8, "b": np.int16, "c": np.int32, "d": np.int64}


def test_samples_are_distinct_reproducible_and_uniform() -> None:
    space = enumerate_space(parse("var x in 1..8; var y in 1..8; var z in 1..2; x * y % 4 == 0"))
    assert space.sample(10, seed=3) == space.sample(10, seed=3)
    everything = space.sample(10_000, seed=1)
    assert len(everything) == space.size == len({tuple(s.values()) for s in everything})
    hits = Counter(tuple(space.sample(1, seed=i)[0].values()) for i in range(3000))
    assert len(hits) == space.size
    assert max(hits.values()) < 4 * 3000 / space.size


def test_wrong_names_and_values_are_refused() -> None:
    space = enumerate_space(parse("var tile in 1..8; var other in 1..3; tile * other <= 9"))
    for wrong in (
        lambda: space.restrict(tiel=3),
        lambda: space.project(["tiel"]),
        lambda: space.contains({"tiel": 1}),
    ):
        with pytest.raises(UnknownNameError, match="tile"):
            wrong()
    with pytest.raises(UsageError, match="other"):
        space.contains({"tile": 1})
    one: Any = 1.0
    with pytest.raises(UsageError, match="integer"):
        space.restrict(tile=one)
    with pytest.raises(IndexError):
        space[10**6]
