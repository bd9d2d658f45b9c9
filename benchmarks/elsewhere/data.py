"""Times and configurations that others published, as rows. `data/README.md` says what they are and whose."""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from constrint.errors import UnknownNameError
from constrint.hwmodels import GpuModel, load_gpu

FOLDER = Path(__file__).parent / "data"
#: What was timed: the vendor's library, another kernel for the same product, a product whose time may include
#: quantising, or one with block scales, which no kernel of this package computes.
LIBRARY, KERNEL, QUANTISES, BLOCKS = "library", "kernel", "quantises", "blocks"
#: Halves of all shapes: models may be fitted to the first, the second judges them.
FITTED, JUDGING = "fitted", "judging"


class Time(NamedTuple):
    """A published time.

    Args:
        gpu: Name or alias of the GPU's model.
        dtype: Type of the operands; fp8_block has block scales.
        m, n, k: Sizes.
        transpose_b: 1 where B lies by columns.
        us: Microseconds.
        kernel: Who computed it: cuBLAS, hipBLASLt, asm, ck, flydsl, ...
        what: One of `LIBRARY`, `KERNEL`, `QUANTISES`, `BLOCKS`.
        source: Key of `sources()`.
        is_sampled: Whether it belongs to the sample that is judged by default.
    """

    gpu: str
    dtype: str
    m: int
    n: int
    k: int
    transpose_b: int
    us: float
    kernel: str
    what: str
    source: str
    is_sampled: bool

    @property
    def half(self) -> str:
        """The half of all shapes that it belongs to."""
        return half_of(self.m, self.n, self.k)


class Expert(NamedTuple):
    """A configuration that an expert found best for a product.

    Args:
        gpu, dtype, m, n, k: The product.
        set: The table that it stands in.
        us: Its time in microseconds; None where none is stated.
        config: Parameters by the names of `gemm.pointer`; those that the table does not state are absent.
    """

    gpu: str
    dtype: str
    m: int
    n: int
    k: int
    set: str
    us: float | None
    config: Mapping[str, int]


def half_of(m: int, n: int, k: int) -> str:
    """The half that a shape belongs to, whatever GPU and type: by a hash, so that nobody chooses."""
    return (FITTED, JUDGING)[hashlib.sha256(f"{m}x{n}x{k}".encode()).digest()[0] % 2]


def times() -> Iterator[Time]:
    """All published times."""
    for row in _rows("times.csv.gz"):
        m, n, k, transpose_b = (int(row[name]) for name in ("m", "n", "k", "transpose_b"))
        rest = row["kernel"], row["what"], row["source"], row["judged"] == "1"
        yield Time(row["gpu"], row["dtype"], m, n, k, transpose_b, float(row["us"]), *rest)


def best_times(*, all_of_them: bool = False) -> list[Time]:
    """The best published time of each product that a kernel of this package computes: the sample, or all."""
    best: dict[tuple[object, ...], Time] = {}
    sampled = set()
    for time in times():
        key = time[:6]
        if time.what == BLOCKS:
            continue
        if time.is_sampled:
            sampled.add(key)
        if key not in best or time.us < best[key].us:
            best[key] = time
    return [time for key, time in best.items() if all_of_them or key in sampled]


def experts() -> Iterator[Expert]:
    """All configurations of experts."""
    for row in _rows("experts.csv.gz"):
        m, n, k = (int(row.pop(name)) for name in ("m", "n", "k"))
        gpu, dtype, table, us = (row.pop(name) for name in ("gpu", "dtype", "set", "us"))
        config = {name: int(value) for name, value in row.items() if value}
        yield Expert(gpu, dtype, m, n, k, table, float(us) if us else None, config)


@functools.cache
def sources() -> dict[str, dict[str, Any]]:
    """Who published what under which licence, by the names that `Time.source` has."""
    read: dict[str, dict[str, Any]] = json.loads((FOLDER / "sources.json").read_bytes())
    return read


def model_of(gpu: str) -> GpuModel | None:
    """The model of a GPU that times were published of; None where there is none."""
    try:
        return load_gpu(gpu)
    except UnknownNameError:
        return None


def _rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(FOLDER / name, "rt", newline="") as file:
        yield from csv.DictReader(file)
