"""How configurations share a table's columns: tile sizes joined in one, what is the same in all rows said below.

Configurations of different kernels have different parameters: the columns are those of all, and a row has no value
for what its kernel lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from constrint.cli.output import EXTRA, Cell, Column
from constrint.select import Candidate
from constrint.select.rank import KernelProblem

#: Parameters whose names begin so are one column of a table.
TILE = "tile"


class ConfigColumns:
    """The columns of some configurations: their kernel, and every parameter that one of them has.

    Attributes:
        columns: The columns, from left to right.
        kernels: Full names of the kernels that they are of.
    """

    def __init__(
        self, rows: Sequence[Candidate], requests: Iterable[KernelProblem], taken: Collection[str] = ()
    ) -> None:
        """The columns for these rows, with the titles and meanings that the kernels give their parameters.

        Args:
            rows: The configurations.
            requests: What was asked of each kernel.
            taken: Keys of the table's other columns; a parameter of such a name gets the key `config.NAME`.
        """
        self.kernels = {row.kernel for row in rows}
        self._names = list(dict.fromkeys(name for row in rows for name in row.config))
        self._params = {p.name: p for request in requests for p in request.spec.params(request.gpu, request.workload)}
        self._taken = {"kernel", *taken}
        kernel = Column("kernel", is_text=True, importance=95 if len(self.kernels) > 1 else EXTRA)
        tiles = [name for name in self._names if name.startswith(f"{TILE}_")]
        self._names = [*tiles, *(name for name in self._names if name not in tiles)]
        self.columns = (kernel, *map(self._column, self._names))

    def _column(self, name: str) -> Column:
        param = self._params.get(name)
        title, meaning = (param.title, param.meaning) if param is not None else ("", "")
        key = f"config.{name}" if name in self._taken else name
        if name.startswith(f"{TILE}_"):
            return Column(key, name.removeprefix(f"{TILE}_"), "", meaning, importance=95, joined=TILE)
        return Column(key, title or name, name if title else "", meaning, importance=90, is_shared=True)

    def cells(self, row: Candidate) -> list[Any]:
        """One row's cells; None for a parameter that its kernel lacks."""
        return [Cell(row.kernel, row.kernel.rpartition(".")[2]), *(row.config.get(name) for name in self._names)]


def named_values(values: Mapping[str, Any]) -> str:
    """`tile_m=128 num_warps=4`."""
    return " ".join(f"{name}={value}" for name, value in values.items())
