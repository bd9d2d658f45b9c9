"""The replay of proposers: scripts that parse, rows of the table alone, and a fair leave-one-out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the tables of layers are read by a program that needs scipy")

from benchmarks.propose.experts import Experts, strategies
from benchmarks.propose.layers import recorded_layers
from benchmarks.propose.orders import InOrder
from benchmarks.propose.rounds import tried_rows
from benchmarks.propose.value import Judged, against, in_order, left_out, summary
from benchmarks.tuning.chance import Likely
from benchmarks.tuning.recorded import Recorded
from constrint.hwmodels import load_gpu
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.parse import faults
from constrint.tune.search.llm.records import Refusal
from constrint.tune.search.llm.resolve import Resolver
from constrint.tune.search.llm.rules import BuiltInProposer
from tests.tune.search.llm.kernels import product_resolver

TABLE = Path(__file__).parents[2] / "benchmarks/results/h200/rnn_cuda_space.csv"


@pytest.fixture(scope="module")
def layer() -> Recorded:
    return next(iter(recorded_layers(load_gpu("h200"), TABLE)))


def test_rounds_try_rows_of_the_table_each_once_and_find_its_best(layer: Recorded) -> None:
    rows = tried_rows(layer, BuiltInProposer, layer.first_us, 1000)
    assert sorted(rows) == list(range(len(layer.first_us)))
    best = int(np.argmin(layer.first_us))
    short = tried_rows(layer, BuiltInProposer, layer.first_us, 1000, is_enough=lambda row: row == best)
    assert best in short[-4:]
    assert len(tried_rows(layer, BuiltInProposer, layer.first_us, 6)) == 6


def test_the_order_alone_begins_with_the_model_s_first_choice(layer: Recorded) -> None:
    judged = Judged("layers", layer, Likely(np.log(layer.first_us), 0.0))
    order = in_order(judged, layer.first_us, 0)
    assert sorted(order) == list(range(len(layer.first_us)))
    rows = tried_rows(layer, lambda r: BuiltInProposer(r, plan="m"), layer.first_us, 8, order=InOrder)
    assert rows == order[:8]


def test_every_scripted_strategy_parses_and_most_leave_something(layer: Recorded) -> None:
    task = SearchTask(layer.operation, layer.gpu, layer.measured.workload)
    for resolver in (product_resolver(), Resolver(task, layer.candidates)):
        scripted = strategies(resolver.facts)
        assert len(scripted) >= 7
        assert [list(faults(strategy, resolver.facts.kernels)) for strategy in scripted] == [[]] * len(scripted)
        left = [not isinstance(resolver.intersect(strategy.space), Refusal) for strategy in scripted]
        assert sum(left) >= len(left) / 2


def test_experts_go_round() -> None:
    facts, experts = product_resolver().facts, Experts(width=4)
    number = len(strategies(facts))
    proposed = [strategy for _ in range(number) for strategy in experts.propose(facts)]
    assert {strategy.name for strategy in proposed} == {strategy.name for strategy in strategies(facts)}  # type: ignore[union-attr]


def test_a_plan_is_never_chosen_by_the_workload_that_it_is_judged_on() -> None:
    # The second plan is best on the first workload alone, the first plan on both others.
    by_plan = {"a": np.array([[9], [1], [1]]), "b": np.array([[1], [4], [4]])}
    assert left_out(by_plan).tolist() == [[9], [4], [4]]


def test_what_was_not_found_counts_as_one_more_trial(layer: Recorded) -> None:
    judged = Judged("layers", layer, Likely(np.log(layer.first_us), 0.0))
    slow = np.argsort(layer.first_us)[-3:].tolist()
    assert judged.trials_to(slow) == 4
    assert judged.trials_to([*slow, int(np.argmin(layer.first_us)), 0]) == 4


def test_summaries_are_over_workloads_and_draws() -> None:
    trials, order = np.array([[1, 1], [4, 16]]), np.array([[2, 2], [8, 32]])
    assert summary(trials) == {
        "median": 2.5,
        "lower": 1.0,
        "upper": 7.0,
        "mean": 5.5,
        "geometric_mean": pytest.approx(64**0.25),
        "within_16": 1.0,
    }
    assert against(trials, order) == {"over_order": pytest.approx(0.5), "error": pytest.approx(1.0)}
