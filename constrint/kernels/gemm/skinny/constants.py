"""The constants of the cost model; `constants.json` says what each is, and whether it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from constrint.kernels.gemm.constants_file import read_values

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class Constants:
    """The constants by name; units are suffixes, shares have none. `measured` is the file's."""

    measured: str
    launch_s: float
    latency_s: float
    dram_share: float
    ramp_share: float
    shifted_share: float
    sm_bytes_per_clk: float
    l2_share: float
    l1_bytes_per_clk: float
    fma_share: float
    end_s: float
    turn_s: float
    part_s: float
    part_bytes_per_clk: float
    round_s: float


def read_constants(file: Path = FILE, *, assumed: bool = False) -> Constants:
    """Read the constants of a file, or what was assumed for them: where a fit begins."""
    measured, values = read_values(file, assumed=assumed)
    return Constants(measured, **values)


CONSTANTS = read_constants()
ASSUMED = read_constants(assumed=True)
