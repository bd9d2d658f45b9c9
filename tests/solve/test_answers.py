import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import Problem, Var, parse
from constrint.solve import Limits, Status, brute_force, enumerate_space, relaxations, solve, ways_out, why_not
from tests.support import strategies


def key(config: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(config.values())


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_best_are_the_cheapest(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    expr = data.draw(strategies.expressions(tuple(problem.variables)))
    maximise = data.draw(st.booleans())
    k = data.draw(st.integers(0, 6))
    costs = []
    for solution in brute_force(problem):
        try:
            costs.append(expr.value(solution))
        except UndefinedValueError:
            continue
    space = enumerate_space(problem)
    found = space.best(k, expr, maximise=maximise)
    assert [r.cost for r in found] == sorted(costs, reverse=maximise)[:k]
    assert all(space.contains(r.config) and expr.value(r.config) == r.cost for r in found)
    assert len({key(r.config) for r in found}) == len(found)


def test_best_takes_a_function_over_columns() -> None:
    space = enumerate_space(parse("var x in 1..9; var y in 1..9; var z in 1..100000; x * y <= 20"))
    found = space.best(3, lambda c: abs(c["x"] * c["y"] - 11.5), names=["x", "y"])
    assert {r.cost for r in found} == {0.5}
    assert all(r.config["x"] * r.config["y"] == 12 for r in found)
    with pytest.raises(UsageError, match="one number per row"):
        space.best(1, lambda c: c["x"][:1], names=["x", "y"])
    with pytest.raises(UnknownNameError, match="w"):
        space.best(1, Var("w"))


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_excluded_solutions_are_gone_and_the_next_comes_first(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    solutions = brute_force(problem)
    space = enumerate_space(problem)
    num = min(len(solutions), data.draw(st.integers(0, 4)))
    for i in range(num):
        assert space.first() == solutions[i]
        space = space.exclude(space.first())
    if solutions:
        chosen = data.draw(st.sampled_from(solutions))
        space = space.exclude(chosen)
        gone = [*solutions[:num], chosen]
        left = [s for s in solutions if s not in gone]
        assert space.size == len(left)
        assert sorted(map(key, space)) == sorted(map(key, left))
        columns = space.columns()
        assert sorted(zip(*(c.tolist() for c in columns.values()), strict=True)) == sorted(map(key, left))
        assert not space.contains(chosen)
        name = data.draw(st.sampled_from(list(problem.variables)))
        values, counts = space.project([name])
        assert dict(zip(values[name].tolist(), counts.tolist(), strict=True)) == {
            v: sum(s[name] == v for s in left) for v in {s[name] for s in left}
        }
        fixed = {name: chosen[name]}
        assert space.extend(fixed).size == sum(s[name] == chosen[name] for s in left)
        assert chosen not in space.neighbours(solutions[0])
        if left:
            assert space.first() == left[0]


@settings(deadline=None, max_examples=80)
@given(number=st.integers(0, 10**9))
def test_index_is_the_inverse_of_indexing(random_problem: Callable[[int], Problem], number: int) -> None:
    problem = random_problem(number)
    space = enumerate_space(problem)
    for i in range(min(space.size, 20)):
        assert space.index(space[i]) == i
    less = space.exclude(space[0]) if space else space
    for i in range(min(less.size, 20)):
        assert less.index(less[i]) == i


def test_index_of_what_is_not_in_the_space() -> None:
    space = enumerate_space(parse("var x in 1..9; var y in 1..9; x * y <= 20"))
    with pytest.raises(UsageError, match="why_not"):
        space.index({"x": 9, "y": 9})


@settings(deadline=None, max_examples=50)
@given(number=st.integers(0, 10**9))
def test_many_neighbours_at_once_equal_the_single_ones(random_problem: Callable[[int], Problem], number: int) -> None:
    problem = random_problem(number)
    space = enumerate_space(problem)
    if not space:
        return
    columns = space.take(range(min(space.size, 10)))
    source, near = space.neighbour_columns(columns)
    for i in range(min(space.size, 10)):
        listed = zip(*(near[n][source == i].tolist() for n in problem.variables), strict=True)
        assert sorted(listed) == sorted(map(key, space.neighbours(space[i])))


def test_searches_can_be_cancelled_and_watched() -> None:
    wide = parse("var x in 1..2000; var y in 1..2000; var z in 1..2000; x * y + z * x != 7 * y")
    seen = []
    with pytest.raises(LimitReachedError, match="max_rows"):
        enumerate_space(wide, Limits(max_rows=1_000_000, progress=lambda stats: seen.append(stats.cells)))
    assert len(seen) > 3
    assert seen[-1] > seen[0]
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError, match="cancelled"):
        enumerate_space(wide, Limits(cancel=stop))
    assert solve(wide, Limits(cancel=lambda: True)).status is Status.LIMIT_REACHED
    with pytest.raises(LimitReachedError, match="max_bytes"):
        enumerate_space(wide, Limits(max_bytes=100_000))


GEMM = """
problem gemm
var num_stages in {1, 2, 3, 4}
var tile_k in {16, 32, 64, 128}
var tile_m in {64, 128}
smem: num_stages * tile_m * tile_k * 4 <= 65536 because "all stages are in shared memory"
num_stages == 4 or tile_k >= 32
tile_k divides 640
"""


def test_why_not_shows_every_broken_rule_with_its_numbers() -> None:
    answer = why_not(parse(GEMM), {"num_stages": 3, "tile_k": 64, "tile_m": 128})
    (rule,) = answer.broken
    assert (rule.left, rule.right) == (98304, 65536)
    assert rule.values == {"num_stages": 3, "tile_k": 64, "tile_m": 128}
    assert str(rule) == (
        "num_stages * tile_m * tile_k * 4 <= 65536: 98304 <= 65536 is false "
        "(num_stages = 3, tile_k = 64, tile_m = 128), because all stages are in shared memory"
    )
    assert answer.ways_out == "fits if num_stages <= 2, or tile_k = 32, or tile_m <= 64"
    two = why_not(parse(GEMM), {"num_stages": 3, "tile_k": 48, "tile_m": 128})
    assert [r.variable if r.constraint is None else r.constraint.name for r in two] == ["tile_k", "smem", ""]
    assert "48 does not divide 640, remainder 16" in str(two)
    assert not why_not(parse(GEMM), {"num_stages": 1, "tile_k": 32, "tile_m": 64})
    with pytest.raises(UsageError, match="tile_m"):
        why_not(parse(GEMM), {"num_stages": 1, "tile_k": 32})
    with pytest.raises(UnknownNameError, match="tile_m"):
        why_not(parse(GEMM), {"num_stages": 1, "tile_k": 32, "tile_m": 64, "tile_n": 1})


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_why_not_names_exactly_the_broken_rules(random_problem: Callable[[int], Problem], data: st.DataObject) -> None:
    problem = random_problem(data.draw(st.integers(0, 10**9)))
    config = {n: data.draw(st.integers(-6, 25)) for n in problem.variables}
    answer = why_not(problem, config)
    assert [r.constraint for r in answer if r.constraint is not None] == [
        c for c in problem.constraints if not c.holds(config)
    ]
    assert [r.variable for r in answer if r.constraint is None] == [
        n for n, d in problem.variables.items() if config[n] not in d
    ]
    solutions = brute_force(problem)
    near = [s for s in solutions if sum(s[n] != config[n] for n in s) == 1]
    if answer:
        assert sorted((n, v) for n, values in answer.changes.items() for v in values) == sorted(
            (n, s[n]) for s in near for n in s if s[n] != config[n]
        )


def test_ways_out_of_a_conflict_are_a_sentence_with_the_cheapest_first() -> None:
    problem = parse("var num_stages in {3}; var tile_k in {64}; smem: num_stages * tile_k * 512 <= 65536")
    found = relaxations(problem)
    assert ways_out(found) == "fits if num_stages <= 2, or tile_k <= 42, or the bound of smem were 98304"
    assert [w.cost for w in found] == sorted(w.cost for w in found)
    assert ways_out([]) == ""


def test_samples_of_a_large_space_are_distinct_solutions() -> None:
    space = enumerate_space(parse("var a in 1..1000; var b in 1..1000; var c in 1..10; a % b == 0; b % c == 0"))
    drawn = space.sample_indices(5000, seed=4)
    assert len(set(drawn)) == 5000
    columns = space.take(drawn)
    assert np.all(columns["a"] % columns["b"] == 0)
    assert np.all(columns["b"] % columns["c"] == 0)
