"""The quality of the default search on recorded tables of an H200."""

from __future__ import annotations

import math
from functools import cache

import pytest

from benchmarks.tuning.recorded import Recorded, recorded
from benchmarks.tuning.replay import run
from constrint.hwmodels.load import load_gpu
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.model import ModelSearch

GPU = load_gpu("h200")


@cache
def layers() -> list[Recorded]:
    return list(recorded(GPU, "h200", ["rnn_space.csv"]))


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def test_eight_trials_find_the_best_of_recurrent_layers() -> None:
    some = layers()[::6]
    assert mean([of.found(run(of, "model", 1)) for of in some]) > 0.90
    assert mean([of.found(run(of, "model", 8)) for of in some]) > 0.999


@pytest.mark.slow
def test_few_trials_come_near_the_best_of_products() -> None:
    spaces = list(recorded(GPU, "h200", ["gemm_exhaustive_bf16.csv.gz"]))[1:4]
    trials = [run(of, "model", 32) for of in spaces]
    assert mean([of.found(rows[:8]) for of, rows in zip(spaces, trials, strict=True)]) > 0.99
    assert mean([of.found(rows) for of, rows in zip(spaces, trials, strict=True)]) > 0.999
    assert mean([of.found(run(of, "random", 32)) for of in spaces]) < 0.97


def test_a_search_sees_recorded_rows_alone() -> None:
    of = layers()[0]
    rows = run(of, "model", 1000, batch=5)
    assert sorted(rows) == list(range(len(of.last_us)))
    assert of.found(rows) == 1.0


def test_what_leads_before_anything_is_known_is_the_first_proposal() -> None:
    # Some of these lists hold configurations that the model takes for level.
    for of in recorded(GPU, "h200", ["gemm_parts_bf16.csv"]):
        search = ModelSearch(SearchTask(of.operation, of.gpu, of.measured.workload), of.candidates)
        (leader,), (first,) = search.leaders(1), search.ask(1)
        assert (leader.kernel, leader.config) == (first.kernel, first.config)


def test_a_search_is_told_other_answers_than_the_recorded_ones() -> None:
    of = layers()[0]
    answers_us = of.first_us.copy()
    answers_us[run(of, "model", 8)[1:]] *= 4.0
    assert run(of, "model", 8, answers_us=answers_us) != run(of, "model", 8)
    assert run(of, "model", 8, answers_us=of.first_us) == run(of, "model", 8)
