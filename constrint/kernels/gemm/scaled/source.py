"""The source of a configuration: macros, and the matrix instruction of its width as text. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from constrint.kernels.gemm.cuda.source import wgmma
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.scaled.shape import clusters_of, columns_of
from constrint.kernels.launch.cuda.nvrtc import CudaSource

#: Folders of the sources: its own, that of the walk over tiles, and that of Hopper's instructions and the epilogue.
FOLDERS = tuple(Path(__file__).parents[1] / name / "source" for name in ("scaled", "fp32", "cuda"))
SHARED = ("tiles.cuh", "instructions.cuh", "epilogue.cuh")
#: DTYPE of `instructions.cuh`.
FP8 = 3


def source_of(config: Mapping[str, int], ends: CompiledEpilogue, *, in_blocks: bool, splits: bool) -> CudaSource:
    """Return the source of a configuration.

    Args:
        config: Its parameters.
        ends: Types of the result and of the bias.
        in_blocks: Whether scales are those of blocks of 128.
        splits: Whether tiles are split along K.
    """
    shape = config["consumers"], int(columns_of(config)), config["num_stages"], config["turned"], *clusters_of(config)
    return _source_of(shape, ends, in_blocks, splits)


@lru_cache(maxsize=1024)
def _source_of(shape: tuple[int, ...], ends: CompiledEpilogue, in_blocks: bool, splits: bool) -> CudaSource:
    names = "CONSUMERS", "COLUMNS", "STAGES", "TURNED", "CLUSTER_ROWS", "CLUSTER_COLUMNS"
    macros = dict(zip(names, map(int, shape), strict=True))
    columns = macros["COLUMNS"]
    macros |= {"RESIDENT": 1, "BLOCKS": int(in_blocks), "SPLITS": int(splits), "DTYPE": FP8, **ends.macros}
    text = wgmma(columns, "fp8", rows_k_major=True, columns_k_major=True)
    return CudaSource(
        text + _kernel(), "scaled_gemm", macros, ("-std=c++17",), FOLDERS, "scaled_gemm.cu", is_settled=True
    )


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")
