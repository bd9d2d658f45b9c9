"""What a GPU is to constrint: one frozen struct per block of its YAML file, with the same names and units.

The structs are the schema (`data/README.md` explains every key). They hold facts and look them up; nothing
here computes an occupancy or a time. A `None` is a value that no source confirms, or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from constrint.errors import UnknownNameError, UsageError

#: Larger than any quantity of a GPU; a bound keeps nonsense in a file from overflowing later arithmetic.
MAX_VALUE = 2**50
Positive = Annotated[int, Meta(ge=1, le=MAX_VALUE)]
NotNegative = Annotated[int, Meta(ge=0, le=MAX_VALUE)]
Rate = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Sources = Annotated[tuple[Text, ...], Meta(min_length=1)]
Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4", "b1"]
DTYPES: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4", "b1")


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block of the file: unknown keys are refused, missing ones too."""


class Arch(Block, frozen=True):
    """The instruction set that kernels are compiled for."""

    target: Text
    family: Text
    sources: Sources
    compute_capability: Annotated[str, Meta(pattern=r"^\d+\.\d+$")] | None = None


class Device(Block, frozen=True):
    """The device as a whole. An SM is a CU on AMD."""

    sm_count: Positive
    boost_clock_hz: Positive | None
    sources: Sources
    max_clock_hz: Positive | None = None
    num_xcds: Positive = 1
    sms_per_xcd: Positive | None = None
    num_gpcs: Positive | None = None
    num_shader_engines: Positive | None = None
    max_cluster_blocks_portable: Positive | None = None
    max_cluster_blocks_nonportable: Positive | None = None


class NvidiaSm(Block, frozen=True, tag_field="vendor", tag="nvidia"):
    """A streaming multiprocessor; its registers are split over sub-partitions, and each warp is in one."""

    warp_sizes: tuple[Positive, ...]
    num_partitions: Positive
    max_threads_per_block: Positive
    max_threads_per_sm: Positive
    max_warps_per_sm: Positive
    max_blocks_per_sm: Positive
    max_registers_per_thread: Positive
    registers_per_partition: Positive
    max_registers_per_block: Positive
    register_alloc_granularity_registers_per_warp: Positive
    warp_alloc_granularity_warps: Positive
    smem_bytes_per_sm: Positive
    max_smem_bytes_per_block: Positive
    max_smem_bytes_per_block_without_opt_in: Positive
    smem_alloc_granularity_bytes: Positive
    smem_reserved_bytes_per_block: NotNegative
    smem_carveouts_bytes: tuple[NotNegative, ...]
    smem_banks: Positive | None
    smem_bank_width_bytes: Positive | None
    special_functions_per_clk: Positive | None
    sources: Sources
    max_barriers_per_sm: Positive | None = None
    tensor_memory_bytes_per_sm: Positive | None = None

    @property
    def warp_size(self) -> int:
        """Threads per warp: 32."""
        return self.warp_sizes[0]


class VgprFile(Block, frozen=True):
    """Vector registers of one SIMD as waves of one size see them."""

    vgprs_per_lane: Positive
    alloc_granularity_vgprs: Positive


class AmdCu(Block, frozen=True, tag_field="vendor", tag="amd"):
    """A compute unit; on RDNA two of them form a WGP, whose LDS a workgroup in WGP mode shares.

    `max_blocks_per_sm` counts one-wave workgroups; workgroups of several waves also take one of
    `max_multi_wave_blocks_per_sm` (or `_per_wgp`) barrier slots.
    """

    warp_sizes: tuple[Positive, ...]
    num_partitions: Positive
    max_threads_per_block: Positive
    max_threads_per_sm: Positive
    max_warps_per_sm: Positive
    max_waves_per_simd: Positive
    max_blocks_per_sm: Positive
    max_multi_wave_blocks_per_sm: Positive
    max_registers_per_thread: Positive
    max_arch_vgprs_per_thread: Positive
    has_unified_vgpr_file: bool
    max_sgprs_per_wave: Positive
    smem_bytes_per_sm: Positive
    max_smem_bytes_per_block: Positive
    smem_alloc_granularity_bytes: Positive
    smem_llvm_granularity_bytes: Positive
    smem_reserved_bytes_per_block: NotNegative
    smem_banks: Positive | None
    smem_bank_width_bytes: Positive | None
    special_functions_per_clk: Positive | None
    sources: Sources
    wave32: VgprFile | None = None
    wave64: VgprFile | None = None
    max_acc_vgprs_per_thread: Positive | None = None
    arch_vgpr_alignment_vgprs: Positive | None = None
    sgprs_per_simd: Positive | None = None
    sgpr_alloc_granularity_sgprs: Positive | None = None
    sgprs_reserved_per_wave: NotNegative | None = None
    max_multi_wave_blocks_per_wgp: Positive | None = None
    smem_bytes_per_wgp: Positive | None = None

    @property
    def warp_size(self) -> int:
        """Threads per wave unless a kernel asks otherwise: 32 on RDNA, 64 on CDNA."""
        return self.warp_sizes[0]

    def vgprs_per_lane(self, wave_size: int) -> int:
        """Vector registers that a SIMD has for each lane of a wave of `wave_size`."""
        return self._file(wave_size).vgprs_per_lane

    def vgpr_alloc_granularity(self, wave_size: int) -> int:
        """Vector registers per lane in which a wave of `wave_size` is given its registers."""
        return self._file(wave_size).alloc_granularity_vgprs

    def _file(self, wave_size: int) -> VgprFile:
        found = {32: self.wave32, 64: self.wave64}.get(wave_size)
        if found is None:
            sizes = " or ".join(str(size) for size in self.warp_sizes)
            raise UsageError(f"wave_size = {wave_size}: this GPU has waves of {sizes} threads.")
        return found


