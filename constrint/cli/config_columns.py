"""How configurations share a table's columns: tile sizes in one, what is the same in all rows below, short titles.

Configurations of different kernels have different parameters: the columns are those of all, and `-` stands for what
a kernel lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrint.select import Candidate, Param
    from constrint.select.rank import Request


@dataclass(frozen=True)
class ConfigColumns:
    """The columns that tell some configurations apart.

    Args:
        kernel: Title of the column that names the kernel; empty where all rows have the same.
        tile: Title of the column of tile sizes, `tile mxnxk`; empty where there are none.
        tiles: The parameters in that column.
        others: The parameters that have columns of their own.
        same: Values of the parameters with the same value in all rows that have them; none where there is one row.
        short: Titles of parameters that are shorter than their names.
        rows: The rows that are told apart.
    """

    kernel: str
    tile: str
    tiles: tuple[str, ...]
    others: tuple[str, ...]
    same: Mapping[str, int]
    short: Mapping[str, str]
    rows: Sequence[Candidate]

    @staticmethod
    def of(rows: Sequence[Candidate], requests: Iterable[Request]) -> ConfigColumns:
        """The columns for these rows, at least one, with the titles that the kernels give their parameters."""
        short = {p.name: p.title for p in params_of(requests) if p.title}
        values: dict[str, set[int]] = {}
        for row in rows:
            for name, value in row.config.items():
                values.setdefault(name, set()).add(value)
        tiles = tuple(name for name in values if name.startswith("tile_"))
        others = tuple(n for n in values if n not in tiles and (len(values[n]) > 1 or len(rows) == 1))
        same = {name: next(iter(values[name])) for name in values if name not in (*tiles, *others)}
        tile = "tile " + "x".join(name.removeprefix("tile_") for name in tiles) if tiles else ""
        kernel = "kernel" if len({row.kernel for row in rows}) > 1 else ""
        return ConfigColumns(kernel, tile, tiles, others, same, short, rows)

    @property
    def titles(self) -> list[str]:
        """Titles from left to right."""
        return [*filter(None, (self.kernel, self.tile)), *(self.short.get(name, name) for name in self.others)]

    @property
    def text(self) -> tuple[str, ...]:
        """Titles of the columns that hold no plain numbers."""
        return tuple(filter(None, (self.kernel, self.tile)))

    @property
    def legend(self) -> dict[str, str]:
        """What the short titles stand for."""
        return {self.short[name]: name for name in self.others if name in self.short}

    def cells(self, row: Candidate) -> list[object]:
        """One row's cells."""
        kernel: list[object] = [short_name(row.kernel)] if self.kernel else []
        sizes = [str(row.config[name]) for name in self.tiles if name in row.config]
        tile: list[object] = ["x".join(sizes) or None] if self.tile else []
        return [*kernel, *tile, *(row.config.get(name) for name in self.others)]

    def same_text(self) -> str:
        """The line below the table, or nothing."""
        if not self.same:
            return ""
        everywhere = all(name in row.config for name in self.same for row in self.rows)
        which = "in all rows" if everywhere else "in all rows that have it"
        return f"the same {which}: {named_values(self.same)}"


def params_of(requests: Iterable[Request]) -> list[Param]:
    """The parameters of all kernels."""
    return [param for r in requests for param in r.spec.params(r.gpu, r.workload)]


def short_name(kernel: str) -> str:
    """A kernel's name without its operation's: `pointer`."""
    return kernel.rpartition(".")[2]


def named_values(values: Mapping[str, int]) -> str:
    """`tile_m=128 num_warps=4`."""
    return " ".join(f"{name}={value}" for name, value in values.items())
