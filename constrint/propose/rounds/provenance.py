"""Proposals and what came of them, as the store keeps them: who proposed what in which round and why, gate by gate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from constrint.propose.llm.answer import Speaker
from constrint.propose.records import GateResult, Proposal
from constrint.propose.rounds.configs import BASELINE, Round, Tried, reason_of
from constrint.tune.search.interface import Task
from constrint.tune.store.proposals import GateKept, ProposalRecord

#: The kind of the cost model's first choice; that of proposals is their record's tag.
BASELINE_KIND = "baseline"


@dataclass(frozen=True)
class Work:
    """What is proposed for: a workload, or a task that kernels are written for; as in a `ProposalRecord`."""

    operation: str
    gpu: str
    dtype: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(task: Task) -> Work:
        """A workload on a GPU."""
        asked = task.workload
        return Work(asked.operation, task.gpu.name, asked.dtype, asked.sizes, asked.options, task.fixed)


@dataclass(frozen=True)
class Provenance:
    """What all proposals of a run for one workload have in common.

    Args:
        run: The run's name.
        work: What is proposed for.
        speaker: Who proposes.
        is_replayed: Whether a transcript answers.
    """

    run: str
    work: Work
    speaker: Speaker
    is_replayed: bool = False

    def of_candidate(self, one: Round, tried: Tried) -> ProposalRecord:
        """What is kept of a candidate."""
        return msgspec.structs.replace(
            self.blank(one.number, one.tried.index(tried), tried.proposal),
            origin=tried.origin,
            host="" if tried.origin == BASELINE else self.speaker.host,
            because=reason_of(tried.proposal),
            kernel=tried.candidate.kernel,
            config=dict(tried.candidate.config),
            gates=kept_gates(tried.gates),
            verdict="" if tried.verdict is None else msgspec.json.encode(tried.verdict).decode(),
            record_key="" if tried.record is None else tried.record.key,
        )

    def of_refusals(self, one: Round) -> Iterable[ProposalRecord]:
        """What is kept of proposals that came to no candidate: one of each, and one of what could not be read."""
        messages: dict[int | None, list[str]] = {}
        for number, refusal in one.refusals:
            messages.setdefault(number, []).append(f"{refusal.where}: {refusal.message}".removeprefix(": "))
        for place, (number, said) in enumerate(messages.items(), len(one.tried)):
            proposal = None if number is None else one.proposals[number]
            because = "" if proposal is None else reason_of(proposal)
            blank = self.blank(one.number, place, proposal)
            kind = "" if proposal is None else blank.kind
            yield msgspec.structs.replace(blank, kind=kind, because=because, refusals=tuple(said))

    def blank(self, number: int, place: int, proposal: Proposal | None) -> ProposalRecord:
        """A proposal of a round, before anything is known of its candidates."""
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


def kept_gates(gates: Iterable[GateResult]) -> tuple[GateKept, ...]:
    """The results of gates as they are kept."""
    return tuple(map(_kept, gates))


def _kept(gate: GateResult) -> GateKept:
    return GateKept(
        gate=gate.gate,
        passed=gate.passed,
        message=gate.message,
        seconds=gate.seconds,
        is_modelled=gate.is_modelled,
    )
