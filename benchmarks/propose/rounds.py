"""Rounds of proposals over a table, recorded or measured as it is asked: propose, resolve, answer, judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.tuning.recorded import Answers, Space
from constrint.select.candidates import Candidates
from constrint.tune.search.interface import Proposal, SearchTask
from constrint.tune.search.llm.judge import RuleJudge
from constrint.tune.search.llm.records import CandidateEvidence, GateResult, Proposer, RankedConfig, Verdict
from constrint.tune.search.llm.resolve import Key, Order, Resolver, key_of
from constrint.tune.store.record import TuningRecord

#: Rounds in a row of which nothing could be tried, after which there is nothing more to come.
MOST_IDLE = 6


def tried_rows(
    of: Space,
    make: Callable[[Resolver], Proposer],
    answers_us: Answers,
    num_trials: int,
    *,
    order: Callable[[Candidates], Order] | None = None,
    known: Sequence[TuningRecord] = (),
    is_enough: Callable[[int], bool] = lambda row: False,
) -> list[int]:
    """The rows that a proposer's rounds try, in order; each proposal is one trial, a round is answered at once.

    Args:
        of: The configurations, with their rows.
        make: Makes the proposer.
        answers_us: What a trial of each row is answered with.
        num_trials: How many at most.
        order: What says which configuration of a proposal comes first; the default search if None.
        known: Records of other workloads.
        is_enough: Whether the rounds may end with a row.
    """
    task = SearchTask(of.operation, of.gpu, of.workload, known=known)
    resolver = Resolver(task, of.candidates, None if order is None else order(of.candidates))
    proposer, judge, facts = make(resolver), RuleJudge(), resolver.facts
    rows: list[int] = []
    tried: set[Key] = set()
    results: list[GateResult] = []
    verdicts: tuple[Verdict, ...] = ()
    number, idle = 0, 0
    while len(rows) < num_trials and idle < MOST_IDLE and not any(map(is_enough, rows)):
        told = msgspec.structs.replace(facts, round=number, results=tuple(results), verdicts=verdicts)
        chosen = []
        for proposal in proposer.propose(told):
            for choice in resolver.resolve(proposal, 1, tried).configs:
                tried.add(key_of(choice.kernel, choice.config))
                chosen.append(choice)
        idle = 0 if chosen else idle + 1
        fresh = [of.row_of(Proposal(choice.kernel, choice.config)) for choice in chosen]
        answers = answers_us[fresh].tolist() if fresh else []
        timed = [_answered(choice, answer_us) for choice, answer_us in zip(chosen, answers, strict=True)]
        for gate in timed:
            resolver.hear(gate.kernel, gate.config, gate.seconds)
        rows, results, number = rows + fresh, results + timed, number + 1
        pairs = zip(chosen, timed, strict=True)
        verdicts = tuple(judge.judge(_evidence(choice, gate, resolver, results)) for choice, gate in pairs)
    return rows[:num_trials]


def _answered(choice: RankedConfig, answer_us: float) -> GateResult:
    if not math.isfinite(answer_us):
        return GateResult(gate="right", passed=False, kernel=choice.kernel, config=choice.config, message="it failed")
    seconds = answer_us * 1e-6
    return GateResult(gate="fast", passed=True, kernel=choice.kernel, config=choice.config, seconds=seconds)


def _evidence(
    choice: RankedConfig, gate: GateResult, resolver: Resolver, results: Sequence[GateResult]
) -> CandidateEvidence:
    return CandidateEvidence(
        candidate=choice,
        gates=(gate,),
        kernel=resolver.kernel(choice.kernel),
        best_s=min((result.seconds for result in results if result.seconds), default=None),
        roofline_s=resolver.facts.roofline_s,
    )
