"""The source of a configuration, as it is compiled: macros, and the matrix instruction of its width. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from constrint.kernels.gemm.cuda.instruction import TYPES, wgmma
from constrint.kernels.gemm.cuda.shape import Shape, promotes
from constrint.kernels.gemm.epilogue.ends import Ends
from constrint.kernels.launch.cuda.nvrtc import CudaSource

FOLDER = Path(__file__).with_name("source")


@dataclass(frozen=True)
class Operands:
    """What a kernel is compiled to multiply.

    Args:
        dtype: Of A and B.
        a_is_k_major, b_is_k_major: Whether they are contiguous along K.
    """

    dtype: str
    a_is_k_major: bool
    b_is_k_major: bool


#: Parameters that are compiled in, and those of them whose macros have other names.
COMPILED = ("num_stages", "consumers", "by_columns", "in_turns", "turned")
MACROS = {"num_stages": "STAGES", "by_columns": "CONSUMERS_BY_COLUMNS"}


def source_of(config: Mapping[str, int], operands: Operands, ends: Ends, *, splits: bool) -> CudaSource:
    """The source of a configuration; how tiles are dealt out is told at the launch, but for whether any is split."""
    names = ("tile_m", "tile_n", "cluster_m", "cluster_n", *COMPILED)
    return _source_of(tuple((name, int(config[name])) for name in names), operands, ends, splits)


@lru_cache(maxsize=1024)
def _source_of(config: tuple[tuple[str, int], ...], operands: Operands, ends: Ends, splits: bool) -> CudaSource:
    values = dict(config)
    shape, dtype = Shape.of(values), operands.dtype
    majors = operands.a_is_k_major, operands.b_is_k_major
    rows_k_major, columns_k_major = majors[::-1] if values["turned"] else majors
    macros = {MACROS.get(name, name.upper()): values[name] for name in COMPILED}
    macros |= {"ROWS": shape.rows, "COLUMNS": shape.columns}
    macros |= {"CLUSTER_ROWS": shape.cluster_rows, "CLUSTER_COLUMNS": shape.cluster_columns, "RESIDENT": 1}
    macros |= {"DTYPE": list(TYPES).index(dtype), "PROMOTES": int(promotes(dtype))}
    macros |= {"ROWS_K_MAJOR": int(rows_k_major), "COLUMNS_K_MAJOR": int(columns_k_major)}
    macros |= ends.macros
    macros |= {"SPLITS": int(splits), "STORES_BOXES": int(ends.in_boxes), "BUFFERS": ends.buffers}
    text = wgmma(shape.own_columns, dtype, rows_k_major=rows_k_major, columns_k_major=columns_k_major)
    return joined(text + _kernel(), macros, (FOLDER,), "gemm.cu")


def joined(text: str, macros: Mapping[str, int], folders: tuple[Path, ...], name: str) -> CudaSource:
    """A source of the kernels that share `parts.cuh`; where tiles are split there is a kernel that spares registers."""
    whole, sparing = {**macros, "SPARES": 0}, {"SPARES": 1} if macros["SPLITS"] else {}
    return CudaSource(text, "gemm", whole, ("-std=c++17",), folders, name, is_settled=True, sparing=sparing)


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDER / "kernel.cu").read_text(encoding="utf-8")
