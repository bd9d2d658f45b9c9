"""Published times that the models' times of products were held against, by GPU, type and class of size.

`held_against.json` comes from `python -m benchmarks.elsewhere --write`, which judges shapes that no constant was fitted
to.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.library.cost import is_as_measured

FILE = Path(__file__).with_name("held_against.json")


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
    return msgspec.json.decode(FILE.read_bytes(), type=HeldFile)


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
