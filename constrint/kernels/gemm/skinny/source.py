"""The source of a configuration: macros of its tile, layout and epilogue. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.skinny.shape import SkinnyLayout, SkinnyTile
from constrint.kernels.launch.cuda.nvrtc import CudaSource

#: Folders of the sources: its own, and that of the epilogue which the kernels in CUDA C++ share.
FOLDERS = (Path(__file__).with_name("source"), Path(__file__).parents[1] / "cuda" / "source")
SHARED = ("epilogue.cuh",)
#: The order is that of DTYPE in the source; fp32 operands are multiplied as they are.
DTYPES = ("fp16", "bf16", "tf32", "fp8", "int8")
#: Parameters that are compiled in; the schedule of tiles is an argument of the launch.
COMPILED = ("tile_m", "tile_n", "tile_k", "num_warps", "warps_k", "mma", "resident", "turned", "num_stages", "fan_in")


def source_of(
    config: Mapping[str, int], dtype: str, layout: SkinnyLayout, ends: CompiledEpilogue, *, batched: bool = False
) -> CudaSource:
    """Return the source of a configuration for a layout and an epilogue, for one product or for a batch."""
    return _source_of(tuple((name, int(config[name])) for name in COMPILED), dtype, layout, ends, batched)


def shape_of(config: Mapping[str, int], dtype: str, layout: SkinnyLayout) -> SkinnyTile:
    """Return the tile of a configuration for a layout."""
    return SkinnyTile.of(config, dtype, a_is_k_major=layout.is_k_major, b_is_k_major=layout.is_k_major)


@lru_cache(maxsize=1024)
def _source_of(
    config: tuple[tuple[str, int], ...], dtype: str, layout: SkinnyLayout, ends: CompiledEpilogue, batched: bool
) -> CudaSource:
    values = dict(config)
    shape = shape_of(values, dtype, layout)
    macros = {"TILES": shape.tiles, "UNROLL": shape.unroll, "SMALL": shape.small, "WARPS_ROWS": shape.warps_rows}
    macros |= {"WARPS_DEPTH": shape.warps_k, "MMA": values["mma"], "RESIDENT": values["resident"]}
    macros |= {"DTYPE": DTYPES.index(dtype), "K_MAJOR": int(layout.is_k_major), "TURNED": values["turned"]}
    macros |= {"STAGES": values["num_stages"], "FAN_IN": values["fan_in"]}
    macros |= {"LARGE_MODE": layout.large, "SMALL_MODE": layout.small}
    macros |= ends.macros
    macros |= {"BATCHED": 1} if batched else {}
    macros |= {"RAGGED": layout.ragged} if layout.ragged else {}
    return CudaSource(_kernel(), "skinny", macros, ("-std=c++17",), FOLDERS, "skinny.cu", is_settled=True)


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")
