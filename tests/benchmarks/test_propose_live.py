"""The live comparison of proposers, with an engine in a GPU's place: what is measured, kept, resumed and judged."""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="proposers are compared by a program that needs scipy")

from benchmarks.harness.table import read_rows
from benchmarks.propose.live import MEASURED, Tried, compare, judged_us, row_of
from benchmarks.propose.measuring import Whole
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.spec import workload_of
from constrint.tune.engine.interface import Job, JobResult, TrialAnswer
from constrint.tune.store.record import Figures
from constrint.tune.trial import Outcome, Trial

GPU = load_gpu("h200")
LAYERS = ("lstm:16x1024x1x512:bf16", "gru:16x1024x1x768:bf16")


class StandIn:
    """Times that depend on the configuration alone; configurations of two tiles fail."""

    toolchain: Mapping[str, str] = {"triton": "9.9"}

    def __init__(self, num_slots: int = 1) -> None:
        self.slots: Sequence[str] = [f"stand-in {slot}" for slot in range(num_slots)]
        self._waiting = deque[tuple[int, Job]]()
        self.log: list[tuple[int, Job]] = []

    def submit(self, slot: int, job: Job) -> None:
        self._waiting.append((slot, job))

    def poll(self, timeout_s: float) -> list[JobResult]:
        slot, job = self._waiting.popleft()
        self.log.append((slot, job))
        return [JobResult(job, slot, tuple(answer(trial, is_final=job.is_final) for trial in job.trials), 0.0)]

    def close(self) -> None:
        pass

    @property
    def tried(self) -> list[str]:
        return [str(job.trials[0]) for _, job in self.log if not job.is_final]


def answer(trial: Trial, *, is_final: bool = False) -> TrialAnswer:
    if trial.config.get("num_tiles") == 2:
        return TrialAnswer(outcome=Outcome.WRONG_RESULT, message="an error of 3 times what rounding allows")
    seconds = 1e-4 * (1 + sum(value * (place + 3) for place, value in enumerate(trial.config.values())) % 101)
    # The device is slower in the round of finalists.
    figures = Figures(median_s=seconds * (1.1 if is_final else 1.0), spread_s=0.0, num_rounds=5, is_final=is_final)
    return TrialAnswer(outcome=Outcome.OK, error_over_bound=0.1, figures=figures)


def asked(folder: Path, **options: object) -> argparse.Namespace:
    usual: dict[str, object] = {"layers": LAYERS, "trials": 12, "seeds": 2, "top": 20, "limit": 1e9, "jobs": 4}
    paths = {"out": folder / "trials.csv", "measured": folder / "measured.csv"}
    return argparse.Namespace(**(usual | paths | options))


def test_each_configuration_is_measured_once_whoever_asks_and_all_proposers_are_judged(tmp_path: Path) -> None:
    engine = StandIn(num_slots=2)
    compare(asked(tmp_path), engine, GPU)
    assert len(set(engine.tried)) == len(engine.tried)
    # A layer stays on its device.
    assert {(slot, job.trials[0].workload.operation) for slot, job in engine.log} == {(0, "lstm"), (1, "gru")}
    rows = read_rows(tmp_path / "measured.csv")
    assert len([row for row in rows if row["is_final"] == "0"]) == len(engine.tried)
    assert {row["outcome"] for row in rows} == {"ok", "wrong_result"}
    trials = read_rows(tmp_path / "trials.csv")
    assert [row["proposer"] for row in trials[:6]] == [
        "model's order alone",
        "default search by 2",
        "built-in",
        "expert's strategies",
        "random",
        "random",
    ]
    assert len(trials) == 2 * 6
    assert {row["is_whole"] for row in trials} == {"1"}
    assert {row["tried"] for row in trials} == {"12"}
    for layer in LAYERS:
        own = [row for row in trials if row["layer"] == layer]
        final = [float(row["time_us"]) for row in rows if row["layer"] == layer and row["is_final"] == "1"]
        assert {float(row["best_us"]) for row in own} == {min(final)}
        assert {row["num_measured"] for row in own} == {
            str(sum(row["layer"] == layer and row["is_final"] == "0" for row in rows))
        }


