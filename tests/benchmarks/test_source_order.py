"""The program that orders candidates again and again, with gates of fakes: what is right, kept, resumed and timed."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.harness.table import read_rows
from benchmarks.propose import source_order
from benchmarks.propose.source_order import compare, entries_of, main
from constrint.hwmodels import GpuModel, load_gpu
from constrint.propose import GateSettings
from constrint.propose.sandbox import PLAIN
from constrint.propose.score import GATES, Examined
from constrint.tune.search.llm.records import GateResult, SourceProposal

GPU = load_gpu("h200")
TASKS = ["softmax", "rotary"]
SETTINGS = GateSettings(is_timed=False)
UNTIL = {entry.proposal.source: entry.gate for task in TASKS for entry in entries_of(task)}


class Gates:
    """Refuses each candidate where it should be refused, but for those that are named; counts what it examines."""

    def __init__(self, lets_through: str = "") -> None:
        self.lets_through, self.sources, self._lock = lets_through, list[str](), threading.Lock()

    def __call__(self, proposal: SourceProposal, gpu: GpuModel, settings: GateSettings) -> Examined:
        assert not settings.is_timed
        with self._lock:
            self.sources.append(proposal.source)
        gate = "" if proposal.source == self.lets_through else UNTIL[proposal.source]
        come = GATES[: GATES.index(gate) + 1] if gate else GATES
        return Examined(tuple(GateResult(gate=g, passed=g != gate, kernel=proposal.task) for g in come))  # type: ignore[arg-type]


def asked(path: Path | None, **options: object) -> argparse.Namespace:
    usual = {"tasks": TASKS, "repeats": 3, "first": 0, "timed": 0, "budget_s": 1e9, "jobs": 2, "out": path}
    return argparse.Namespace(**(usual | options))


def test_every_repeat_of_every_task_is_right_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = Gates()
    monkeypatch.setattr(source_order, "examine", gates)
    assert compare(asked(tmp_path / "orders.csv"), GPU, SETTINGS) == {task: [True] * 3 for task in TASKS}
    rows = read_rows(tmp_path / "orders.csv")
    assert len(rows) == len(gates.sources) == 3 * len(UNTIL)
    assert all(row["gate"] == row["refused_by"] for row in rows)


def test_a_cheat_that_passes_makes_its_task_s_order_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    cheat = next(source for source, gate in UNTIL.items() if gate == "right")
    monkeypatch.setattr(source_order, "examine", Gates(lets_through=cheat))
    assert compare(asked(None, repeats=2), GPU, SETTINGS) == {"softmax": [False] * 2, "rotary": [True] * 2}


def test_a_run_that_was_cut_goes_on_with_what_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, gates = tmp_path / "orders.csv", Gates()
    monkeypatch.setattr(source_order, "examine", gates)
    compare(asked(path, repeats=2), GPU, SETTINGS)
    per_task = len(entries_of("softmax"))
    lines = path.read_text().splitlines(keepends=True)
    # Of the second repeat's second task half a row is missing, and two whole ones.
    path.write_text("".join(lines[:-3]) + lines[-3][:10])
    gates.sources.clear()
    assert compare(asked(path, repeats=3), GPU, SETTINGS) == {task: [True] * 3 for task in TASKS}
    assert len(gates.sources) == 3 * per_task
    rows = read_rows(path)
    assert len({(row["repeat"], row["task"], row["candidate"]) for row in rows}) == len(rows) == 3 * len(UNTIL)


def test_nothing_is_begun_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = Gates()
    monkeypatch.setattr(source_order, "examine", gates)
    assert compare(asked(tmp_path / "orders.csv", budget_s=-1.0), GPU, SETTINGS) == {task: [] for task in TASKS}
    assert not gates.sources
    assert read_rows(tmp_path / "orders.csv") == []


def test_the_device_that_is_named_is_the_one_that_workers_see(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source_order, "examine", Gates())
    monkeypatch.setattr(source_order, "sandbox_for", lambda allow: PLAIN)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(
        sys, "argv", ["source_order", "--device", "1", "--repeats", "1", "--timed", "0", "--tasks", *TASKS]
    )
    main()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert PLAIN.environment(is_interpreted=False, uses_gpu=True)["CUDA_VISIBLE_DEVICES"] == "1"
    assert PLAIN.environment(is_interpreted=True, uses_gpu=False)["CUDA_VISIBLE_DEVICES"] == ""
    assert "softmax: ordered rightly in 1 of 1 repeats" in capsys.readouterr().out
