"""Constants of the kernels' cost models, read from JSON files that state the meaning and the source of each.

Those of the Triton kernels were measured on one device: `measured.json`. `held_against.json` has published times that
the models' times of products were held against; it comes from `python -m benchmarks.elsewhere --write`, which judges
shapes that no constant was fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.units import is_as_measured

FILE = Path(__file__).with_name("measured.json")
#: Published times, by GPU, type and class of size.
HELD_FILE = Path(__file__).with_name("library") / "held_against.json"


class MeasuredEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One constant.

    Args:
        value: The value.
        kernels: The kernels whose cost model uses it.
        what: Its meaning.
        source: Where the value comes from.
        why: Why another kernel's constant for the same thing differs; may be empty.
    """

    value: float
    kernels: str
    what: str
    source: str
    why: str


class MeasuredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    device: str
    note: str
    constants: dict[str, MeasuredEntry]


@dataclass(frozen=True)
class Measured:
    """The constants by name; units are suffixes, shares and factors have none."""

    launch_s: float
    latency_s: float
    wave_s: float
    load_bytes_per_clk: float
    line_bytes: float
    warpgroup_clk: float
    epilogue_bytes_per_clk: float
    subtile_epilogue: float
    hand_over_s: float
    hand_over_bytes_per_clk: float
    matrix_share: float
    fallback_share: float
    read_columns: float
    dram_share: float
    pointer_dram_share: float
    short_rows: float
    pack_s: float
    pack_share: float
    tma_split_sectors: float
    tma_split_lines: float
    pointer_split_sectors: float
    pointer_split_lines: float
    promoted_share: float
    split_clk: float
    across_clk: float
    split_finish_s: float
    split_read_s: float
    request_bytes: float


def read_measured(file: Path = FILE) -> Measured:
    """Read the constants of a file."""
    read = msgspec.json.decode(file.read_bytes(), type=MeasuredFile)
    return Measured(**{name: entry.value for name, entry in read.constants.items()})


MEASURED = read_measured()


class ConstantEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One constant.

    Args:
        value: The value in use.
        assumed: The value before any time was fitted.
        what: Its meaning, with its unit.
        source: Where the value comes from.
    """

    value: float
    assumed: float
    what: str
    source: str


class ConstantsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file; `measured` names the results that the values were fitted to and is empty before the first fit."""

    device: str
    measured: str
    note: str
    constants: dict[str, ConstantEntry]


Values = TypeVar("Values")


def read_constants(kind: type[Values], file: Path, *, assumed: bool = False) -> Values:
    """Read a file into a dataclass with the field `measured` and one field for each constant.

    Args:
        kind: The dataclass.
        file: The JSON file.
        assumed: Take the assumed values, from which a fit starts; `measured` is empty then.
    """
    read = msgspec.json.decode(file.read_bytes(), type=ConstantsFile)
    values = {name: entry.assumed if assumed else entry.value for name, entry in read.constants.items()}
    make: Callable[..., Values] = kind
    return make(measured="" if assumed else read.measured, **values)


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Predicted over published time of the products of one type and class of size.

    Args:
        dtype: Type of the operands.
        size: Class of size, by the published time.
        n: Number of products.
        median, low, high: Median, 10th and 90th percentile.
        source: Who published the times.
    """

    dtype: str
    size: str
    n: int
    median: float
    low: float
    high: float
    source: str


class HeldFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; `made_by` is the command that wrote it on `date`."""

    made_by: str
    date: str
    gpus: dict[str, tuple[Held, ...]]


@lru_cache(maxsize=1)
def held_file() -> HeldFile:
    """The file as it is shipped."""
    return msgspec.json.decode(HELD_FILE.read_bytes(), type=HeldFile)


def held_of(gpu: GpuModel) -> tuple[Held, ...]:
    """The rows of a GPU; none for a model with other figures than those of its name."""
    return held_file().gpus.get(gpu.name, ()) if is_as_measured(gpu) else ()


def sentence(gpu: GpuModel, dtype: str) -> str:
    """One sentence: the published times of a type and GPU beside the modelled ones, or that there are none."""
    rows = [row for row in held_of(gpu) if row.dtype == dtype]
    if not rows:
        return f"modelled times of {dtype} products were held against nothing on {gpu.name}: nobody published any"
    shown = ", ".join(f"{row.median:.2f} ({row.low:.2f} to {row.high:.2f}; n {row.n}) for {row.size}" for row in rows)
    whose = " and ".join(dict.fromkeys(row.source for row in rows))
    return (
        f"modelled times of {dtype} products over those measured elsewhere, in the median (eight in ten): {shown}; "
        f"published by {whose}; held against them on {held_file().date}"
    )