class CacheLevel(Block, frozen=True):
    """A cache: `size_bytes` is per SM for l1 and for the whole device for l2 and last_level."""

    size_bytes: Positive | None
    line_bytes: Positive | None
    bandwidth_bytes_per_s: Rate | None
    sources: Sources
    size_bytes_per_xcd: Positive | None = None
    sector_bytes: Positive | None = None


class Dram(Block, frozen=True):
    """Device memory; `size_bytes` is the capacity on the data sheet, 1 GB being 10^9 bytes."""

    size_bytes: Positive
    bandwidth_bytes_per_s: Rate
    kind: Text
    sources: Sources


class Memory(Block, frozen=True):
    """The levels between an SM and device memory."""

    l1: CacheLevel
    l2: CacheLevel
    dram: Dram
    last_level: CacheLevel | None = None


class Compute(Block, frozen=True):
    """Dense peak rates of the whole device. A dtype that the unit cannot do is absent; null is unknown."""

    matrix_flop_per_s: dict[Dtype, Rate | None]
    vector_flop_per_s: dict[Dtype, Rate | None]
    sources: Sources
    matrix_fp16_accumulate_flop_per_s: dict[Dtype, Rate] | None = None
    packed_vector_flop_per_s: dict[Dtype, Rate] | None = None
    sustained_matrix_fraction: Fraction | None = None


class MatrixInstruction(Block, frozen=True):
    """A matrix instruction: D[m, n] += A[m, k] B[k, n], `blocks` of them at once (4x4 and 16x16 MFMA)."""

    name: Text
    dtype: Dtype
    kind: Literal["mma", "wgmma", "tcgen05", "mfma", "wmma"]
    m: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    n: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    k: Positive
    cycles: Positive | None = None
    blocks: Positive = 1
    num_ctas: Positive = 1


class MatrixUnits(Block, frozen=True):
    """Every dense matrix instruction; those for structured sparsity are left out."""

    instructions: tuple[MatrixInstruction, ...]
    sources: Sources


class GpuModel(Block, frozen=True):
    """One GPU, as its file states it."""

    schema: Literal[1]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    vendor: Literal["nvidia", "amd"]
    aliases: tuple[Text, ...]
    arch: Arch
    device: Device
    sm: NvidiaSm | AmdCu
    memory: Memory
    compute: Compute
    matrix: MatrixUnits
    unconfirmed: tuple[Text, ...]
    disagreements: tuple[Text, ...]
    sources: dict[str, Text]
    notes: tuple[Text, ...] = ()

    @property
    def matrix_instructions(self) -> tuple[MatrixInstruction, ...]:
        """Every dense matrix instruction."""
        return self.matrix.instructions

    def matrix_shapes(self, dtype: str) -> tuple[MatrixInstruction, ...]:
        """Instructions for operands of `dtype` that compute one tile, issued by a single block."""
        check_dtype(dtype)
        return tuple(i for i in self.matrix.instructions if i.dtype == dtype and i.blocks == i.num_ctas == 1)

    def peak_flop_per_s(self, dtype: str) -> float | None:
        """Dense peak of the device: of the matrix units, or of the vector units where those cannot do it.

        Accumulation is in fp32 (int32, fp64). None when the GPU cannot, or when no source confirms a rate.
        """
        if dtype in self.compute.matrix_flop_per_s:
            return self.matrix_flop_per_s(dtype)
        return self.vector_flop_per_s(dtype)

    def matrix_flop_per_s(self, dtype: str) -> float | None:
        """Dense peak of the matrix units; None when they cannot, or when no source confirms a rate."""
        return _rate(self.compute.matrix_flop_per_s, dtype)

    def vector_flop_per_s(self, dtype: str) -> float | None:
        """Peak of the plain (not matrix) units for fp64 and fp32; a fused multiply-add counts as two."""
        return _rate(self.compute.vector_flop_per_s, dtype)


def _rate(rates: Mapping[Any, float | None], dtype: str) -> float | None:
    check_dtype(dtype)
    return rates.get(dtype)


def check_dtype(dtype: str) -> None:
    """Raise UnknownNameError unless `dtype` is one of DTYPES."""
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", str(dtype), DTYPES)
