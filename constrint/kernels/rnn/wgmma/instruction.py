"""wgmma whose rows lie in registers and whose columns lie in shared memory, as text for each number of columns."""

from __future__ import annotations

#: The operands' type in PTX.
TYPES = {"fp16": "f16", "bf16": "bf16"}


def wgmma(columns: int, dtype: str) -> str:
    """The instruction for a number of columns, 16 deep, as the function that `source/product.cuh` calls.

    `rows` are four registers of a thread: of 64 rows by 16, a warp has 16 rows. `columns` describes 16 neighbours along
    the depth of each column in shared memory. `adds` says whether the product is added to the sums or replaces them.
    """
    number = columns // 2
    name = TYPES[dtype]
    sums = ", ".join(f"%{i}" for i in range(number))
    operands = ", ".join(f'"+f"(sums[{i}])' for i in range(number))
    rows = ", ".join(f"%{number + i}" for i in range(4))
    return f"""__device__ __forceinline__ void wgmma(
    float (&sums)[{number}], const uint4& rows, unsigned long long columns, int adds) {{
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{number + 5}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} {{{sums}}}, "
      "{{{rows}}}, %{number + 4}, adds, 1, 1, 0;\\n}}\\n"
      : {operands}
      : "r"(rows.x), "r"(rows.y), "r"(rows.z), "r"(rows.w), "l"(columns), "r"(adds));
}}
"""
