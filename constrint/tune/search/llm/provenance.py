"""Proposals in the store: proposer, round, reason, gates and verdict of each; and one line of progress for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from constrint.tune.search.llm.answer import Speaker
from constrint.tune.search.llm.gates import BASELINE, Attempt, Round
from constrint.tune.search.llm.prompt import config_text
from constrint.tune.search.llm.records import GateResult, Proposal, ProposalRefusal, StrategyProposal, Verdict
from constrint.tune.store.proposals import GateKept, ProposalRecord
from constrint.tune.store.record import time_text
from constrint.tune.store.store import RecordStore


def blank_record(run: str, speaker: Speaker, operation: str, gpu: str, **subject: Any) -> ProposalRecord:
    """The fields that all proposals of a run for one workload, or for one task of kernels to write, share.

    Args:
        run: Name of the run.
        speaker: The proposer.
        operation: The operation, or the task.
        gpu: The GPU's name.
        subject: Other fields of a `ProposalRecord`.
    """
    fields: dict[str, Any] = {"dtype": "", "sizes": {}} | subject
    return ProposalRecord(
        run=run, round=0, place=0, origin=speaker.name, host=speaker.host, operation=operation, gpu=gpu, **fields
    )


def record_of(
    blank: ProposalRecord, number: int, place: int, proposal: Proposal | None, **facts: Any
) -> ProposalRecord:
    """The record of a proposal with its round and place; None stands for the baseline."""
    kind = "baseline" if proposal is None else str(proposal.__struct_config__.tag)
    text = "" if proposal is None else msgspec.json.encode(proposal).decode()
    told = {"kind": kind, "proposal": text, "because": reason_of(proposal), "created": time.time()} | facts
    return msgspec.structs.replace(blank, round=number, place=place, **told)


def decided(gates: Sequence[GateResult], verdict: Verdict | None) -> dict[str, Any]:
    """Gate results and verdict as the store keeps them."""
    kept = msgspec.convert(tuple(gates), type=tuple[GateKept, ...], from_attributes=True)
    return {"gates": kept, "verdict": "" if verdict is None else msgspec.json.encode(verdict).decode()}


def reason_of(proposal: Proposal | None) -> str:
    """The proposer's reason for a proposal; None stands for the baseline."""
    if proposal is None:
        return "the cost model's first choice"
    return proposal.text if isinstance(proposal, StrategyProposal) else proposal.because


class ProposalLog:
    """Follows one search: stores each proposal as it is decided, and says how far the search is.

    Args:
        blank: The shared fields of the records.
        store: Keeps the records.
        say: Prints a line of progress.
    """

    def __init__(self, blank: ProposalRecord, store: RecordStore, say: Callable[[str], None]) -> None:
        self._blank, self._store, self._say = blank, store, say

    def begun(self, one: Round) -> None:
        """Say how many candidates a round has; store and say what was refused."""
        counts = f"{len(one.proposals)} proposals, {len(one.attempts)} candidates"
        self._say(f"round {one.number + 1}: {counts}" + (f"; {one.answer.message}" if one.answer.message else ""))
        for _, refusal in one.refusals:
            self._say("  refused: " + refusal_text(refusal).partition("\n")[0])
        self._store.add_proposals(self._refusals(one))

    def finished(self, one: Round, attempt: Attempt) -> None:
        """Store a candidate, and say which gate it reached."""
        self._store.add_proposals([self._candidate(one, attempt)])
        last = attempt.gates[-1]
        result = f"{time_text(last.seconds)}{' modelled' if last.is_modelled else ''}" if last.seconds else last.message
        passed = "passed" if last.passed else "failed"
        self._say(
            f"  {attempt.candidate.kernel} {config_text(attempt.candidate.config)}: {passed} {last.gate}: {result}"
        )

    def profiled(self, one: Round, attempt: Attempt) -> None:
        """Store a candidate's newer verdict."""
        self._store.add_proposals([self._candidate(one, attempt)], is_newer=True)
        self._say(f"  {_named(attempt)}: profiled, {len(attempt.metrics)} metrics")

    def _candidate(self, one: Round, attempt: Attempt) -> ProposalRecord:
        return record_of(
            self._blank,
            one.number,
            one.attempts.index(attempt),
            attempt.proposal,
            origin=attempt.origin,
            host="" if attempt.origin == BASELINE else self._blank.host,
            kernel=attempt.candidate.kernel,
            config=dict(attempt.candidate.config),
            record_key="" if attempt.record is None else attempt.record.key,
            **decided(attempt.gates, attempt.verdict),
        )

    def _refusals(self, one: Round) -> Iterator[ProposalRecord]:
        """The records of refused proposals, one for each, and one for what could not be read."""
        messages: dict[int | None, list[str]] = {}
        for number, refusal in one.refusals:
            messages.setdefault(number, []).append(refusal_text(refusal))
        for place, (number, reasons) in enumerate(messages.items(), len(one.attempts)):
            unread = {"kind": "", "because": ""} if number is None else {}
            proposal = None if number is None else one.proposals[number]
            yield record_of(self._blank, one.number, place, proposal, refusals=tuple(reasons), **unread)


def refusal_text(refusal: ProposalRefusal) -> str:
    """A refusal with the place that it is about."""
    return f"{refusal.where}: {refusal.message}".removeprefix(": ")


def _named(attempt: Attempt) -> str:
    return f"{attempt.candidate.kernel} {config_text(attempt.candidate.config)}"
