"""A count that a limit ends: its bounds hold, and what can be counted to the end is exact."""

from __future__ import annotations

import pytest

from constrint.core import compiled
from constrint.model import Problem, parse
from constrint.solve import Count, Limits, brute_force, count, count_within, enumeration
from tests.support.clock import worked

#: Two components that share no rule, and a variable that no rule names.
APART = "var a in 1..12; var b in 1..9; var c in 1..11; var d in 1..7; var e in 1..5; a * b % 4 == 1; c * d % 5 == 2"


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_without_a_limit_the_number_is_exact(backend: str) -> None:
    problem = parse(APART)
    number = len(list(brute_force(problem)))
    assert count_within(problem, backend=backend) == Count(number, number)


def test_what_tables_cannot_hold_is_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # The rows are too many for the tables, and the solutions few enough to be walked.
    problem = parse(APART)
    counted = count_within(problem, Limits(max_rows=2))
    assert counted.exact == count(problem)
    monkeypatch.setattr(enumeration, "BOUND_SECONDS", 0.0)
    bounds = count_within(problem, Limits(max_rows=2))
    assert bounds.at_least <= count(problem) <= bounds.at_most
    assert bounds.stopped if bounds.exact is None else not bounds.stopped


@pytest.mark.parametrize("with_core", [True, False])
@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.4])
def test_bounds_hold_at_any_time(seconds: float, with_core: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_core:
        from constrint.solve.engine import compiled as engine

        monkeypatch.setattr(engine, "core", None)
    problem = parse("var a in 1..900; var b in 1..900; var c in 1..900; (a * b) % 7 == c % 11; a < c")
    exact = _number_by_formula()
    counted = count_within(problem, Limits(max_seconds=seconds))
    assert counted.at_least <= exact <= counted.at_most
    if counted.exact is None:
        assert f"max_seconds={seconds}" in counted.stopped
        assert "between" in str(counted)
        if counted.searched is not None:
            assert 0 <= counted.searched < 1


def _number_by_formula() -> int:
    """Solutions of the problem above: per c, pairs of an a below it and any b, by residues."""
    of_a = [[0] * 7 for _ in range(901)]
    for a in range(1, 901):
        of_a[a] = of_a[a - 1].copy()
        of_a[a][a % 7] += 1
    of_b = [sum(b % 7 == r for b in range(1, 901)) for r in range(7)]
    total = 0
    for c in range(1, 901):
        wanted = c % 11
        total += sum(of_a[c - 1][x] * of_b[y] for x in range(7) for y in range(7) if (x * y) % 7 == wanted)
    return total


def test_the_share_of_the_search_says_how_much_is_open() -> None:
    if compiled is None:
        pytest.skip("the compiled core was not built (no C++ compiler)")
    # The first half of a's values has all solutions: the search is through them long before its end.
    problem = parse("var a in 1..100; var b in 1..3000; var c in 1..3000; (a * b + c) % 1009 == 5; a + b % 3 <= 50")
    counted = count_within(problem, Limits(cancel=worked(0.3), max_rows=10))
    assert counted.searched is not None
    assert 0 < counted.searched < 1
    assert 0 < counted.at_least < counted.at_most


def test_a_cancelled_count_says_what_is_known() -> None:
    problem = parse(
        "var a in 1..4000; var b in 1..4000; var c in 1..4000; var d in 1..4000; (a * b + c * d) % 7919 == 3"
    )
    counted = count_within(problem, Limits(cancel=worked(0.2)))
    assert "cancelled" in counted.stopped
    assert counted.exact is None
    assert counted.at_most <= 4000**4


def test_no_solution_in_one_component_is_no_solution_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "BOUND_SECONDS", 0.5)
    problem: Problem = parse(
        "var a in 1..50; var b in 1..50; a * a == 2 * b * b; "
        "var c in 1..4000; var d in 1..4000; var e in 1..4000; (c * d + e) % 7919 == 3"
    )
    assert count_within(problem, Limits(max_rows=10, max_cells=1 << 24)).exact == 0


def test_a_memory_limit_is_a_limit_and_no_crash() -> None:
    problem = parse("var a in 1..3000; var b in 1..3000; var c in 1..3000; a * b + c >= 9; a * c >= b")
    counted = count_within(problem, Limits(max_bytes=1 << 20, max_seconds=0.5))
    assert counted.exact is None
    assert counted.at_least <= counted.at_most
    assert "max_bytes" in counted.stopped or "max_seconds" in counted.stopped
