"""Trials that crash, hang, fail or compute something else are rows like any other; the rest is timed."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.processes import Processes
from benchmarks.harness.trials import Run, deal, read_trials, run_trials, write_trials
from constrint.errors import ConstrintError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune import CompiledKernel, Outcome, Trial, compile_many
from tests.support.clock import PATIENCE_S

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

KERNEL = f"{Path(__file__).parents[1] / 'tune' / 'tiny.py'}:SPEC"
GPU = load_gpu("h200")
SMALL, LARGE = (Workload("tiny", {"m": size, "n": size, "k": size}, "fp32") for size in (8, 32))
RIGHT, SLOW, ONE_ELEMENT_OFF, UNWRITTEN, RAISES, DIES, HANGS, REFUSED, KILLS_THE_COMPILER = range(9)
OUTCOMES = {
    RIGHT: Outcome.OK,
    SLOW: Outcome.OK,
    ONE_ELEMENT_OFF: Outcome.WRONG_RESULT,
    UNWRITTEN: Outcome.WRONG_RESULT,
    RAISES: Outcome.LAUNCH_FAILED,
    DIES: Outcome.CRASHED,
    HANGS: Outcome.TIMED_OUT,
    REFUSED: Outcome.COMPILE_FAILED,
    KILLS_THE_COMPILER: Outcome.CRASHED,
}


def test_every_trial_has_an_outcome_and_those_that_are_right_have_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process of a device imports the baseline by its name.
    monkeypatch.syspath_prepend(Path(KERNEL.partition(":")[0]).parent)
    baseline = importlib.import_module("tiny").baseline
    order = (DIES, RIGHT, HANGS, REFUSED, RAISES, KILLS_THE_COMPILER, ONE_ELEMENT_OFF, UNWRITTEN, SLOW)
    trials = [Trial(KERNEL, LARGE, {"what": what}, is_final=what == SLOW) for what in order]
    trials += [Trial(KERNEL, SMALL, {"what": what}) for what in (RIGHT, SLOW)]
    run = Run(load_spec, GPU, device="cpu", num_devices=2, baseline=baseline, num_final=1, patience_s=8.0)
    results = run_trials(run, trials, tmp_path, limit_s=PATIENCE_S)
    expected = [OUTCOMES[trial.config["what"]] for trial in trials]
    assert [Outcome(outcome) for outcome in results["outcome"]] == expected
    is_right = np.array(expected) == Outcome.OK
    assert np.isfinite(results["cold_s"][is_right]).all()
    assert np.isnan(results["cold_s"][~is_right]).all()
    assert (results["error_over_bound"][is_right] <= 1.0).all()
    assert np.isfinite(results["baseline_cold_s"]).all()
    # Once more: the quickest of each workload, and the one marked as final.
    again = np.isfinite(results["again_s"])
    assert again[order.index(SLOW)]
    assert again[len(order) :].sum() == 1
    assert not again[~is_right].any()


def test_without_timing_every_trial_is_only_checked(tmp_path: Path) -> None:
    trials = [Trial(KERNEL, SMALL, {"what": what}) for what in (RIGHT, ONE_ELEMENT_OFF)]
    results = run_trials(Run(load_spec, GPU, device="cpu", is_timed=False), trials, tmp_path, limit_s=PATIENCE_S)
    assert results["outcome"].tolist() == [Outcome.OK, Outcome.WRONG_RESULT]
    assert np.isnan(results["cold_s"]).all()


def test_many_are_compiled_and_one_that_kills_its_process_costs_itself_alone() -> None:
    order = (RIGHT, KILLS_THE_COMPILER, SLOW, REFUSED, UNWRITTEN)
    compiled = compile_many(load_spec, GPU, [Trial(KERNEL, SMALL, {"what": w}) for w in order], num_workers=2)
    smem = [c.smem_bytes if isinstance(c, CompiledKernel) else None for c in compiled]
    assert smem == [0, None, 1024, None, 3 * 1024]
    assert compiled[1] == "CRASHED"
    assert "UnsupportedError: the compiler refuses" in str(compiled[3])


def test_the_trials_of_a_workload_stay_on_one_device() -> None:
    workloads = [Workload("tiny", {"m": m}, "fp32") for m in (1, 2, 3)]
    trials = [Trial("t", w, {"what": i}) for w, num in zip(workloads, (5, 2, 2), strict=True) for i in range(num)]
    assert deal(trials, 2) == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    assert deal(trials, 1) == [list(range(9))]
    assert len(deal(trials, 8)) == 3
    assert deal([], 2) == [[]]


def test_trials_survive_the_file(tmp_path: Path) -> None:
    trials = [Trial("gemm.pointer", Workload("gemm", {"m": 1, "n": 2, "k": 3}, "bf16", {"bias": 1}), {"tile_m": 16})]
    write_trials(tmp_path / "trials.json", trials)
    assert read_trials(tmp_path / "trials.json") == trials


def test_a_process_that_cannot_start_is_an_error_and_no_loop(tmp_path: Path) -> None:
    processes = Processes(tmp_path, os._exit, 1, lambda *_: None)
    with pytest.raises(ConstrintError, match="before its first trial"):
        any(processes.poll() for _ in itertools.count())
