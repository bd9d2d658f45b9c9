"""The constants of gathering in the cost model; `constants.json` says what each is, and whether it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from constrint.kernels.gemm.constants_file import read_values

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class Constants:
    """The constants by name; units are suffixes. `measured` is the file's."""

    measured: str
    block_clk: float
    turn_clk: float
    smem_bytes_per_clk: float
    copy_s: float
    odd_box_clk: float


def read_constants(file: Path = FILE, *, assumed: bool = False) -> Constants:
    """Read the constants of a file, or what was assumed for them: where a fit begins."""
    measured, values = read_values(file, assumed=assumed)
    return Constants(measured, **values)


CONSTANTS = read_constants()
ASSUMED = read_constants(assumed=True)
