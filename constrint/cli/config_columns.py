"""How configurations share a table's columns: tile sizes in one, what is the same in all rows below, short titles.

Configurations of different kernels have different parameters: the columns are those of all, and `-` stands for what
a kernel lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from constrint.select import Candidate
from constrint.select.rank import Request


class ConfigColumns:
    """The columns that tell some configurations apart.

    Attributes:
        kernel: Title of the column that names the kernel; empty where all rows have the same.
        tile: Title of the column of tile sizes, `tile mxnxk`; empty where there are none.
        others: The parameters that have columns of their own.
        same: Values of the parameters with the same value in all rows that have them; none where there is one row.
        short: Titles of parameters that are shorter than their names.
    """

    def __init__(self, rows: Sequence[Candidate], requests: Iterable[Request]) -> None:
        """The columns for these rows, at least one, with the titles that the kernels give their parameters."""
        self.short = {p.name: p.title for r in requests for p in r.spec.params(r.gpu, r.workload) if p.title}
        values: dict[str, set[int]] = {}
        for row in rows:
            for name, value in row.config.items():
                values.setdefault(name, set()).add(value)
        self._rows, self._tiles = rows, [name for name in values if name.startswith("tile_")]
        self.others = [n for n in values if n not in self._tiles and (len(values[n]) > 1 or len(rows) == 1)]
        self.same = {n: min(values[n]) for n in values if n not in (*self._tiles, *self.others)}
        self.tile = "tile " + "x".join(name.removeprefix("tile_") for name in self._tiles) if self._tiles else ""
        self.kernel = "kernel" if len({row.kernel for row in rows}) > 1 else ""

    @property
    def titles(self) -> list[str]:
        """Titles from left to right."""
        return [*self.text, *(self.short.get(name, name) for name in self.others)]

    @property
    def text(self) -> list[str]:
        """Titles of the columns that hold no plain numbers."""
        return [title for title in (self.kernel, self.tile) if title]

    @property
    def legend(self) -> dict[str, str]:
        """What the short titles stand for."""
        return {self.short[name]: name for name in self.others if name in self.short}

    def cells(self, row: Candidate) -> list[object]:
        """One row's cells."""
        kernel: list[object] = [row.kernel.rpartition(".")[2]] if self.kernel else []
        sizes = [str(row.config[name]) for name in self._tiles if name in row.config]
        tile: list[object] = ["x".join(sizes) or None] if self.tile else []
        return [*kernel, *tile, *(row.config.get(name) for name in self.others)]

    def same_text(self) -> str:
        """The line below the table, or nothing."""
        if not self.same:
            return ""
        everywhere = all(name in row.config for name in self.same for row in self._rows)
        which = "in all rows" if everywhere else "in all rows that have it"
        return f"the same {which}: {named_values(self.same)}"


def named_values(values: Mapping[str, int]) -> str:
    """`tile_m=128 num_warps=4`."""
    return " ".join(f"{name}={value}" for name, value in values.items())
