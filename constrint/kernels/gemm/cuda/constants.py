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
    cluster_s: float
    latency_s: float
    matrix_share: float
    instruction_read_clk: float
    column_read_clk: float
    step_clk: float
    instruction_clk: float
    cluster_step_clk: float
    port_bytes_per_clk: float
    l2_bytes_per_clk: float
    straddle_share: float
    tile_clk: float
    box_clk: float
    odd_clk: float
    partial_share: float
    hand_over_s: float
    hand_over_bytes_per_clk: float
    sum_turn_s: float
    dram_share: float
    result_share: float
    boundary_bytes: float
    kept_share: float


def read_constants(file: Path = FILE, *, assumed: bool = False) -> Constants:
    """Read the constants of a file, or what was assumed for them: where a fit begins."""
    measured, values = read_values(file, assumed=assumed)
    return Constants(measured, **values)


CONSTANTS = read_constants()
ASSUMED = read_constants(assumed=True)
