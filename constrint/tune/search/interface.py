"""What a search is: it proposes configurations of one workload, and hears what came of them."""

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
        predicted_s: What the (corrected) cost model says; nan where it says nothing.
        because: Why it is tried, in a phrase: `model's 3rd choice`, `neighbour of the best`, `tpe`.
        seed: Of the random inputs that it is checked on, drawn after it was proposed; None for the run's.
    """

    kernel: str
    config: Mapping[str, int]
    predicted_s: float = float("nan")
    because: str = ""
    seed: int | None = None


@dataclass(frozen=True)
class SearchTask:
    """What a search is about.

    Args:
        operation: What is tuned, with the implementations that compete.
        gpu: The hardware model.
        workload: What is asked of it.
        known: Records of other workloads on this GPU, for a warm start; any order.
        seed: Of whatever is random.
        fixed: Parameters that have to have given values, in the kernels that have them.
    """

    operation: Operation
    gpu: GpuModel
    workload: Workload
    known: Sequence[TuningRecord] = field(default=())
    seed: int = 0
    fixed: Mapping[str, int] = field(default_factory=dict)


class Search(Protocol):
    """Proposes and hears; of one task the same calls give the same proposals."""

    def ask(self, number: int) -> list[Proposal]:
        """Up to so many configurations to try next, none of which it proposed before; empty when there are no more."""

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """What came of a proposal: its median time, or None where it failed."""


@runtime_checkable
class RecordSearch(Search, Protocol):
    """A search that takes whole records as well: outcomes, messages and resources beside the time."""

    def hear(self, record: TuningRecord) -> None:
        """Take a trial's record as soon as it is there, and before the first `ask` those of earlier runs."""
