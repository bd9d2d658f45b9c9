"""The score of a candidate: 0 unless correct and honest, then the speed-up over plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from constrint.tune.search.llm.records import GateResult

#: The gates of source, in their order.
GATES = ("legal", "compiles", "right", "honest", "fast")


@dataclass(frozen=True)
class Examined:
    """The result of one candidate.

    Args:
        results: Results in the order of the gates; the last may be a failure.
        speed_up: Time of plain PyTorch over the candidate's, where both were timed.
        baseline_s: Time of plain PyTorch.
        is_interpreted: Whether Triton's interpreter ran it, on the CPU, rather than a GPU.
    """

    results: tuple[GateResult, ...]
    speed_up: float | None = None
    baseline_s: float | None = None
    is_interpreted: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether it is correct and honest, and no gate failed."""
        passed = [result.gate for result in self.results if result.passed]
        return "honest" in passed and len(passed) == len(self.results)

    @property
    def score(self) -> float | None:
        """0 where a gate refused it or none was reached, else the speed-up; None where it was not timed."""
        return 0.0 if self.refused_by or not self.results else self.speed_up

    @property
    def refused_by(self) -> str:
        """The failed gate; empty where all were passed."""
        return next((result.gate for result in self.results if not result.passed), "")

    @property
    def message(self) -> str:
        """Message of the last gate."""
        return self.results[-1].message if self.results else ""


def order(candidates: Sequence[Examined]) -> list[int]:
    """Places of the candidates, best first: sound ones by speed-up, then the others by the gates passed."""

    def key(place: int) -> tuple[bool, float, int]:
        one = candidates[place]
        return one.is_sound, one.score or 0.0, len(one.results)

    return sorted(range(len(candidates)), key=key, reverse=True)


def fast_p(candidates: Sequence[Examined], p: float) -> float:
    """The share of tasks whose candidate is right, honest and more than p times as fast as plain PyTorch.

    Args:
        candidates: One for each task of a list.
        p: The factor; at 0 it is the share of candidates that are right and honest, timed or not.
    """

    def counts(one: Examined) -> bool:
        return one.is_sound and (p <= 0 or (one.speed_up is not None and one.speed_up > p))

    return sum(map(counts, candidates)) / len(candidates) if candidates else math.nan
