"""Names of a sweep's rows, and messages between its processes: who is timed on which layer, and the times. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.rnn.cases import Sizes
from constrint.tune.measure import Measurement

TORCH_NN, PROJECTION, NXAI = "torch.nn", "projection", "nxai"


@dataclass
class Entry:
    """Times of one contender in one dtype."""

    dtype: str
    name: str
    times: dict[str, Measurement] = field(default_factory=dict)
    outcome: str = "ok"
    runs_on: str = ""

    def ms(self, which: str) -> float:
        """Milliseconds, or infinity where it did not run."""
        return 1e3 * self.times[which].median_s if which in self.times else float("inf")


class Job(NamedTuple):
    """A layer, in which dtypes it is timed, and who is timed.

    Args:
        sizes: The layer.
        dtypes: Some of its dtypes.
        kinds: Some of `contenders.KINDS`.
        backends: Back-ends of `rnn`; all where there are none.
    """

    sizes: Sizes
    dtypes: tuple[str, ...]
    kinds: tuple[str, ...]
    backends: tuple[str, ...] = ()
