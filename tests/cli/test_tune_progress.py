"""What a run of the tuner shows meanwhile: the best time over time on a terminal, lines in a pipe."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from constrint.answers.plots import curve_lines
from constrint.answers.terminal import clean_streams
from constrint.cli import tune_progress
from constrint.cli.tune_progress import BestSoFar, progress
from constrint.select import Workload
from tests.support.records import record


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def _session(best_s: float = float("inf")) -> Any:
    return SimpleNamespace(
        num_tried=1, best_s=best_s, goal=SimpleNamespace(workload=Workload("gemm", {"m": 4}, "bf16"))
    )


def test_the_curve_has_each_step_and_its_last_time() -> None:
    lines = curve_lines([(0.0, 4e-4), (30.0, 2e-4), (60.0, 2e-4)], 72)
    assert lines[0].startswith("   400.0 us|___")
    assert lines[5].startswith("   200.0 us|   ")
    assert len(lines[0].rstrip()) < 45 < len(lines[5])
    assert lines[6].split() == ["0", "s", "60", "s"]
    assert max(map(len, lines)) <= 72


def test_a_curve_begins_with_the_second_time_and_anew_with_a_workload() -> None:
    clock = iter(range(100))
    curve, session = BestSoFar(lambda: float(next(clock))), _session()
    curve.add(session)
    session.best_s = 3e-4
    curve.add(session)
    assert curve.lines(80) == []
    session.best_s = 1e-4
    curve.add(session)
    assert curve.lines(80)[0] == "best so far, gemm 4 bf16"
    assert "300.0 us" in curve.lines(80)[1]
    curve.add(_session(2e-4))
    assert curve.lines(80) == []


def test_a_terminal_shows_the_curve_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, session = Screen(), _session(4e-4)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with clean_streams(), progress(["gpu 0"], 4, 1) as listener:
        listener.tried(0, session, record(), None)
        session.best_s = 2e-4
        listener.tried(0, session, record(), None)
    assert "best so far, gemm 4 bf16" in screen.getvalue()
    assert "400.0 us|_" in screen.getvalue()


def test_a_pipe_gets_a_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(tune_progress, "EVERY_S", -1.0)
    with progress(["gpu 0"], 4, 1) as listener:
        listener.tried(0, _session(4e-4), record(), 3.0)
    assert pipe.getvalue() == "gpu 0: gemm 4 bf16, best 400 us, 3 s left\n"
