"""The source of a configuration: macros, and the matrix instruction of its width as text. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from constrint.kernels.gemm.cuda.shape import WgmmaTile, promotes
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.traced.text import ahead_of_kernel, behind_kernel
from constrint.kernels.gemm.units import ELEMENT_BYTES, needs_k_major
from constrint.kernels.launch.cuda.nvrtc import CudaSource

FOLDER = Path(__file__).with_name("source")
#: Parameters that are compiled in, and the macros whose names differ from theirs.
COMPILED = ("num_stages", "consumers", "by_columns", "in_turns", "turned")
MACROS = {"num_stages": "STAGES", "by_columns": "CONSUMERS_BY_COLUMNS"}
#: The operands' type in PTX, that of sums, and how a sum is constrained to a register.
TYPES = {
    "fp16": ("f16", "f32", "f"),
    "bf16": ("bf16", "f32", "f"),
    "tf32": ("tf32", "f32", "f"),
    "fp8": ("e4m3", "f32", "f"),
    "int8": ("s8", "s32", "r"),
}


@dataclass(frozen=True)
class OperandLayout:
    """The operands that a kernel is compiled for.

    Args:
        dtype: Type of A and B.
        a_is_k_major, b_is_k_major: Whether A and B are contiguous along K.
    """

    dtype: str
    a_is_k_major: bool
    b_is_k_major: bool


def source_of(
    config: Mapping[str, int],
    operands: OperandLayout,
    ends: CompiledEpilogue,
    *,
    splits: bool,
    batched: bool = False,
    grouped: bool = False,
    gated: bool = False,
) -> CudaSource:
    """Return the source of a configuration.

    The schedule of tiles is an argument of the launch, except whether tiles are split, and whether there is a batch, of
    products whose numbers of rows the device alone knows where it is `grouped`. Where it is `gated`, both halves of a
    tile's columns are factors of the same results.
    """
    names = ("tile_m", "tile_n", "cluster_m", "cluster_n", *COMPILED)
    return _source_of(
        tuple((name, int(config[name])) for name in names), operands, ends, splits, batched or grouped, grouped, gated
    )


@lru_cache(maxsize=1024)
def _source_of(
    config: tuple[tuple[str, int], ...],
    operands: OperandLayout,
    ends: CompiledEpilogue,
    splits: bool,
    batched: bool,
    grouped: bool,
    gated: bool,
) -> CudaSource:
    values = dict(config)
    shape, dtype = WgmmaTile.of(values), operands.dtype
    majors = operands.a_is_k_major, operands.b_is_k_major
    rows_k_major, columns_k_major = majors[::-1] if values["turned"] else majors
    macros = {MACROS.get(name, name.upper()): values[name] for name in COMPILED}
    macros |= {"ROWS": shape.rows, "COLUMNS": shape.columns}
    macros |= {"CLUSTER_ROWS": shape.cluster_rows, "CLUSTER_COLUMNS": shape.cluster_columns, "RESIDENT": 1}
    macros |= {"DTYPE": list(TYPES).index(dtype), "PROMOTES": int(promotes(dtype))}
    macros |= {"ROWS_K_MAJOR": int(rows_k_major), "COLUMNS_K_MAJOR": int(columns_k_major)}
    macros |= ends.macros
    macros |= {"SPLITS": int(splits), "STORES_BOXES": int(ends.in_boxes), "BUFFERS": ends.buffers}
    macros |= ({"BATCHED": 1} if batched else {}) | ({"GROUPED": 1} if grouped else {})
    macros |= {"GATED": 1} if gated else {}
    text = wgmma(shape.own_columns, dtype, rows_k_major=rows_k_major, columns_k_major=columns_k_major)
    # Where tiles are split, a kernel that spills registers is compiled again in the variant that spares them.
    whole, sparing = {**macros, "SPARES": 0}, {"SPARES": 1} if splits else {}
    text += _kernel()
    if ends.traced is not None:
        text = ahead_of_kernel(ends.traced) + text + behind_kernel(ends.traced)
    return CudaSource(text, "gemm", whole, ("-std=c++17",), (FOLDER,), "gemm.cu", is_settled=True, sparing=sparing)


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDER / "kernel.cu").read_text(encoding="utf-8")


def wgmma(columns: int, dtype: str, *, rows_k_major: bool, columns_k_major: bool) -> str:
    """Return wgmma with this number of columns as the text of a function, which `source/kernel.cu` calls."""
    name, total, letter = TYPES[dtype]
    number = columns // 2
    depth = 32 // ELEMENT_BYTES[dtype]
    scales = {"s32": "", "f32": ", 1, 1"}[total]
    if not needs_k_major(dtype):
        scales += f", {int(not rows_k_major)}, {int(not columns_k_major)}"
    sums = ", ".join(f"%{i}" for i in range(number))
    operands = ", ".join(f'"+{letter}"(sums[{i}])' for i in range(number))
    return f"""#include "instructions.cuh"
__device__ __forceinline__ void wgmma(
    sum_t (&sums)[{number}], unsigned long long rows, unsigned long long columns, int adds) {{
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{number + 2}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{total}.{name}.{name} {{{sums}}}, "
      "%{number}, %{number + 1}, adds{scales};\\n}}\\n"
      : {operands}
      : "l"(rows), "l"(columns), "r"(adds));
}}
"""
