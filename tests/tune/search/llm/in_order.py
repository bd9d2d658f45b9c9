"""The cost model's order alone, as an order of configurations: nothing is learnt from times."""

from __future__ import annotations

from copy import copy

import numpy as np

from constrint.select.candidates import Candidates, Rows
from constrint.select.rank import tie_steps
from constrint.tune.search.interface import Proposal

#: Configurations of the whole space that are ordered at once.
HEAD = 4096


class InOrder:
    """Configurations by predicted time, ties by preference; each once."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        places, rows = candidates.best(HEAD)
        self._head = list(zip(places.tolist(), rows.tolist(), strict=True))
        self._proposed: set[tuple[int, int]] = set()

    def fresh(self) -> InOrder:
        """The same order with nothing proposed."""
        order = copy(self)
        order._proposed = set()
        return order

    def peek(self, number: int) -> list[Proposal]:
        fresh = (key for key in self._head if key not in self._proposed)
        return [self._proposal(*key) for key, _ in zip(fresh, range(number), strict=False)]

    def expected(self, number: int) -> list[Proposal]:
        return self.peek(number)

    def ask_among(self, kernel: str, rows: Rows, number: int) -> list[Proposal]:
        place = self._candidates.by_name[kernel]
        ordered = rows[np.argsort(tie_steps(self._candidates.kernels[place].seconds[rows]), kind="stable")]
        keys = ((place, int(row)) for row in ordered)
        fresh = [key for key, _ in zip((k for k in keys if k not in self._proposed), range(number), strict=False)]
        self._proposed.update(fresh)
        return [self._proposal(*key) for key in fresh]

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        place = self._candidates.by_name[proposal.kernel]
        row = self._candidates.kernels[place].find(proposal.config)
        if row is not None:
            self._proposed.add((place, row))

    def _proposal(self, place: int, row: int) -> Proposal:
        kernel = self._candidates.kernels[place]
        return Proposal(kernel.spec.full_name, kernel.config(row), float(kernel.seconds[row]))
