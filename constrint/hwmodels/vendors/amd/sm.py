"""The `sm` block of an AMD GPU's file: a compute unit."""

from __future__ import annotations

from constrint.errors import UsageError
from constrint.hwmodels.schema import Block, NotNegative, Positive, Sm, Sources


class VgprFile(Block, frozen=True):
    """Vector registers of one SIMD as waves of one size see them."""

    vgprs_per_lane: Positive
    alloc_granularity_vgprs: Positive


class AmdCu(Sm, Block, frozen=True, tag_field="vendor", tag="amd"):
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
