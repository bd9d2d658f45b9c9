"""Sources of the CUDA C++ kernels of `spmv`, by their macros. No torch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from constrint.kernels.launch.cuda.nvrtc import CudaSource

FOLDER = Path(__file__).with_name("source")
#: The order is that of VALUE in the source.
DTYPES = ("fp64", "fp32", "bf16", "fp16")
#: Functions of the source by their KERNEL.
FUNCTIONS = ("spmv", "spmv_long", "spmv_panels")


@lru_cache(maxsize=1024)
def source_of(
    dtype: str,
    threads: int,
    tile: int,
    *,
    function: str = "spmv",
    resident: int = 1,
    unroll: int = 2,
    vector: int = 4,
    teams: int = 1,
    is_long: bool = False,
    has_source: bool = False,
    is_panels: bool = False,
    by_rows: bool = False,
    stages: int = 2,
    batch: int = 8,
    steps: int = 8,
) -> CudaSource:
    """The source of one kernel.

    Args:
        dtype: Type of values, x and y.
        threads: Threads that share a tile.
        tile: Items of a tile.
        function: One of `FUNCTIONS`.
        resident: Blocks that an SM is to hold.
        unroll: Vectors of entries that a thread loads before it multiplies.
        vector: Entries of a vector; 1 where arrays are not aligned to vectors.
        teams: Groups of `threads` threads in a block, each with tiles of its own.
        is_long: Whether rows are shared by tiles.
        has_source: Whether beta * source is added.
        is_panels: Whether entries are sorted by panel of columns.
        by_rows: Whether x is read as rows need it; else products are made in the order of the entries.
        stages: Tiles in shared memory.
        batch: Entries of a row that a thread loads x for before it adds them.
        steps: Entries of a row for each thread of its group, about.
    """
    macros = {"KERNEL": FUNCTIONS.index(function), "VALUE": DTYPES.index(dtype), "THREADS": threads, "TILE": tile}
    macros |= {"RESIDENT": resident, "UNROLL": unroll, "VECTOR": vector, "TEAMS": teams, "LONG": int(is_long)}
    macros |= {"HAS_SOURCE": int(has_source), "PANELS": int(is_panels), "BY_ROWS": int(by_rows)}
    macros |= {"STAGES": stages, "BATCH": batch, "STEPS": steps}
    return CudaSource(_text(), function, macros, ("-std=c++17",), (FOLDER,), "spmv.cu", is_settled=True)


@lru_cache(maxsize=1)
def _text() -> str:
    return (FOLDER / "kernel.cu").read_text(encoding="utf-8")
