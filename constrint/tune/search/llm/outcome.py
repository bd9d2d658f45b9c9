"""The outcome of one workload: the best candidate, the gain over the cost model's first choice, and both as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from constrint.tune.search.llm.answer import Spending
from constrint.tune.search.llm.gates import BASELINE, Attempt, Round
from constrint.tune.search.llm.provenance import reason_of
from constrint.tune.search.llm.search import LlmSearch
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
        wanted = None if won is None else (won.kernel, dict(won.config))
        mine = (one for one in self.search.attempts if (one.candidate.kernel, dict(one.candidate.config)) == wanted)
        return next(mine, None)

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
        first, seconds = next((one.seconds for one in self.search.attempts), None), self.seconds
        return first / seconds if first is not None and seconds else None

    @property
    def has_passed(self) -> bool:
        """Whether a proposal passed every gate; the baseline is none."""
        return any(one.seconds is not None and one.origin != BASELINE for one in self.search.attempts)

    def document(self) -> dict[str, Any]:
        """The outcome as JSON."""
        work, best, known = self.goal.workload, self.best, self.earlier_winner
        chosen = None
        if best is not None:
            chosen = {"kernel": best.candidate.kernel, "config": best.candidate.config, "seconds": self.seconds}
            chosen |= {"origin": best.origin, "round": best.round, "because": reason_of(best.proposal)}
        return {
            "operation": work.operation,
            "dtype": work.dtype,
            "sizes": dict(work.sizes),
            "options": dict(work.options),
            "fixed": dict(self.goal.fixed),
            "stopped": self.search.stopped,
            "known": known and known.id,
            "best": chosen,
            "gain": self.gain,
            "rounds": list(map(_of_round, self.search.rounds)),
        }


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
    return {
        "round": one.number,
        "fault": one.answer.fault,
        "message": one.answer.message,
        "refusals": [{"proposal": number, **msgspec.structs.asdict(refusal)} for number, refusal in one.refusals],
        "proposals": msgspec.to_builtins(list(one.proposals)),
        "candidates": [_of_attempt(one, attempt) for attempt in one.attempts],
    }


def _of_attempt(one: Round, attempt: Attempt) -> dict[str, Any]:
    names = ("gate", "passed", "message", "seconds", "is_modelled", "resources")
    return {
        "kernel": attempt.candidate.kernel,
        "config": attempt.candidate.config,
        "origin": attempt.origin,
        "proposal": next((n for n, proposal in enumerate(one.proposals) if proposal is attempt.proposal), None),
        "predicted_s": attempt.candidate.predicted_s,
        "gates": [{name: getattr(gate, name) for name in names} for gate in attempt.gates],
        "verdict": attempt.verdict,
        "metrics": dict(attempt.metrics),
        "record": attempt.record and attempt.record.id,
    }
