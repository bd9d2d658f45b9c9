"""The constants of the cost model; `constants.json` says what each is, and whether it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from constrint.kernels.gemm.constants_file import ConstantsFile

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
    read = msgspec.json.decode(file.read_bytes(), type=ConstantsFile)
    values = {name: entry.assumed if assumed else entry.value for name, entry in read.constants.items()}
    return Constants("" if assumed else read.measured, **values)


CONSTANTS = read_constants()
ASSUMED = read_constants(assumed=True)
