"""Proposals in the store, a table of their own: proposer, reason, candidate, gates and verdict."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Column, Double, Index, String, Table, Text

from constrint.tune.store.record import Value, digest
from constrint.tune.store.schema import CHECKSUM, METADATA, exact_json, sealed

PROPOSALS = Table(
    "constrint_proposals",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("run", Text(), nullable=False),
    Column("operation", Text(), nullable=False),
    Column("gpu", Text(), nullable=False),
    Column("record_key", String(32), nullable=False),
    Column("created", Double(), nullable=False),
    Column("proposal", Text(), nullable=False),
    Column(CHECKSUM, String(32)),
)
Index("constrint_proposals_by_run", PROPOSALS.c.run)
Index("constrint_proposals_by_record", PROPOSALS.c.record_key)
#: Columns with the value of the proposal's field of the same name.
FIELDS = ("id", "run", "operation", "gpu", "record_key", "created")


class GateKept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one gate."""

    gate: str
    passed: bool
    message: str = ""
    seconds: float | None = None
    is_modelled: bool = False


class ProposalRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proposal with one candidate of it, or with the reasons for which it has none.

    Args:
        run: Name of the run; the same as in the tuner's records, where candidates were measured.
        round: The number of the round, from 0.
        place: Its place in the round, from 0.
        origin: Name of the proposer: `built-in`, or the model's name.
        host: The host of the endpoint that answered; empty for built-in rules.
        is_replayed: Whether it came from a transcript.
        operation, gpu, dtype, sizes, options, fixed: The GPU and the workload, as in a `TuningRecord`.
        kind: `space`, `strategy`, `action`, `source`; or `baseline`, the cost model's first choice.
        because: The proposer's reason.
        proposal: The whole proposal as JSON; empty where it could not be read.
        refusals: Reasons for which it, or a part of it, was refused.
        kernel: The candidate's kernel; empty where there is none.
        config: Its configuration.
        gates: Results in the order of the gates.
        verdict: The judge's verdict as JSON; empty without one.
        record_key: The `key` of the candidate's measurements; empty where nothing was measured.
        created: Seconds since 1970.
    """

    run: str
    round: int
    place: int
    origin: str
    operation: str
    gpu: str
    dtype: str
    sizes: dict[str, int]
    options: dict[str, int] = {}
    fixed: dict[str, int] = {}
    host: str = ""
    is_replayed: bool = False
    kind: str = ""
    because: str = ""
    proposal: str = ""
    refusals: tuple[str, ...] = ()
    kernel: str = ""
    config: dict[str, Value] = {}
    gates: tuple[GateKept, ...] = ()
    verdict: str = ""
    record_key: str = ""
    created: float = 0.0

    @property
    def id(self) -> str:
        """Identity of the record: run, round, place and subject."""
        work = [self.operation, self.gpu, self.dtype, self.sizes, self.options, self.fixed]
        return digest([self.run, self.round, self.place, *work])

    @property
    def passed(self) -> str:
        """The last gate that it passed; empty where it passed none."""
        return next((gate.gate for gate in reversed(self.gates) if gate.passed), "")


def proposal_row(proposal: ProposalRecord) -> dict[str, Any]:
    """A proposal as a row.

    Raises:
        UsageError: When it would not be read back as it is.
    """
    text = exact_json(proposal, f"a proposal of run {proposal.run[:80]!r}")
    return sealed({**proposal_columns(proposal), "proposal": text})


def proposal_columns(proposal: ProposalRecord) -> dict[str, Any]:
    """The columns that are computed from a proposal."""
    return {name: getattr(proposal, name) for name in FIELDS}
