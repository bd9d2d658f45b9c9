"""The source of a configuration: macros, and the matrix instruction of its width as text. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.launch.cuda.nvrtc import CudaSource

#: Folders of the sources: its own, and that of the CUDA GEMM, with Hopper's instructions and the epilogue.
FOLDERS = (Path(__file__).with_name("source"), Path(__file__).parents[1] / "cuda" / "source")
SHARED = ("instructions.cuh", "epilogue.cuh")
#: DTYPE of `instructions.cuh`: numbers of 32 bits.
TF32 = 2


def source_of(
    config: Mapping[str, int], ends: CompiledEpilogue, *, is_three_pass: bool, is_k_major: bool, splits: bool
) -> CudaSource:
    """Return the source of a configuration.

    Args:
        config: `tile_m`, `tile_n`, `num_stages`, `consumers` and `turned` count.
        ends: The epilogue.
        is_three_pass: Whether fp32 keeps its precision.
        is_k_major: Whether the operand of wgmma's rows lies along K.
        splits: Whether tiles are split along K.
    """
    columns = config["tile_m"] if config["turned"] else config["tile_n"]
    shape = config["consumers"], columns, config["num_stages"], config["turned"]
    return _source_of(shape, ends, is_three_pass, is_k_major, splits)


@lru_cache(maxsize=1024)
def _source_of(
    shape: tuple[int, int, int, int], ends: CompiledEpilogue, is_three_pass: bool, is_k_major: bool, splits: bool
) -> CudaSource:
    consumers, columns, stages, turned = map(int, shape)
    macros = {"CONSUMERS": consumers, "COLUMNS": columns, "STAGES": stages, "TURNED": turned, "RESIDENT": 1}
    macros |= {"THREE": int(is_three_pass), "ROWS_K_MAJOR": int(is_k_major), "SPLITS": int(splits), "DTYPE": TF32}
    macros |= ends.macros
    text = wgmma(columns, is_three_pass=is_three_pass)
    return CudaSource(text + _kernel(), "fp32_gemm", macros, ("-std=c++17",), FOLDERS, "fp32_gemm.cu", is_settled=True)


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")


def wgmma(columns: int, *, is_three_pass: bool) -> str:
    """Return wgmma with rows from registers as the text of a function, which `source/kernel.cu` calls."""
    number = columns // 2
    name, depth, scales = ("bf16", 16, ", 1, 1, 0") if is_three_pass else ("tf32", 8, ", 1, 1")
    sums = ", ".join(f"%{i}" for i in range(number))
    rows = ", ".join(f"%{number + i}" for i in range(4))
    operands = ", ".join(f'"+f"(sums[{i}])' for i in range(number))
    return f"""
__device__ __forceinline__ void wgmma(
    float (&sums)[{number}], const unsigned* rows, unsigned long long columns, int adds) {{
  asm volatile("{{\\n.reg .pred does;\\nsetp.ne.b32 does, %{number + 5}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{name}.{name} {{{sums}}}, "
      "{{{rows}}}, %{number + 4}, does{scales};\\n}}\\n"
      : {operands}
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(columns), "r"(adds));
}}
"""
