"""wgmma of any number of columns, as text: PTX names every register of the sums, so each width is a function."""

from __future__ import annotations

from constrint.kernels.gemm.units import ELEMENT_BYTES, needs_k_major

#: The operands' type in PTX, that of sums, and how a sum is constrained to a register.
TYPES = {
    "fp16": ("f16", "f32", "f"),
    "bf16": ("bf16", "f32", "f"),
    "tf32": ("tf32", "f32", "f"),
    "fp8": ("e4m3", "f32", "f"),
    "int8": ("s8", "s32", "r"),
}


def wgmma(columns: int, dtype: str, *, rows_k_major: bool, columns_k_major: bool) -> str:
    """The instruction of so many columns, as a function that `source/kernel.cu` calls."""
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
