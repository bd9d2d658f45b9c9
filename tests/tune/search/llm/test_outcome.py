"""What a run amounts to: which candidate is the best, and what counts as a proposal that passed."""

from __future__ import annotations

import msgspec
import pytest

from constrint.tune.search.llm.outcome import SearchOutcome
from constrint.tune.search.llm.search import Effort, LlmSearch
from constrint.tune.session import Goal, Tuned
from constrint.tune.store.record import TuningRecord
from tests.tune.search.llm.tiny_search import WORKLOAD, Script, record, reply, space, tiny_search, tiny_task

GOAL = Goal(tiny_task().operation, WORKLOAD)


@pytest.fixture
def rounds() -> LlmSearch:
    """One round: the cost model's choice takes 4 us, the two proposals 3 and 2 us."""
    made = tiny_search(Script([reply(space(3, 4))]), Effort(rounds=1, candidates=2, is_modelled=False))
    for trial, seconds in zip(made.ask(9), (4e-6, 3e-6, 2e-6), strict=True):
        made.hear(record(trial.config["what"], seconds))
    return made


def tuned(winner: TuningRecord, first: TuningRecord) -> Tuned:
    return Tuned(GOAL, winner, first, {"ok": 3}, 0, True, 1.0)


def test_the_best_is_who_won_in_turn_with_the_figures_of_that(rounds: LlmSearch) -> None:
    outcome = SearchOutcome(GOAL, rounds, tuned(record(3, 2.5e-6), record(0, 5e-6)))
    assert outcome.best is not None
    assert outcome.best.candidate.config == {"what": 3}
    assert (outcome.seconds, outcome.gain, outcome.earlier_winner) == (2.5e-6, 2.0, None)


def test_a_winner_that_nobody_proposed_is_told_apart(rounds: LlmSearch) -> None:
    before = record(8, 1e-6)
    outcome = SearchOutcome(GOAL, rounds, tuned(before, record(0, 5e-6)))
    assert outcome.earlier_winner == before
    assert outcome.best is not None
    assert outcome.best.candidate.config == {"what": 4}
    assert (outcome.seconds, outcome.gain) == (2e-6, None)


def test_without_a_tuner_gains_are_counted_from_the_first_choice(rounds: LlmSearch) -> None:
    outcome = SearchOutcome(GOAL, rounds)
    assert outcome.gain == pytest.approx(2.0)
    assert outcome.has_passed


def test_the_cost_models_own_choice_is_no_proposal_that_passed(rounds: LlmSearch) -> None:
    for tried in rounds.attempts[1:]:
        tried.gates[-1] = msgspec.structs.replace(tried.gates[-1], passed=False)
    assert not SearchOutcome(GOAL, rounds).has_passed
    empty = tiny_search(Script([""]), Effort(rounds=1))
    assert (SearchOutcome(GOAL, empty).best, SearchOutcome(GOAL, empty).gain) == (None, None)
