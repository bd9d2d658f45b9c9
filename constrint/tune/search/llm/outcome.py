"""The outcome of one workload: the best candidate, the gain over the cost model's first choice, and both as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from constrint.tune.search.llm.answer import Spending
from constrint.tune.search.llm.search import BASELINE, Attempt, LlmSearch, Round, reason_of
from constrint.tune.search.llm.transcript import Header
from constrint.tune.session import Goal, Tuned
from constrint.tune.store.record import TuningRecord


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a workload.

    Args:
        goal: The workload.
        search: Its rounds.
        tuned: The tuner's result; None where nothing was measured.
        is_interrupted: Whether Ctrl-C ended it.
    """

    goal: Goal
    search: LlmSearch
    tuned: Tuned | None = None
    is_interrupted: bool = False

    @property
    def winner(self) -> Attempt | None:
        """The candidate that won the final round of the best; None where a configuration of an earlier run won."""
        won = None if self.tuned is None else self.tuned.winner
        config = None if won is None else dict(won.config)
        equal = (one for one in self.search.attempts if dict(one.candidate.config) == config)
        return next((one for one in equal if won is not None and one.candidate.kernel == won.kernel), None)

    @property
    def earlier_winner(self) -> TuningRecord | None:
        """The measurement of an earlier run that won; None where a candidate of this run did."""
        return None if self.tuned is None or self.winner is not None else self.tuned.winner

    @property
    def best(self) -> Attempt | None:
        """The fastest candidate of this run."""
        return self.winner or self.search.best

    @property
    def seconds(self) -> float | None:
        """Time of the best candidate."""
        if self.tuned is not None and self.winner is not None:
            return self.tuned.best_s
        return None if self.best is None else self.best.seconds

    @property
    def gain(self) -> float | None:
        """Time of the cost model's first choice over that of the best; None where either is unknown."""
        if self.tuned is not None:
            return None if self.winner is None else self.tuned.gain
        first, seconds = self.search.attempts[:1], self.seconds
        if not first or first[0].seconds is None or not seconds:
            return None
        return first[0].seconds / seconds

    @property
    def has_passed(self) -> bool:
        """Whether a proposal passed every gate; the baseline is none."""
        return any(one.seconds is not None and one.origin != BASELINE for one in self.search.attempts)

    def document(self) -> dict[str, Any]:
        """The outcome as JSON."""
        workload, best = self.goal.workload, self.best
        document: dict[str, Any] = {"operation": workload.operation, "dtype": workload.dtype}
        document |= {"sizes": dict(workload.sizes), "options": dict(workload.options)}
        document |= {"fixed": dict(self.goal.fixed), "stopped": self.search.stopped}
        chosen = None
        if best is not None:
            chosen = {"kernel": best.candidate.kernel, "config": dict(best.candidate.config), "seconds": self.seconds}
            chosen |= {"origin": best.origin, "round": best.round, "because": reason_of(best.proposal)}
        document["known"] = None if self.earlier_winner is None else self.earlier_winner.id
        rounds = list(map(_of_round, self.search.rounds))
        return document | {"best": chosen, "gain": self.gain, "rounds": rounds}


def proposer_document(header: Header, spending: Spending) -> dict[str, Any]:
    """The proposer and its tokens, as JSON."""
    tokens = {"input": spending.input_tokens, "output": spending.output_tokens, "is_estimated": spending.is_estimated}
    proposer = {"name": header.proposer, "host": header.host, "judges": header.judge}
    return {"proposer": proposer, "tokens": tokens, "dollars": spending.dollars}


def proposer_text(header: Header, spending: Spending) -> str:
    """The proposer and its tokens as a sentence; empty where nothing was spent."""
    money = f", ${spending.dollars:.4f}" if spending.dollars else ""
    about = "about " if spending.is_estimated else ""
    return f"{header.proposer} at {header.host}: {about}{spending.tokens:,} tokens{money}." if spending.tokens else ""


def _of_round(one: Round) -> dict[str, Any]:
    refusals = [{"proposal": n, "where": refusal.where, "message": refusal.message} for n, refusal in one.refusals]
    document = {"round": one.number, "fault": one.answer.fault, "message": one.answer.message, "refusals": refusals}
    document |= {"proposals": msgspec.to_builtins(list(one.proposals))}
    return document | {"candidates": [_of_attempt(one, attempt) for attempt in one.attempts]}


def _of_attempt(one: Round, attempt: Attempt) -> dict[str, Any]:
    numbers = [number for number, proposal in enumerate(one.proposals) if proposal is attempt.proposal]
    gates = [
        {name: getattr(gate, name) for name in ("gate", "passed", "message", "seconds", "is_modelled")}
        | {"resources": msgspec.to_builtins(gate.resources)}
        for gate in attempt.gates
    ]
    document: dict[str, Any] = {"kernel": attempt.candidate.kernel, "config": dict(attempt.candidate.config)}
    document |= {"origin": attempt.origin, "proposal": numbers[0] if numbers else None}
    document |= {"predicted_s": attempt.candidate.predicted_s, "gates": gates}
    verdict = msgspec.to_builtins(attempt.verdict)
    return document | {"verdict": verdict, "metrics": attempt.metrics, "record": attempt.record and attempt.record.id}
