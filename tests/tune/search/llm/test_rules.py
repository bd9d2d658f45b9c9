"""The built-in proposer: repeatable, never outside of what can run, and faster than the model's order alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from constrint.select import Operation
from constrint.select.candidates import Candidates
from constrint.tune.search.llm.judge import judge
from constrint.tune.search.llm.parse import faults
from constrint.tune.search.llm.records import (
    ActionProposal,
    CandidateEvidence,
    Edit,
    GateResult,
    PredictedConfig,
    Preference,
    Proposal,
    Restriction,
    SpaceProposal,
    StrategyProposal,
    Verdict,
)
from constrint.tune.search.llm.resolve import Key, Resolver, key_of
from constrint.tune.search.llm.rules import WIDTH, BuiltInProposer, best_of, edited, near, one
from tests.tune.search.llm.in_order import InOrder
from tests.tune.search.llm.kernels import product_candidates, product_task
from tests.tune.search.spaces import GPU, ToySpec, task_of, true_s

Answer = Callable[[PredictedConfig], float | None]
Log = list[tuple[Proposal, PredictedConfig, float | None]]


def rounds(resolver: Resolver, answer: Answer, num_rounds: int, **given: Any) -> Log:
    """What the built-in proposer proposes, what of that is tried, and what came of it."""
    proposer, facts = BuiltInProposer(resolver, **given), resolver.facts
    tried: set[Key] = set()
    results: list[GateResult] = []
    verdicts: list[Verdict] = []
    log = []
    for number in range(num_rounds):
        told = msgspec.structs.replace(facts, round=number, results=tuple(results), verdicts=tuple(verdicts))
        proposed = proposer.propose(told)
        assert len(proposed) <= WIDTH
        verdicts = []
        for proposal in proposed:
            assert list(faults(proposal, facts.kernels)) == []
            for choice in resolver.resolve(proposal, 1, tried).configs:
                tried.add(key_of(choice.kernel, choice.config))
                seconds = answer(choice)
                log.append((proposal, choice, seconds))
        for _, choice, seconds in log[len(results) :]:
            resolver.hear(choice.kernel, choice.config, seconds)
            gate = GateResult(
                gate="fast", passed=seconds is not None, kernel=choice.kernel, config=choice.config, seconds=seconds
            )
            results.append(gate)
            told_to = CandidateEvidence(candidate=choice, gates=(gate,), kernel=resolver.kernel(choice.kernel))
            verdicts.append(judge(told_to))
    return log


def toy_answer(choice: PredictedConfig) -> float:
    return float(true_s(choice.config))


def toy_resolver(*, learns: bool = True) -> Resolver:
    task = task_of(Operation("toy", (ToySpec(),)))
    candidates = Candidates.of(task.operation, GPU, task.workload)
    return Resolver(task, candidates, None if learns else InOrder(candidates))


def best_after(log: Log, number: int) -> float:
    return min(seconds or math.inf for _, _, seconds in log[:number])


def test_the_first_trial_is_the_model_s_first_choice() -> None:
    resolver = Resolver(product_task(), product_candidates())
    first = rounds(resolver, lambda choice: choice.predicted_s, 1)[0][1]
    assert (first.kernel, first.config) == (resolver.facts.ranking[0].kernel, resolver.facts.ranking[0].config)


def test_the_same_facts_get_the_same_proposals() -> None:
    def run() -> Log:
        return rounds(toy_resolver(), toy_answer, 6)

    assert run() == run()


def test_it_beats_the_model_s_order_alone_where_the_model_is_wrong() -> None:
    candidates = toy_resolver().candidates
    order = InOrder(candidates)
    alone = min(float(true_s(one.config)) for one in order.peek(12))
    kernel = candidates.kernels[0]
    least = min(float(true_s(kernel.config(row))) for row in range(kernel.num_rows))
    # The first twelve by the model all have the tile that takes half as long again as predicted.
    assert alone > 1.3 * least
    assert best_after(rounds(toy_resolver(), toy_answer, 3), 12) <= 1.02 * least


def test_proposals_alone_beat_the_order_where_nothing_is_learnt_from_times() -> None:
    order = InOrder(toy_resolver().candidates)
    alone = min(float(true_s(one.config)) for one in order.peek(12))
    assert best_after(rounds(toy_resolver(learns=False), toy_answer, 3, plan="pa"), 12) < alone


def test_all_kinds_of_proposals_come_and_no_configuration_twice() -> None:
    log = rounds(Resolver(product_task(), product_candidates()), lambda choice: choice.predicted_s, 6)
    keys = [key_of(choice.kernel, choice.config) for _, choice, _ in log]
    assert len(set(keys)) == len(keys) >= 20
    reasons = [p.because for p, _, _ in log if isinstance(p, SpaceProposal)]
    assert any(reason.startswith("at most 1 macro action") for reason in reasons)
    assert any(reason.startswith("at most 2 macro action") for reason in reasons)
    strategies = [p for p, _, _ in log if isinstance(p, StrategyProposal)]
    assert strategies
    assert not any(isinstance(p, ActionProposal) and p.config is None for p, _, _ in log)


def test_failures_do_not_stop_it() -> None:
    log = rounds(toy_resolver(), lambda choice: None if choice.config["tile"] == 32 else toy_answer(choice), 8)
    assert sum(seconds is None for _, _, seconds in log) >= 1
    assert math.isfinite(best_after(log, len(log)))
    assert not rounds(toy_resolver(), lambda _: None, 3)[0][2]


def test_a_small_space_ends() -> None:
    log = rounds(toy_resolver(), toy_answer, 40)
    assert len(log) == toy_resolver().facts.kernels[0].num_valid


@pytest.mark.parametrize(("most", "number"), [(0, 1), (1, 1 + 3 + 2 + 1 + 1)])
def test_near_means_so_many_parameters(most: int, number: int) -> None:
    wanted = near("toy.tiled", {"tile": 4, "warps": 4, "order": 1, "knob": 0}, most)
    # A block of four warps has at least four rows: tiles of 8, 16 and 32 are near, warps of 1 and 2, an order, a knob.
    assert len(toy_resolver().resolve(wanted, 100).configs) == number


def test_an_edit_changes_a_space_s_constraints() -> None:
    space = one("toy.tiled", {"tile": 4, "warps": 2}, "")
    space = msgspec.structs.replace(space, rules=(Restriction(rule="tile > 2"), Restriction(rule="order == 1")))
    change = Edit(
        kernel="toy.tiled",
        values=space.values[:1],
        add=(Restriction(rule="knob == 1"),),
        drop=("tile > 2",),
        prefer=(Preference(rule="warps == 2"),),
    )
    after = edited(space, change)
    assert [part.parameter for part in after.values] == ["warps", "tile"]
    assert [rule.rule for rule in after.rules] == ["order == 1", "knob == 1"]
    assert [wish.rule for wish in after.preferences] == ["warps == 2"]


def test_the_best_is_the_fastest_that_passed() -> None:
    def result(seconds: float, *, passed: bool = True) -> GateResult:
        return GateResult(gate="fast", passed=passed, kernel="k", seconds=seconds)

    assert best_of([]) is None
    assert best_of([result(2.0), result(1.0, passed=False), result(1.5)]) == result(1.5)
