from collections.abc import Iterable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from constrint.errors import UsageError
from constrint.model import Problem, Var, all_of, const, divides, is_in, parse
from constrint.solve import (
    ConflictMember,
    Limits,
    brute_force,
    count,
    minimal_conflict,
    pruning,
    relaxations,
    solve,
    would_remove,
)
from constrint.solve.explain.reduction import widened
from tests.support import strategies


def gemm() -> Problem:
    problem = Problem("gemm")
    tile_k = problem.int_var("tile_k", values=[16, 32, 64], because="the matrix instruction takes k = 16")
    tile_m = problem.int_var("tile_m", values=[16, 32, 64])
    problem.add(tile_m * tile_k <= 4096, because="the tile fits")
    problem.add(divides(tile_k, 100), because="the main loop has no remainder tile", name="no_remainder")
    return problem


def test_conflict_reads_like_the_rules() -> None:
    conflict = minimal_conflict(gemm())
    assert conflict.minimal
    assert str(conflict).splitlines() == [
        "These 2 constraints cannot hold together:",
        "  tile_k in {16, 32, 64}   because the matrix instruction takes k = 16",
        "  tile_k divides 100       because the main loop has no remainder tile",
    ]


def test_conflict_shows_the_value_of_named_numbers() -> None:
    problem = Problem()
    x = problem.int_var("x", values=[3, 5])
    problem.add(x >= const(9, "limit"))
    assert "x >= limit [limit = 9]" in str(minimal_conflict(problem))


def test_a_rule_that_cannot_hold_stands_alone() -> None:
    problem = parse("var x in 1..9; x * 2 == 7; x >= 2; x % 0 == 1")
    conflict = minimal_conflict(problem)
    assert len(conflict.members) == 1
    assert str(conflict).startswith("This rule cannot hold:")


def test_feasible_problems_have_no_conflict() -> None:
    with pytest.raises(UsageError, match="no conflict"):
        minimal_conflict(parse("var x in 1..3; x >= 2"))


def held(problem: Problem, members: Iterable[ConflictMember]) -> Problem:
    """The problem that only the given members of a conflict make up; other domains are wide."""
    domains = {m.variable for m in members}
    constraints = [m.constraint for m in members if m.constraint is not None]
    kept = Problem()
    for name, domain in problem.variables.items():
        if any(name in c.variables for c in constraints):
            kept.declare(name, domain if name in domains else widened(domain))
    for constraint in constraints:
        kept.add(constraint)
    return kept


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_conflicts_are_contradictory_and_minimal(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(max_variables=2))
    assume(not brute_force(problem))
    conflict = minimal_conflict(problem)
    # On the widest domains no search ends; what is shown must not be the opposite.
    limits = Limits(max_seconds=5)
    assert solve(held(problem, conflict.members), limits).status.name != "FEASIBLE"
    if conflict.minimal:
        for member in conflict.members:
            rest = [m for m in conflict.members if m is not member]
            assert solve(held(problem, rest), limits).status.name != "INFEASIBLE"


def test_nearest_ways_out() -> None:
    ways = relaxations(gemm())
    assert [str(w) for w in ways] == ["allow tile_k = 20", "drop no_remainder"]
    for way in ways:
        assert all(c.holds(way.solution) for c in way.problem.constraints)


def test_bounds_are_moved_as_little_as_needed() -> None:
    problem = parse("var s in {2, 3, 4}; var t in {64, 128}; smem: s * t * 100 <= 10000; t >= 100; 3 <= s")
    texts = {w.member.text: str(w) for w in relaxations(problem)}
    assert texts["s * t * 100 <= 10000"].startswith("s * t * 100 <= 19200 ") or texts[
        "s * t * 100 <= 10000"
    ].startswith("s * t * 100 <= 38400 ")
    for way in relaxations(problem):
        assert brute_force(way.problem)


def test_a_way_out_must_be_enough_alone() -> None:
    twice = parse("var x in 1..4; x >= 5; var y in 1..4; y >= 6")
    assert relaxations(twice) == []


