"""Sources of the CUDA C++ kernels of `spmv`, by their macros. No torch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from constrint.kernels.launch.cuda.nvrtc import CudaSource

FOLDER = Path(__file__).with_name("source")
#: The order is that of VALUE in the source.
DTYPES = ("fp64", "fp32", "bf16", "fp16")
#: Functions of the source by their KERNEL.
FUNCTIONS = ("spmv", "spmv_long")


@lru_cache(maxsize=1024)
def source_of(
    dtype: str,
    threads: int,
    tile: int,
    *,
    function: str = "spmv",
    resident: int = 1,
    vector: int = 4,
    is_long: bool = False,
    has_source: bool = False,
    is_unit: bool = False,
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
        vector: Entries of a vector; 1 where arrays are not aligned to vectors.
        is_long: Whether rows are shared by tiles.
        has_source: Whether beta * source is added.
        is_unit: Whether all values are 1, and x has the type of sums.
        by_rows: Whether x is read as rows need it; else products are made in the order of the entries.
        stages: Tiles in shared memory.
        batch: Entries of a row that a thread loads x for before it adds them.
        steps: Entries of a row for each thread of its group, about.
    """
    macros = {"KERNEL": FUNCTIONS.index(function), "VALUE": DTYPES.index(dtype), "THREADS": threads, "TILE": tile}
    macros |= {"RESIDENT": resident, "VECTOR": vector, "LONG": int(is_long)}
    macros |= {"HAS_SOURCE": int(has_source), "UNIT": int(is_unit), "BY_ROWS": int(by_rows)}
    macros |= {"STAGES": stages, "BATCH": batch, "STEPS": steps}
    return CudaSource(_text("kernel.cu"), function, macros, ("-std=c++17",), (FOLDER,), "spmv.cu", is_settled=True)


@lru_cache(maxsize=256)
def runs_source_of(dtype: str, num_warps: int, entries_per_lane: int) -> CudaSource:
    """The source of the kernel that adds runs of entries of panels."""
    macros = {"VALUE": DTYPES.index(dtype), "WARPS": num_warps, "EACH": entries_per_lane}
    text = _text("panels.cu")
    return CudaSource(text, "spmv_runs", macros, ("-std=c++17",), (FOLDER,), "spmv_runs.cu", is_settled=True)


#: Distances that a thread holds, at most.
MOST_HELD = 12


@lru_cache(maxsize=256)
def patterns_source_of(
    dtype: str,
    num_warps: int,
    *,
    stages: int,
    resident: int,
    length: int,
    batch: int,
    vector: int = 4,
    period: int = 0,
    has_source: bool = False,
) -> CudaSource:
    """The source of the kernel for rows of few patterns.

    Args:
        dtype: Type of values, x and y.
        num_warps: Warps of a block.
        stages: Groups of rows whose values a warp holds.
        resident: Blocks that an SM is to hold.
        length: Entries of the main pattern.
        batch: Entries of a row that a thread loads x for at once.
        vector: Entries of a vector; 1 where values are not aligned to vectors.
        period: Elements of shared memory between gaps; 0: none.
        has_source: Whether beta * source is added.
    """
    macros = {"VALUE": DTYPES.index(dtype), "WARPS": num_warps, "STAGES": stages, "RESIDENT": resident, "BATCH": batch}
    macros |= {"LENGTH": length, "HELD": int(length <= MOST_HELD), "PERIOD": period}
    macros |= {"VECTOR": vector, "HAS_SOURCE": int(has_source)}
    name, text = "spmv_patterns", _text("patterns.cu")
    return CudaSource(text, name, macros, ("-std=c++17",), (FOLDER,), "spmv_patterns.cu", is_settled=True)


@lru_cache(maxsize=3)
def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
