"""The protocol of a search: it proposes configurations of one workload, and learns their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from constrint.hwmodels import GpuModel
from constrint.select import Operation, Workload
from constrint.tune.store.record import TuningRecord


@dataclass(frozen=True)
class Proposal:
    """A configuration to try next.

    Args:
        kernel: The implementation's full name.
        config: A value for each of its parameters.
        predicted_s: Time by the (corrected) cost model; nan where it has none.
        because: Reason in a phrase: `model's choice 3`, `neighbour of the best`, `tpe`.
        seed: Seed of the random inputs of its check, drawn after the proposal; None for the run's seed.
    """

    kernel: str
    config: Mapping[str, int]
    predicted_s: float = float("nan")
    because: str = ""
    seed: int | None = None


@dataclass(frozen=True)
class SearchTask:
    """The workload of a search, with the records of other workloads.

    Args:
        operation: The operation, with the implementations that compete.
        gpu: The hardware model.
        workload: The workload.
        records: Records of other workloads on this GPU, for a warm start; any order.
        seed: Seed of random decisions.
        fixed: Values that parameters must have, in the kernels that have them.
    """

    operation: Operation
    gpu: GpuModel
    workload: Workload
    records: Sequence[TuningRecord] = field(default=())
    seed: int = 0
    fixed: Mapping[str, int] = field(default_factory=dict)


class Search(Protocol):
    """Proposes configurations; for one task equal calls give equal proposals."""

    def ask(self, number: int) -> list[Proposal]:
        """Up to `number` configurations not proposed before; empty when there are none."""

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """Learn a proposal's median time, or None where it failed."""


@runtime_checkable
class RecordSearch(Search, Protocol):
    """A search that takes whole records as well: outcomes, messages and resources beside the time."""

    def hear(self, record: TuningRecord) -> None:
        """Take the record of a trial at once; records of earlier runs come before the first `ask`."""
