"""The default search finds what the model does not know, and uses what is known of other workloads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from constrint.select import Operation
from constrint.select.candidates import Candidates
from constrint.tune.search.learned import distance, learn_from, nearest
from constrint.tune.search.model import ModelSearch
from constrint.tune.search.points import ConfigPoints, Describer
from constrint.tune.search.regression import Prior, Regression
from tests.tune.search.spaces import GPU, ToySpec, best_s, key_of, predicted_s, record_of, run, task_of, true_s

TILED = Operation("toy", (ToySpec(),))


def search_of(**facts: object) -> ModelSearch:
    task = task_of(TILED, **facts)  # type: ignore[arg-type]
    return ModelSearch(task, Candidates.of(task.operation, GPU, task.workload))


def all_configs() -> list[dict[str, int]]:
    kernel = Candidates.of(TILED, GPU, task_of().workload).kernels[0]
    return [kernel.config(row) for row in range(kernel.num_rows)]


def test_the_first_proposal_is_the_model_s_first_choice() -> None:
    (first,) = search_of().ask(1)
    assert dict(first.config) == {"tile": 32, "warps": 8, "order": 1, "knob": 0}
    assert first.because == "model's choice 1"
    assert first.predicted_s == pytest.approx(float(predicted_s(first.config)))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_surprise_is_learnt_within_the_run(batch: int) -> None:
    # The eight best by the model all have the largest tile, which takes half as long again as predicted.
    least = min(true_s(config) for config in all_configs())
    assert min(true_s(config) for config in all_configs() if config["tile"] == 32) > 1.3 * least
    assert best_s(run(search_of(), 12, batch=batch)) <= 1.011 * least


def test_records_of_other_workloads_spare_the_surprise() -> None:
    known = [record_of(config, true_s(config, 2048)) for config in all_configs()]
    cold, warm = run(search_of(), 2), run(search_of(records=known), 2)
    # The first is the model's own in both; the second is what it makes of what it knows.
    assert key_of(cold[0]) == key_of(warm[0])
    least = min(true_s(config) for config in all_configs())
    assert best_s(warm) <= 1.011 * least < best_s(cold)


HOSTILE = {
    "another GPU": {"gpu": "A100"},
    "another operation": {"operation": "gemm"},
    "a kernel that nobody knows": {"kernel": "toy.stranger"},
    "it failed": {"outcome": "crashed", "figures": None},
    "a parameter is missing": {"config": {"tile": 8}},
    "a parameter too many": {"config": {"tile": 8, "warps": 4, "order": 1, "knob": 0, "extra": 1}},
    "a value of no domain": {"config": {"tile": 0, "warps": 4, "order": 1, "knob": 0}},
    "a value that is no number": {"config": {"tile": "8", "warps": 4, "order": 1, "knob": None}},
    "sizes of something else": {"sizes": {"m": 64, "n": 64}},
    "a size out of range": {"sizes": {"m": -5}},
    "a dtype that the kernel lacks": {"dtype": "fp8"},
}


@pytest.mark.parametrize("facts", HOSTILE.values(), ids=HOSTILE.keys())
def test_records_of_something_else_change_nothing(facts: dict[str, object]) -> None:
    config = {"tile": 32, "warps": 8, "order": 1, "knob": 0}
    told: dict[str, Any] = {"config": config, "seconds": 1e-3, **facts}
    known = [record_of(**told)]
    clean, warm = run(search_of(), 10), run(search_of(records=known), 10)
    assert [key_of(proposal) for proposal in clean] == [key_of(proposal) for proposal in warm]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0, 1e9, 1e-30])
def test_records_with_impossible_times_change_nothing(seconds: float) -> None:
    known = [record_of({"tile": 32, "warps": 8, "order": 1, "knob": 0}, seconds)]
    clean, warm = run(search_of(), 10), run(search_of(records=known), 10)
    assert [key_of(proposal) for proposal in clean] == [key_of(proposal) for proposal in warm]


def test_the_nearest_workloads_are_asked_first() -> None:
    config = {"tile": 8, "warps": 4, "order": 1, "knob": 0}
    known = [record_of(config, 1e-4, m=m) for m in (65536, 2048, 512, 4096)]
    task = task_of(TILED, records=known)
    assert [workload.sizes["m"] for workload, _ in nearest(task)] == [2048, 512, 4096, 65536]
    assert distance(task.workload, known[3].workload) == 2.0


def test_of_several_records_of_a_configuration_the_final_one_counts() -> None:
    config = {"tile": 8, "warps": 4, "order": 1, "knob": 0}
    rough = record_of(config, 4e-3, created=9.0)
    assert rough.figures is not None
    final = record_of(
        config, 3.3e-3, figures=type(rough.figures)(median_s=3.3e-3, spread_s=0, num_rounds=9, is_final=True)
    )
    task = task_of(TILED, records=[final, rough])
    describer = Describer(Candidates.of(TILED, GPU, task.workload))
    predicted = float(predicted_s(config, 2048))
    assert learn_from(task, describer).log_ratios == pytest.approx([math.log(3.3e-3 / predicted)])


def points_of(rows: int) -> ConfigPoints:
    candidates = Candidates.of(TILED, GPU, task_of().workload)
    return Describer(candidates).points(candidates.kernels[0], np.arange(rows))


def test_the_regression_is_the_posterior_of_a_gaussian_process() -> None:
    prior, points, rows = Prior(), points_of(40), [3, 30, 17]
    told = np.array([0.2, -0.1, 0.05])
    regression = Regression(prior, points, np.zeros((1, 1)))
    for row, log_ratio in zip(rows, told.tolist(), strict=True):
        regression.learn(row, log_ratio)
    # The textbook's formula, all at once.
    whole = regression._covariances(np.arange(40), points)
    among = whole[np.ix_(rows, rows)] + prior.noise**2 * np.eye(3)
    mean = whole[:, rows] @ np.linalg.solve(among, told)
    variance = np.diag(whole) - np.einsum("ij,ji->i", whole[:, rows], np.linalg.solve(among, whole[rows]))
    np.testing.assert_allclose(regression.mean, mean, atol=1e-9)
    np.testing.assert_allclose(regression.variance, variance, atol=1e-9)
    assert np.linalg.eigvalsh(whole).min() > -1e-9


def test_points_that_come_later_have_the_same_posterior() -> None:
    points = points_of(40)
    early = Regression(Prior(), points, np.zeros((1, 1)))
    late = Regression(Prior(), points.take(np.arange(20)), np.zeros((1, 1)))
    for row, log_ratio in ((3, 0.2), (15, -0.1)):
        early.learn(row, log_ratio)
        late.learn(row, log_ratio)
    late.extend(points.take(np.arange(20, 40)))
    for each in (early, late):
        each.learn(33, 0.3)
    np.testing.assert_allclose(late.mean, early.mean, atol=1e-9)
    np.testing.assert_allclose(late.variance, early.variance, atol=1e-9)


def test_workloads_whose_distances_fit_no_space_are_learnt_from_as_well() -> None:
    # Three are near to a fourth and far from each other, as where types and options add to distances of sizes.
    far, near = 4.0, 0.4
    distances = np.full((4, 4), far) - far * np.eye(4)
    distances[3, :3] = distances[:3, 3] = near
    kernel = Candidates.of(TILED, GPU, task_of().workload).kernels[0]
    describer = Describer(Candidates([kernel]))
    every = [describer.points(kernel, np.arange(kernel.num_rows), number) for number in range(4)]
    regression = Regression(Prior(far=0.0, resemblance=1.0), ConfigPoints.joined(every), distances)
    regression.learn_first(np.full(4 * kernel.num_rows - 1, 0.2))
    # What all others say is expected of the last one.
    assert np.isfinite(regression.mean).all()
    assert 0.15 < regression.mean[-1] < 0.25
