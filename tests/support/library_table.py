"""Tables of torch's own product that were made up: a share of the floor, everywhere in a range of sizes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from constrint.choose import forget
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.library import candidates, cost, estimate
from constrint.kernels.gemm.library.cost import COLUMNS, floor_s, place_of, place_of_row
from constrint.kernels.gemm.product import Product
from tests.support.decisions import begin_anew

SIDES = (64, 256, 1024, 4096)


def write_table(
    folder: Path,
    gpu: GpuModel,
    share: float,
    *,
    dtypes: Iterable[str] = ("bf16",),
    layouts: Iterable[str] = ("rr",),
    ends: Iterable[str] = ("plain",),
    batches: Iterable[int] = (1,),
    sides: Iterable[int] = SIDES,
) -> None:
    """Write a table whose times are the smooth floor over a share."""
    lines = ["# made up", ",".join(COLUMNS)]
    sides = tuple(sides)
    for dtype, layout, end, batch, m, n, k in product(dtypes, layouts, ends, batches, sides, sides, sides):
        row = {"dtype": dtype, "layout": layout, "end": end}
        row |= {name: str(size) for name, size in (("batch", batch), ("m", m), ("n", n), ("k", k), ("gap", 0))}
        seconds = floor_s(gpu, place_of_row(row)) / share
        lines.append(",".join([*row.values(), f"{1e6 * seconds:.6f}", "0", "ok"]))
    read_anew()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{gpu.name.lower()}.csv").write_text("\n".join(lines) + "\n")


def read_anew() -> None:
    """Let tables be read anew, and be looked for."""
    cost.measured.cache_clear()
    cost.answering.cache_clear()


def smooth_s(gpu: GpuModel, asked: Product) -> float:
    """The floor of a product."""
    return floor_s(gpu, place_of(asked))


def use_tables_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read tables of a folder, and choose anew, by the device's times alone; the caller forgets afterwards."""
    monkeypatch.setattr(cost, "MEASURED", folder)
    monkeypatch.setattr(cost, "ELSEWHERE", folder / "elsewhere")
    begin_anew(monkeypatch)
    for host_s in ("OUR_HOST_S", "LIBRARY_HOST_S", "DIRECT_HOST_S"):
        monkeypatch.setattr(candidates, host_s, 0.0)
    forget_tables()


def forget_tables() -> None:
    """Let tables be read, and choices be made anew."""
    read_anew()
    candidates.error_of.cache_clear()
    estimate.slowdown_of.cache_clear()
    estimate.ratios_of.cache_clear()
    forget()
