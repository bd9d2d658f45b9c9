"""Random search: every valid configuration of every kernel is as likely to be the next as any other."""

from __future__ import annotations

import numpy as np

from constrint.select.candidates import Candidates
from constrint.tune.search.interface import Proposal, SearchTask


class RandomSearch:
    """Draws configurations uniformly, none of them twice.

    Args:
        task: The workload and the GPU.
        candidates: The valid configurations.
    """

    def __init__(self, task: SearchTask, candidates: Candidates) -> None:
        self.candidates = candidates
        self._generator = np.random.default_rng(task.seed)
        self._proposed: set[int] = set()

    def ask(self, number: int) -> list[Proposal]:
        """Up to `number` configurations not proposed before."""
        drawn: list[int] = []
        while len(drawn) < number and len(self._proposed) < self.candidates.size:
            index = self._draw()
            self._proposed.add(index)
            drawn.append(index)
        return [Proposal(*self.candidates.at(index), because="random") for index in drawn]

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """Learn nothing from the time; a proposal of another search is not drawn any more."""
        index = self.candidates.number(proposal.kernel, proposal.config)
        if index is not None:
            self._proposed.add(index)

    def _draw(self) -> int:
        """The number of a configuration not proposed before."""
        size = self.candidates.size
        for _ in range(16):
            index = int(self._generator.integers(0, min(size, 2**62)))
            if index not in self._proposed:
                return index
        # Nearly all were proposed: take the next free one.
        while index in self._proposed:
            index = (index + 1) % size
        return index
