"""The attack on the solver, small; `python -m benchmarks.attacks.solver` draws as many problems as one likes."""

from __future__ import annotations

import pytest

from benchmarks.attacks import solver
from constrint.solve import SearchSpace


def test_problems_that_the_solver_is_apt_to_answer_wrongly_are_answered_rightly() -> None:
    report = solver.attack(range(12))
    assert report.bad == []
    assert report.failed == 0
    assert report.counts["right"] > 200


def test_a_wrong_first_solution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchSpace, "first", lambda self: self[self.size - 1])
    assert solver.attack(range(0, 24, 6)).failed > 0