def asked_for(tile_k: list[int]) -> Problem:
    """A space that fits on its own, and a user's own rules that do not."""
    problem = Problem("gemm")
    k = problem.int_var("tile_k", values=[16, 32, 64, 128], because="the matrix instruction takes k = 16")
    stages = problem.int_var("num_stages", values=[1, 2, 3, 4])
    problem.add(k * stages * 512 <= 65536, because="all stages are resident in shared memory", name="smem")
    problem.add(is_in(k, tile_k) if len(tile_k) > 1 else k == tile_k[0], name="set_tile_k")
    problem.add(stages == 4, name="set_num_stages")
    return problem


def is_the_users_own(member: ConflictMember) -> bool:
    return member.constraint is not None and member.constraint.name.startswith("set_")


def test_advice_for_a_value_that_was_asked_for_names_the_nearest_that_fits() -> None:
    ways = relaxations(asked_for([128]), among=is_the_users_own)
    assert [str(w) for w in ways] == ["tile_k == 32 (instead of 128)", "num_stages == 1 (instead of 4)"]
    (first, _) = relaxations(asked_for([64, 128]), among=is_the_users_own)
    assert str(first) == "tile_k == 32 (instead of one of {64, 128})"
    assert first.condition == "tile_k = 32"


def test_advice_can_be_limited_to_some_rules() -> None:
    problem = asked_for([128])
    every = {str(w.member.text) for w in relaxations(problem)}
    own = {str(w.member.text) for w in relaxations(problem, minimal_conflict(problem), among=is_the_users_own)}
    assert own == {"tile_k == 128", "num_stages == 4"}
    assert own < every
    assert relaxations(problem, among=lambda member: False) == []


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_every_way_out_holds(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(max_variables=2))
    name = data.draw(st.sampled_from(sorted(problem.variables)))
    values = data.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=3, unique=True))
    problem.add(is_in(Var(name), values), name="set_values")
    assume(not brute_force(problem))
    for way in relaxations(problem):
        assert solve(way.problem), str(way)
        assert all(c.holds(way.solution) for c in way.problem.constraints), str(way)
        assert all(way.solution[n] in d for n, d in way.problem.variables.items()), str(way)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_pruning_counts_equal_brute_force(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(max_variables=3))
    everything = brute_force(without_rules(problem))
    rules = pruning(problem)
    assert [r.constraint for r in rules] == list(problem.constraints)
    for rule in rules:
        assert rule.product_size == len(everything)
        assert rule.removes_alone == sum(not rule.constraint.holds(a) for a in everything)
        others = problem.without(rule.constraint)
        assert rule.removes_only == count(others) - count(problem)


def without_rules(problem: Problem) -> Problem:
    return problem.without(*problem.constraints)


def test_pruning_counts_large_scopes_in_pieces() -> None:
    problem = parse("var x in 1..2000; var y in 1..2000; var z in 1..5; x + y + z == 100; z <= 3")
    first, second = pruning(problem)
    holding = sum(1 for z in range(1, 6) for x in range(1, 100) if 1 <= 100 - z - x <= 2000)
    assert first.removes_alone == 2000 * 2000 * 5 - holding
    assert second.removes_alone == 2000 * 2000 * 2


def test_what_an_estimated_rule_would_remove_equals_brute_force() -> None:
    problem = parse("var x in 1..6; var y in 1..4; var z in 1..3; x + y <= 8")
    x, y = Var("x"), Var("y")
    problem.add(x * y <= 6, kind="estimated")
    problem.add(x != 2, kind="estimated")
    everything = brute_force(without_rules(problem))
    solutions = brute_force(problem)
    measured = would_remove(problem)
    assert [r.constraint for r in measured] == list(problem.estimates)
    for rule in measured:
        assert rule.removes_alone == sum(not rule.constraint.holds(a) for a in everything) > 0
        assert rule.removes_only == sum(not rule.constraint.holds(a) for a in solutions) > 0
    assert [r.removes_alone for r in measured] != [r.removes_only for r in measured]


def test_measured_rules_can_be_compared() -> None:
    text = "var x in 1..5; var y in 1..5; x < y; y < x; x + y > 2"
    first, again = pruning(parse(text)), pruning(parse(text))
    assert first == again
    assert len(set(first + again)) == 3
    assert first[0] != first[1]


def test_conjunctions_stay_one_member() -> None:
    problem = Problem()
    x = problem.int_var("x", values=[1, 2])
    problem.add(all_of(x >= 3, x <= 9), because="one rule")
    conflict = minimal_conflict(problem)
    assert [m.because for m in conflict.members if m.constraint is not None] == ["one rule"]
