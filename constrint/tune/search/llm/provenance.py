"""Proposals in the store: proposer, round, reason, gates and verdict of each; and one line of progress for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.answer import Speaker
from constrint.tune.search.llm.records import GateResult, Proposal
from constrint.tune.search.llm.search import BASELINE, Attempt, Round, reason_of
from constrint.tune.store.proposals import GateKept, ProposalRecord
from constrint.tune.store.store import RecordStore

#: Kind of the cost model's first choice; the kind of a proposal is the tag of its record.
BASELINE_KIND = "baseline"


@dataclass(frozen=True)
class Subject:
    """The workload, or the task of kernels to write, that proposals are for; as in a `ProposalRecord`."""

    operation: str
    gpu: str
    dtype: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(task: SearchTask) -> Subject:
        """The subject of a workload on a GPU."""
        work = task.workload
        return Subject(work.operation, task.gpu.name, work.dtype, work.sizes, work.options, task.fixed)


@dataclass(frozen=True)
class Provenance:
    """The fields that all proposals of a run for one subject share.

    Args:
        run: Name of the run.
        work: Subject of the proposals.
        speaker: The proposer.
        is_replayed: Whether a transcript answers.
    """

    run: str
    work: Subject
    speaker: Speaker
    is_replayed: bool = False

    def of_candidate(self, one: Round, attempt: Attempt) -> ProposalRecord:
        """The record of a candidate."""
        return msgspec.structs.replace(
            self.blank(one.number, one.attempts.index(attempt), attempt.proposal),
            origin=attempt.origin,
            host="" if attempt.origin == BASELINE else self.speaker.host,
            because=reason_of(attempt.proposal),
            kernel=attempt.candidate.kernel,
            config=dict(attempt.candidate.config),
            gates=stored_gates(attempt.gates),
            verdict="" if attempt.verdict is None else msgspec.json.encode(attempt.verdict).decode(),
            record_key="" if attempt.record is None else attempt.record.key,
        )

    def of_refusals(self, one: Round) -> Iterable[ProposalRecord]:
        """The records of refused proposals, one for each, and one for what could not be read."""
        messages: dict[int | None, list[str]] = {}
        for number, refusal in one.refusals:
            messages.setdefault(number, []).append(f"{refusal.where}: {refusal.message}".removeprefix(": "))
        for place, (number, reasons) in enumerate(messages.items(), len(one.attempts)):
            proposal = None if number is None else one.proposals[number]
            because = "" if proposal is None else reason_of(proposal)
            blank = self.blank(one.number, place, proposal)
            kind = "" if proposal is None else blank.kind
            yield msgspec.structs.replace(blank, kind=kind, because=because, refusals=tuple(reasons))

    def blank(self, number: int, place: int, proposal: Proposal | None) -> ProposalRecord:
        """The record of a proposal before any of its candidates is known."""
        work = self.work
        kind = BASELINE_KIND if proposal is None else str(proposal.__struct_config__.tag)
        return ProposalRecord(
            run=self.run,
            round=number,
            place=place,
            origin=self.speaker.name,
            host=self.speaker.host,
            is_replayed=self.is_replayed,
            operation=work.operation,
            gpu=work.gpu,
            dtype=work.dtype,
            sizes=dict(work.sizes),
            options=dict(work.options),
            fixed=dict(work.fixed),
            kind=kind,
            proposal="" if proposal is None else msgspec.json.encode(proposal).decode(),
            created=time.time(),
        )


class ProposalLog:
    """Watcher of one search: stores each proposal as it is decided, and says how far the search is.

    Args:
        provenance: The shared fields of the records.
        store: Keeps the records.
        say: Prints a line of progress.
    """

    def __init__(self, provenance: Provenance, store: RecordStore, say: Callable[[str], None]) -> None:
        self._provenance, self._store, self._say = provenance, store, say

    def begun(self, one: Round) -> None:
        """Say how many candidates a round has; store and say what was refused."""
        counts = f"{len(one.proposals)} proposals, {len(one.attempts)} candidates"
        self._say(f"round {one.number + 1}: {counts}" + (f"; {one.answer.message}" if one.answer.message else ""))
        for _, refusal in one.refusals:
            where = f"{refusal.where}: " if refusal.where else ""
            self._say(f"  refused: {where}{refusal.message.splitlines()[0]}")
        self._store.add_proposals(self._provenance.of_refusals(one))

    def finished(self, one: Round, attempt: Attempt) -> None:
        """Store a candidate, and say which gate it reached."""
        self._store.add_proposals([self._provenance.of_candidate(one, attempt)])
        last = attempt.gates[-1]
        result = f"{time_text(last.seconds)}{' modelled' if last.is_modelled else ''}" if last.seconds else last.message
        passed = "passed" if last.passed else "failed"
        self._say(f"  {attempt.candidate.kernel} {config_text(attempt)}: {passed} {last.gate}: {result}")

    def profiled(self, one: Round, attempt: Attempt) -> None:
        """Store a candidate's newer verdict."""
        self._store.add_proposals([self._provenance.of_candidate(one, attempt)], is_newer=True)
        self._say(f"  {attempt.candidate.kernel} {config_text(attempt)}: profiled, {len(attempt.metrics)} metrics")


def stored_gates(gates: Iterable[GateResult]) -> tuple[GateKept, ...]:
    """Gate results as the store keeps them."""
    return tuple(
        GateKept(
            gate=gate.gate,
            passed=gate.passed,
            message=gate.message,
            seconds=gate.seconds,
            is_modelled=gate.is_modelled,
        )
        for gate in gates
    )


def config_text(attempt: Attempt) -> str:
    """A candidate's configuration: `tile_m=128 tile_n=64`."""
    return " ".join(f"{name}={value}" for name, value in attempt.candidate.config.items())


def time_text(seconds: float) -> str:
    """A time with three digits in us or ms."""
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"
