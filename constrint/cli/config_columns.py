"""How configurations share a table's columns: tile sizes in one, what is the same in all rows below, short titles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constrint.select.spec import Config

SHORT = {
    "num_warps": "w",
    "num_stages": "st",
    "split_k": "sk",
    "group_m": "gm",
    "persistent": "p",
    "descriptor": "d",
    "epilogue_subtile": "es",
    "producer": "pw",
    "matrix_instr_nonkdim": "mi",
    "xcd_chunk": "xcd",
    "waves_per_eu": "eu",
    "kpack": "kp",
}


@dataclass(frozen=True)
class ConfigColumns:
    """The columns that tell some configurations of one kernel apart.

    Args:
        title: Title of the column of tile sizes, `tile mxnxk`; empty where there are none.
        tiles: The parameters in that column.
        others: The parameters that have columns of their own.
        same: Values of the parameters with the same value everywhere; none where there is a single configuration.
    """

    title: str
    tiles: tuple[str, ...]
    others: tuple[str, ...]
    same: dict[str, int]

    @staticmethod
    def of(configs: Sequence[Config]) -> ConfigColumns:
        """The columns for these configurations, at least one."""
        first = configs[0]
        same = {
            name: value
            for name, value in first.items()
            if len(configs) > 1 and not name.startswith("tile_") and all(c[name] == value for c in configs)
        }
        tiles = tuple(name for name in first if name.startswith("tile_"))
        title = "tile " + "x".join(tile.removeprefix("tile_") for tile in tiles) if tiles else ""
        others = tuple(name for name in first if name not in same and name not in tiles)
        return ConfigColumns(title, tiles, others, same)

    @property
    def titles(self) -> list[str]:
        """Titles from left to right."""
        return [*([self.title] if self.title else []), *(SHORT.get(name, name) for name in self.others)]

    @property
    def legend(self) -> dict[str, str]:
        """What the short titles stand for."""
        return {SHORT[name]: name for name in self.others if name in SHORT}

    def cells(self, config: Config) -> list[object]:
        """One configuration's cells."""
        tile: list[object] = ["x".join(str(config[name]) for name in self.tiles)] if self.title else []
        return [*tile, *(config[name] for name in self.others)]

    def same_text(self) -> str:
        """The line below the table, or nothing."""
        if not self.same:
            return ""
        return "the same in all rows: " + " ".join(f"{name}={value}" for name, value in self.same.items())
