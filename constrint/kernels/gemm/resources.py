"""What one block of the Triton GEMM takes - shared memory and registers - as integer expressions.

The shared-memory rules (`shared_memory.py`) state how Triton 3.9 lays out the buffers of `kernel_triton.py`; the
register figures are fitted. Both are checked against compiled kernels (`tests/data/triton_gemm_space.csv`); they may
move with Triton's version.
"""

from __future__ import annotations

from collections.abc import Hashable

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.registers import ALL_ALIGNED, registers_bound, registers_per_thread
from constrint.kernels.gemm.shared_memory import pointer_smem_bytes
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    LINE_BYTES,
    MIN_COPY_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    SECTOR_BYTES,
    Aligned,
    Operands,
    Unit,
    Vars,
    aligned_operands,
    async_share,
    row_major,
    threads,
    unit,
)
from constrint.model import Expr, Var

__all__ = [
    "ELEMENT_BYTES",
    "LINE_BYTES",
    "MIN_COPY_BYTES",
    "OUTPUT_BYTES",
    "PARTIAL_BYTES",
    "SECTOR_BYTES",
    "Aligned",
    "Operands",
    "Unit",
    "Vars",
    "aligned_operands",
    "async_share",
    "registers_bound",
    "registers_per_thread",
    "row_major",
    "smem_bytes",
    "threads",
    "unit",
]

#: Expressions for plain variables, by everything that decides them: building one takes as long as solving.
_SMEM: dict[tuple[Hashable, ...], Expr] = {}


def smem_bytes(gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED) -> Expr:
    """Shared memory (LDS) of one block in bytes: the operand pipeline, or the store's staging if that is larger."""
    found = unit(gpu, dtype)
    if not all(isinstance(variable, Var) and variable.name == name for name, variable in v.items()):
        return pointer_smem_bytes(gpu, dtype, found, v, aligned)
    key = (gpu.arch.target, gpu.sm.warp_size, dtype, found, aligned, tuple(v))
    if key not in _SMEM:
        _SMEM[key] = pointer_smem_bytes(gpu, dtype, found, v, aligned)
    return _SMEM[key]
