"""What one block of the Triton GEMM takes - shared memory and registers - as integer expressions.

The shared-memory rules (`shared_memory.py`) state how Triton 3.9 lays out the buffers of `kernel_triton.py`; the
register figures are fitted. Both are checked against compiled kernels (`tests/data/triton_gemm_resources.csv` and
`triton_gemm_space.csv`); they may move with Triton's version.
"""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.register_weights import REGISTER_MODELS
from constrint.kernels.gemm.registers import FRAGMENT_BYTES
from constrint.kernels.gemm.shared_memory import pointer_smem_bytes
from constrint.kernels.gemm.units import (
    ALIGNED_ELEMENTS,
    ELEMENT_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    Aligned,
    Unit,
    Vars,
    aligned_operands,
    async_share,
    is_aligned,
    threads,
    unit,
)
from constrint.model import Expr, ceildiv, minimum

__all__ = [
    "ALIGNED_ELEMENTS",
    "ELEMENT_BYTES",
    "OUTPUT_BYTES",
    "PARTIAL_BYTES",
    "Aligned",
    "Unit",
    "Vars",
    "aligned_operands",
    "async_share",
    "is_aligned",
    "registers_per_thread",
    "smem_bytes",
    "threads",
    "unit",
]

#: Row-major matrices whose rows are multiples of 16 elements.
ALL_ALIGNED = Aligned()


def smem_bytes(gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED) -> Expr:
    """Shared memory (LDS) of one block in bytes: the operand pipeline, or the store's staging if that is larger."""
    return pointer_smem_bytes(gpu, dtype, unit(gpu, dtype), v, aligned)


def registers_per_thread(gpu: GpuModel, dtype: str, v: Vars) -> Expr:
    """Estimated 32-bit registers per thread (on CDNA the total of the unified file)."""
    found = unit(gpu, dtype)
    key = found.kind if gpu.vendor == "nvidia" else gpu.arch.target
    if found.fallback is None:
        return _registers(gpu, dtype, key, v)
    use = async_share(found, v)
    return use * _registers(gpu, dtype, key, v) + (1 - use) * _registers(gpu, dtype, found.fallback, v)


def _registers(gpu: GpuModel, dtype: str, key: str, v: Vars) -> Expr:
    model = REGISTER_MODELS[key]
    element = ELEMENT_BYTES[dtype]
    num_threads = threads(gpu, v)
    accumulators = ceildiv(v["tile_m"] * v["tile_n"], num_threads)
    if key == "fma":
        operands = v["tile_k"] * (16 + accumulators)
        return (model.base + model.accumulators * accumulators + model.fragment * operands) // 100
    words_a, words_b = (ceildiv(v[t] * v["tile_k"] * element, 4 * num_threads) for t in ("tile_m", "tile_n"))
    depth = minimum(v["tile_k"], FRAGMENT_BYTES // element)
    fragment = ceildiv(minimum(v["tile_m"], v["tile_n"]) * depth * element, 4 * gpu.sm.warp_size)
    hundredths = (
        model.base
        + model.accumulators * accumulators
        + model.words_a * words_a
        + model.words_b * words_b
        + model.fragment * fragment
        + model.persistent * v["persistent"]
    )
    return hundredths // 100
