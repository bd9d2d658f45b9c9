"""A block of the CDNA GEMM as expressions: registers of a wave, LDS, and how waves share a tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import Expr, ceildiv, minimum
from constrint.select.spec import Vars

#: Rows and columns of waves in a tile, by the number of waves.
WAVES = {8: (2, 4), 4: (2, 2)}
#: Slices of K in LDS at a time.
BUFFERS = 2
#: Lanes of a wave, and bytes of a register.
LANES, REGISTER_BYTES = 64, 4
#: Registers beside sums and operands: addresses in LDS, offsets in memory.
ADDRESSES = 16
TARGETS = ("gfx950", "gfx942")
DTYPES = ("bf16", "fp16", "fp8")


def is_scaled(gpu: GpuModel, dtype: str) -> bool:
    """Whether operands are multiplied by the instruction that takes scales, all 1: fp8 on gfx950, at twice the rate."""
    return dtype == "fp8" and gpu.arch.target == "gfx950"


def lane_elements(gpu: GpuModel, dtype: str) -> tuple[int, int]:
    """Elements that a lane reads at a time (16 bytes), and k of the instruction with 16 rows."""
    width = 16 // ELEMENT_BYTES[dtype]
    if is_scaled(gpu, dtype):
        return width, 128
    if gpu.arch.target == "gfx950":
        return width, 32
    return width, 16 if ELEMENT_BYTES[dtype] == 2 else 32


def depths(gpu: GpuModel, dtype: str) -> tuple[int, ...]:
    """Values of tile_k: rows of 64, 128 and 256 bytes in LDS, as far as it holds them."""
    element = ELEMENT_BYTES[dtype]
    if gpu.arch.target == "gfx942":
        return (64 // element, 128 // element)
    return (128 // element, 256 // element) if is_scaled(gpu, dtype) else (64, 32, 128)


def wave_columns(v: Vars) -> Expr:
    """Columns of waves in a tile: 4 of 8 waves, 2 of 4."""
    return v["num_warps"] // 2


def smem_bytes(dtype: str, v: Vars) -> Expr:
    """LDS of a block: both operands' slices, in each buffer. Flips of address bits take no memory."""
    return BUFFERS * (v["tile_m"] + v["tile_n"]) * v["tile_k"] * ELEMENT_BYTES[dtype]


def sum_registers(v: Vars) -> Expr:
    """Registers of a wave's sums; all of them are accumulation registers (AGPRs)."""
    return v["tile_m"] * v["tile_n"] // (LANES * v["num_warps"])


def operand_registers(dtype: str, v: Vars) -> Expr:
    """Registers of half of A and of both halves of B in a slice, which the last product of a step keeps live."""
    each = v["tile_k"] * ELEMENT_BYTES[dtype]
    a = v["tile_m"] // 4 * each // (LANES * REGISTER_BYTES)
    b = v["tile_n"] // wave_columns(v) * each // (LANES * REGISTER_BYTES)
    return a + b


def staged_registers(gpu: GpuModel, dtype: str, v: Vars) -> Expr | int:
    """Registers of the next slice on its way from memory to LDS; 0 where copies pass the registers by."""
    if gpu.arch.target == "gfx950":
        return 0
    slice_bytes = (v["tile_m"] + v["tile_n"]) * v["tile_k"] * ELEMENT_BYTES[dtype]
    return ceildiv(slice_bytes, LANES * v["num_warps"] * REGISTER_BYTES)


def live_registers(gpu: GpuModel, dtype: str, v: Vars) -> Expr:
    """Registers that a wave cannot do without: sums, operands, what is on its way."""
    return sum_registers(v) + operand_registers(dtype, v) + staged_registers(gpu, dtype, v)


def estimated_registers(gpu: GpuModel, dtype: str, v: Vars) -> Expr:
    """Registers that the compiler takes: what is live and addresses; with four waves it also reads a step ahead.

    Where sums fill half of a wave's share, the other half is there to be used, and is used.
    """
    live, share = live_registers(gpu, dtype, v) + ADDRESSES, gpu.register_file.capacity * 4 // v["num_warps"]
    if gpu.arch.target != "gfx950":
        return live
    ahead = 8 // v["num_warps"] - 1
    is_half = minimum(1, 2 * sum_registers(v) // share)
    return is_half * share + (1 - is_half) * (live + ahead * operand_registers(dtype, v))


def fills_accumulators(gpu: GpuModel, config: Mapping[str, int]) -> bool:
    """Whether sums take half of a wave's registers on gfx950: all accumulation registers, which are asked for then.

    Asked for elsewhere, LLVM moves sums between both kinds of registers in every step (compiled on gfx942, and for
    four waves with smaller tiles on gfx950).
    """
    sums = config["tile_m"] * config["tile_n"] // (LANES * config["num_warps"])
    return gpu.arch.target == "gfx950" and 2 * sums == int(share_of_registers(gpu, config["num_warps"]))


def share_of_registers(gpu: GpuModel, num_waves: Any) -> Any:
    """Registers that each wave of a block may have: those of a SIMD, divided statically among its waves.

    A wave that only fetches gets as many as one that multiplies, so that producers take registers from the sums.
    """
    per_simd = -(-num_waves // gpu.register_file.partitions_per_block)
    granularity = gpu.register_file.granularity
    return gpu.register_file.capacity // per_simd // granularity * granularity
