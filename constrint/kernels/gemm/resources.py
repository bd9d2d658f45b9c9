"""What one block of the Triton GEMM takes - shared memory and registers - as integer expressions.

The shared-memory rules (`shared_memory.py`) state how Triton 3.9 lays out the buffers of `kernel_triton.py`; the
register figures are fitted. Both are checked against compiled kernels (`tests/data/triton_gemm_space.csv`); they may
move with Triton's version.
"""

from __future__ import annotations

from collections.abc import Hashable

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.register_weights import REGISTER_MODELS
from constrint.kernels.gemm.registers import Kind, kinds_of, model_key, weighted
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
from constrint.model import Expr, Var, maximum

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

#: Matrices whose rows allow the widest accesses.
ALL_ALIGNED = Aligned()

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


def registers_per_thread(
    gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED, *, has_descriptors: bool = False
) -> Expr:
    """Estimated 32-bit registers per thread (on CDNA the total of the unified file)."""
    return _by_kind(gpu, dtype, v, kinds_of(gpu, dtype, aligned, has_descriptors=has_descriptors), is_bound=False)


def registers_bound(
    gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED, *, has_descriptors: bool = False
) -> Expr:
    """Registers that the compiler may want at most: what exceeds the limit by this figure may spill."""
    return _by_kind(gpu, dtype, v, kinds_of(gpu, dtype, aligned, has_descriptors=has_descriptors), is_bound=True)


def _by_kind(gpu: GpuModel, dtype: str, v: Vars, kinds: tuple[Kind, ...], *, is_bound: bool) -> Expr:
    """The figure for the instruction that each configuration uses."""
    figures = []
    for kind in kinds:
        model = REGISTER_MODELS[model_key(gpu, kind, REGISTER_MODELS)]
        if is_bound:
            with_margin = weighted(model.estimate, kind, v, model.margins_of(kind))
            figures.append(maximum(weighted(model.bound, kind, v), with_margin))
        else:
            figures.append(weighted(model.estimate, kind, v))
    if len(figures) == 1:
        return figures[0]
    use = async_share(unit(gpu, dtype), v)
    return use * figures[0] + (1 - use) * figures[1]
