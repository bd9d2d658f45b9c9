"""The factored form of a space: how positions become assignments, and the independent parts that multiply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.axes import Layout
from constrint.solve.space.listing import multiply_out
from constrint.solve.space.parts import Part
from constrint.solve.space.row_keys import Rows, check_listing


@dataclass
class Factors:
    """What a search space is made of.

    `parts` is None where there is no solution, and empty where every variable is fixed.
    """

    layout: Layout
    parts: tuple[Part, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        """Variables in declared order."""
        return self.layout.names

    @property
    def total(self) -> int:
        """Number of solutions."""
        return 0 if self.parts is None else math.prod(p.count for p in self.parts)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every solution in index order, one column per variable in the smallest signed dtype."""
        if self.parts is None:
            return {n: np.zeros(0, dtype=np.int8) for n in self.names}
        total = self.total
        check_listing(total, sum(self.layout.itemsize(n) for n in self.names))
        columns: Rows = {}
        outer, inner = 1, total
        for part in self.parts:
            inner //= max(part.count, 1)
            values = {n: self.layout.narrow_values(n) for n in part.names}
            for name, column in part.expand(values).items():
                columns[name] = multiply_out(column, outer, inner)
            outer *= part.count
        return self.layout.completed(columns, total)
