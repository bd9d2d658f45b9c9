"""The list of projects with recurrent layers, and the program that runs their tests: on a project of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import projects
from benchmarks.projects import OURS, THEIRS, Outcome, OutsideTests, outcome_of, row_of
from tests.support.needs import needs_torch

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "projects.csv"
TESTS = """
import torch
from torch import nn


class Mine(nn.LSTM):
    pass


def test_result():
    assert Mine(3, 4)(torch.zeros(5, 2, 3))[0].shape == (5, 2, 4)
    assert isinstance(nn.GRU(3, 4), nn.GRU)


def test_whose():
    assert nn.LSTM.__module__.startswith("torch")


def test_broken():
    assert nn.RNN(3, 4)(torch.zeros(1, 1, 2))[0] is None
"""


def test_ten_projects_are_listed_with_their_commits() -> None:
    listed = projects.read_list()
    assert len(listed) >= 10
    for project in listed.values():
        assert len(project.commit) == 40
        assert project.tests
        assert project.install


def test_the_recorded_outcomes_are_of_this_list() -> None:
    listed = projects.read_list()
    rows = projects.read_rows(RESULTS)
    assert len(rows) >= 10
    for row in rows:
        assert (row.repository, row.commit) == (listed[row.project].repository, listed[row.project].commit)
        assert row.problem or (row.passed_with_ours and "=" in row.layers)
        assert row.failed_with_ours == 0, row.names


def test_what_fails_with_ours_alone_is_told_apart() -> None:
    both = OutsideTests("a/b", "0" * 40, (), ("x.py",))
    theirs = Outcome(frozenset({"a", "b", "c"}), frozenset({"d"}), frozenset(), "LSTM=1")
    ours = Outcome(frozenset({"a"}), frozenset({"b", "d"}), frozenset({"c"}), "LSTM=2")
    row = row_of("p", both, theirs, ours)
    assert (row.passed_with_torch, row.passed_with_ours, row.failed_with_both, row.failed_with_ours) == (3, 1, 1, 1)
    assert (row.names, row.layers) == ("b", "LSTM=2")
    gone = row_of("p", both, theirs, Outcome(frozenset(), frozenset(), frozenset(), "", "not done after 9 s"))
    assert gone.problem == "not done after 9 s"
    assert gone.failed_with_ours == 3


def test_the_report_of_pytest_is_read() -> None:
    case = '<testcase classname="m" name="{}">{}</testcase>'
    cases = [case.format("good", ""), case.format("bad", "<failure/>"), case.format("off", "<skipped/>")]
    outcome = outcome_of(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>", "GRU=1")
    assert [*outcome.passed, *outcome.failed, *outcome.skipped] == ["m::good", "m::bad", "m::off"]


@needs_torch
@pytest.mark.slow
def test_a_project_runs_with_both(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test_mine.py").write_text(TESTS)
    project = OutsideTests("a/b", "0" * 40, (), ("test_mine.py",))
    place = projects.import_place(tmp_path / "place")
    runs = [
        projects.run_tests(project, Path(sys.executable), tmp_path / "mine", place, which, 300.0)
        for which in (THEIRS, OURS)
    ]
    row = row_of("mine", project, *runs)
    assert (row.passed_with_torch, row.passed_with_ours, row.failed_with_both) == (2, 1, 1)
    assert row.names == "test_mine::test_whose"
    assert row.layers == "GRU=1 LSTM=1 RNN=1"


def test_an_unknown_project_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert projects.main(["--source", f"nobody={tmp_path}"]) == 2
    assert "the list has asteroid, " in capsys.readouterr().err


def test_a_project_that_cannot_be_set_up_is_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> Path:
        raise subprocess.CalledProcessError(1, ["pip"])

    monkeypatch.setattr(projects, "environment", fails)
    assert projects.main(["--source", f"pfrl={tmp_path}", "--environments", str(tmp_path)]) == 0
    assert "| pfrl | 0 | 0 | 0 | cannot be set up: pip failed |" in capsys.readouterr().out
