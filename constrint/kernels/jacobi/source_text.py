"""The source of sweeps in CUDA C++ for a configuration and a star: macros. No torch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from constrint.kernels.jacobi.shape import SweepTile
from constrint.kernels.jacobi.star import PLACES, StarStencil
from constrint.kernels.launch.cuda.nvrtc import CudaSource

EXTRA: dict[str, int] = {}
FOLDER = Path(__file__).with_name("source")
#: The number of an element type in the source.
KINDS = {"fp32": 0, "fp64": 1, "fp16": 2, "bf16": 3}


def mask_of(star: StarStencil, axis: int | None) -> int:
    """Which offsets along an axis a star has, as bits in the order of `PLACES`; 0 without the axis."""
    if axis is None:
        return 0
    along = star.along(axis)
    return sum(1 << place for place, offset in enumerate(PLACES) if offset in along)


def macros_of(tile: SweepTile, star: StarStencil) -> dict[str, int]:
    """The macros of a launch of a tile."""
    masks = mask_of(star, 0), mask_of(star, 1 if tile.is_3d else None), mask_of(star, star.axes - 1)
    return {
        "DIMS": star.axes,
        "KIND": KINDS[tile.dtype],
        "STEPS": int(tile.steps),
        "VECTOR": int(tile.vector),
        "ROWS": int(tile.rows),
        "LANES": int(tile.lanes),
        "THREADS": int(tile.threads),
        "DEPTH": int(tile.depth),
        "RS": tile.lag,
        **dict(zip(("BS", "BY", "BX"), tile.widths, strict=True)),
        **dict(zip(("MS", "MY", "MX"), masks, strict=True)),
        "CENTRE": int(star.centre is not None),
        "HAS_F": int(tile.has_f),
        "ALIGNED": int(tile.aligned),
        **EXTRA,
    }


@lru_cache(maxsize=1024)
def source_of(tile: SweepTile, star_key: StarStencil) -> CudaSource:
    """The source of a launch; stars that differ in factors alone have equal macros, and one binary."""
    return CudaSource(
        text=_text(),
        function="jacobi",
        macros=macros_of(tile, star_key),
        options=("-std=c++17",),
        folders=(FOLDER,),
        name="jacobi.cu",
        is_settled=True,
    )


@lru_cache(maxsize=1)
def _text() -> str:
    return (FOLDER / "kernel.cu").read_text(encoding="utf-8")


def coefficients_of(star: StarStencil, dtype: str) -> Any:
    """A star's factors as the source's `Coefficients`."""
    empty: dict[int, float] = {}
    middle = star.along(1) if star.axes == 3 else empty
    numbers = [by.get(offset, 0.0) for by in (star.along(0), middle, star.along(star.axes - 1)) for offset in PLACES]
    numbers += [star.centre or 0.0, star.right_side]
    packed: Any = np.void(np.array(numbers, np.float64 if dtype == "fp64" else np.float32).tobytes())
    return packed