def test_a_run_that_is_cut_goes_on_with_what_was_measured_and_ends_with_the_same(tmp_path: Path) -> None:
    whole, again = StandIn(), StandIn()
    (tmp_path / "whole").mkdir()
    compare(asked(tmp_path / "whole"), whole, GPU)
    lines = (tmp_path / "whole" / "measured.csv").read_text().splitlines(keepends=True)
    cut = tmp_path / "measured.csv"
    cut.write_text("".join(lines[:42]) + lines[42][: len(lines[42]) // 2])
    compare(asked(tmp_path), again, GPU)
    assert len(again.tried) == len(whole.tried) - 40
    assert not set(again.tried) & {str(job.trials[0]) for _, job in whole.log[:40]}
    assert (tmp_path / "trials.csv").read_text() == (tmp_path / "whole" / "trials.csv").read_text()


def test_what_was_not_reached_in_time_is_said(tmp_path: Path) -> None:
    engine = StandIn()
    compare(asked(tmp_path, limit=0.0), engine, GPU)
    assert not engine.log
    trials = read_rows(tmp_path / "trials.csv")
    assert {(row["is_whole"], row["is_near"], row["tried"]) for row in trials} == {("0", "0", "0")}


def test_a_lost_device_ends_the_run_and_is_said_after_what_is_known_was_judged(tmp_path: Path) -> None:
    class Losing(StandIn):
        def poll(self, timeout_s: float) -> list[JobResult]:
            if len(self.log) < 30:
                return super().poll(timeout_s)
            slot, job = self._waiting.popleft()
            gone = tuple(TrialAnswer(outcome=Outcome.NOT_RUN, message="it fell off the bus") for _ in job.trials)
            return [JobResult(job, slot, gone, 0.0, slot_is_lost=True)]

    engine = Losing()
    with pytest.raises(SystemExit, match="fell off the bus"):
        compare(asked(tmp_path), engine, GPU)
    assert len(read_rows(tmp_path / "measured.csv")) == 30
    assert "0" in {row["is_whole"] for row in read_rows(tmp_path / "trials.csv")}


def test_measurements_of_another_machine_are_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("# measured: gpu of another make\n" + ",".join(MEASURED) + "\n")
    with pytest.raises(SystemExit, match="another make"):
        compare(asked(tmp_path), StandIn(), GPU)


def test_rows_are_numbered_through_all_kernels() -> None:
    whole = Whole(GPU, workload_of("gru", (16, 1024, 1, 768), "bf16", "forward"))
    numbers = [row for rows in whole.rows.values() for row in rows.tolist()]
    assert numbers == list(range(sum(kernel.num_rows for kernel in whole.candidates.kernels)))
    kernels = {whole.trial(int(rows[-1])).kernel: name for name, rows in whole.rows.items()}
    assert all(kernel == name for kernel, name in kernels.items())
    with pytest.raises(IndexError):
        whole.trial(len(numbers))


def test_final_figures_judge_and_others_are_brought_to_their_scale() -> None:
    first, final = {0: 100.0, 1: 100.3, 2: 200.0, 3: math.inf}, {0: 112.0, 1: 110.0}
    times_us = judged_us(first, final)
    assert (times_us[0], times_us[1], times_us[3]) == (112.0, 110.0, math.inf)
    assert 217 < times_us[2] < 225
    found = row_of(Tried(0, "somebody", 0, [3, 2, 0, 1], is_whole=True), times_us)
    # The first of the pair is 1.8 % slower than the best, and so it is not near.
    assert (found["trials"], found["is_near"], found["num_right"]) == (4, 1, 3)
    assert found["share_4"] == 1.0
    missed = row_of(Tried(0, "somebody", 0, [3, 2], is_whole=True), times_us)
    assert (missed["trials"], missed["is_near"]) == (3, 0)
