"""Random problems in every way in and through every back-end, against plain Python."""

from __future__ import annotations

import itertools
import sys
from datetime import datetime, timezone

import pytest

from benchmarks.solver import random_problems
from constrint.solve import SearchSpace, enumerate_space
from tests.support.random_problems import draw, solutions_of

#: Problems compared in one run, others every day.
NUM_PROBLEMS = 200


def test_the_random_problems_of_the_day() -> None:
    """`python -m benchmarks.solver.random_problems` compares as many as one likes; a bad one is shown with its seed."""
    first = NUM_PROBLEMS * datetime.now(timezone.utc).toordinal()
    report = random_problems.compared_range(range(first, first + NUM_PROBLEMS))
    assert report.bad == []
    assert report.failed == 0
    assert report.counts["right"] > 10 * NUM_PROBLEMS
    refused = {kind for kind in report.counts if kind.startswith("refused")}
    assert refused <= {"refused: UnsupportedError of cpsat"}


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def less(*args: object) -> SearchSpace:
        space = enumerate_space(*args)  # type: ignore[arg-type]
        return space.exclude(space.first()) if space.size > 3 else space

    monkeypatch.setattr(random_problems, "enumerate_space", less)
    monkeypatch.setattr(random_problems, "run", lambda number, seed, *_: random_problems.compared_range(range(50)))
    monkeypatch.setattr(sys, "argv", ["random_problems", "--number", "50"])
    assert random_problems.main() == 1
    said = capsys.readouterr()
    assert "  wrong\n" in said.out
    assert "var a in" in said.err


def test_problems_are_wide_empty_and_huge() -> None:
    problems = [draw(seed) for seed in range(600)]
    assert [draw(seed) for seed in range(600)] == problems
    bounds = [abs(v) for p in problems for values in p.candidates.values() for v in values]
    for low, high in itertools.pairwise((2**31, 2**53, 2**62, 2**64, 2**101)):
        assert sum(low <= bound < high for bound in bounds) > 50
    assert sum(not p.is_listed for p in problems) > 60
    # Enough of them have solutions, and enough have none.
    assert 100 < sum(next(solutions_of(p), None) is None for p in problems) < 400
