"""Replays in which measurements are drawn anew: what a table's figures say together, and what chance costs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.tuning.chance import Likely, exhausted, searched, summary
from benchmarks.tuning.recorded import recorded
from constrint.hwmodels.load import load_gpu


def table(cold: list[float], again: list[float]) -> Any:
    times = {"cold_us": np.array(cold), "again_us": np.array(again)}
    return SimpleNamespace(measured=SimpleNamespace(times=times), first_us=times["cold_us"])


def test_a_likely_time_is_the_mean_of_both_figures_and_a_slower_run_does_not_count() -> None:
    # The second run was a tenth slower throughout, and the third row was not in it.
    likely = Likely.of(table([10.0, 20.0, 30.0], [11.0, 22.0, math.nan]))
    assert np.exp(likely.log_us) == pytest.approx([10.0, 20.0, 30.0])
    assert likely.error == pytest.approx(0.0)
    likely = Likely.of(table([10.0, 10.0, 10.0], [9.0, 10.0, 11.0]))
    assert np.exp(likely.log_us) == pytest.approx([math.sqrt(90.0), 10.0, math.sqrt(110.0)])
    assert likely.error == pytest.approx(0.0820 / math.sqrt(2), rel=0.01)


def test_the_luckiest_of_many_measurements_is_not_the_fastest() -> None:
    exact = table([10.0, 10.1, 10.2, 12.0], [10.0, 10.1, 10.2, 12.0])
    assert np.all(exhausted(exact, 8) == 0.0)
    noisy = table([10.0, 10.1, 10.2, 12.0], [9.9, 10.3, 10.1, 12.1])
    losses = exhausted(noisy, 64)
    assert np.all(losses >= 0.0)
    assert 0.0 < losses.mean() < 0.05
    (facts,) = summary(losses[np.newaxis].repeat(2, axis=0))
    assert facts["found"] == pytest.approx(math.exp(-losses.mean()))
    assert facts["error"] == pytest.approx(0.0)


@pytest.mark.slow
def test_32_trials_find_nearly_as_much_as_a_measurement_of_everything() -> None:
    spaces = list(recorded(load_gpu("h200"), "h200", ["gemm_exhaustive_bf16.csv.gz"]))[5:8]
    everything = np.mean([exhausted(of, 4) for of in spaces])
    eight, many = np.mean([searched(of, (), (8, 32), 4) for of in spaces], axis=(0, 1))
    assert everything < 0.004
    assert many <= eight < 0.015
    assert many < 0.005
