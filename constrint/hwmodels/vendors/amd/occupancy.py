"""AMD occupancy: LLVM's waves per SIMD, and the workgroups that a CU (or a WGP) holds under the same rules.

LLVM's figure is that of AMDGPUBaseInfo and AMDGPUSubtarget as of LLVM 24: LDS rounded, SGPRs charged for the
trap handler. It has its own LDS granule on RDNA; the workgroups use the granule of the hardware model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.errors import UsageError
from constrint.hwmodels.occupancy.inputs import KernelUse, differs
from constrint.hwmodels.occupancy.limits import UNLIMITED, Limits
from constrint.hwmodels.vendors.amd.sm import AmdCu


@dataclass(frozen=True)
class Mode:
    """Where a workgroup lives: a CU, or in WGP mode two of them; and how its waves are sized."""

    wave_size: int
    num_simds: int
    smem_bytes: int
    multi_wave_slots: int
    smem_granularity_bytes: int
    llvm_granularity_bytes: int


def mode_of(name: str, sm: AmdCu, kernel: KernelUse) -> Mode:
    """Choose the mode.

    Raises:
        UsageError: When the GPU has no waves of that size, no WGPs, or no accumulation registers.
    """
    if sm.max_acc_vgprs_per_thread is None and differs(kernel.accumulator_registers_per_thread, 0):
        raise UsageError(f"accumulator_registers_per_thread: {name} has no accumulation registers.")
    wave = sm.warp_size if kernel.wave_size is None else kernel.wave_size
    sm.vgprs_per_lane(wave)  # refuses a size that the GPU does not have
    granules = (
        kernel.lds_granularity_bytes or sm.smem_alloc_granularity_bytes,
        kernel.lds_granularity_bytes or sm.smem_llvm_granularity_bytes,
    )
    if not kernel.wgp_mode:
        return Mode(wave, sm.num_partitions, sm.smem_bytes_per_sm, sm.max_multi_wave_blocks_per_sm, *granules)
    if sm.smem_bytes_per_wgp is None or sm.max_multi_wave_blocks_per_wgp is None:
        raise UsageError("wgp_mode: this GPU has no WGPs; only RDNA does.")
    return Mode(wave, 2 * sm.num_partitions, sm.smem_bytes_per_wgp, sm.max_multi_wave_blocks_per_wgp, *granules)


def limits(sm: AmdCu, mode: Mode, kernel: KernelUse) -> Limits:
    """Workgroups per CU (WGP) that each resource allows."""
    waves = -(-kernel.threads_per_block // mode.wave_size)
    max_waves = sm.max_waves_per_simd * mode.num_simds
    vgprs = _total_vgprs(sm, kernel)
    granularity = sm.vgpr_alloc_granularity(mode.wave_size)
    allocated = np.maximum(-(-vgprs // granularity), 1) * granularity
    by_vgprs = _between(sm.vgprs_per_lane(mode.wave_size) // allocated, sm.max_waves_per_simd)
    by_sgprs = _waves_by_sgprs(sm, kernel.sgprs_per_wave)
    slots = np.where(waves == 1, max_waves, mode.multi_wave_slots)
    too_large = kernel.threads_per_block > sm.max_threads_per_block
    by_smem, smem_bytes = _smem(sm, mode.smem_bytes, mode.smem_granularity_bytes, kernel.smem_bytes_per_block)
    return Limits(
        warps=np.where(too_large, 0, max_waves // waves),
        registers=np.where(_has_too_many(sm, kernel, vgprs), 0, by_vgprs * mode.num_simds // waves),
        smem=by_smem,
        blocks=slots,
        sgprs=np.where(by_sgprs < sm.max_waves_per_simd, by_sgprs * mode.num_simds // waves, UNLIMITED),
        warps_per_block=waves,
        registers_per_block=waves * mode.wave_size * allocated,
        smem_bytes_per_block=smem_bytes,
        max_warps_per_sm=max_waves,
        waves_per_simd=np.minimum(np.minimum(by_vgprs, by_sgprs), _llvm_waves_by_group(sm, mode, kernel, waves, slots)),
    )


def _between(waves: Any, most: int) -> Any:
    return np.minimum(np.maximum(waves, 1), most)


def _total_vgprs(sm: AmdCu, kernel: KernelUse) -> Any:
    """VGPRs that count: the sum in a unified file, with aligned accumulators; the larger one of two files."""
    arch, acc = kernel.registers_per_thread, kernel.accumulator_registers_per_thread
    if not sm.has_unified_vgpr_file:
        return np.maximum(arch, acc)
    alignment = sm.arch_vgpr_alignment_vgprs or 1
    return np.where(acc > 0, -(-arch // alignment) * alignment + acc, arch)


def _has_too_many(sm: AmdCu, kernel: KernelUse, vgprs: Any) -> Any:
    """Whether no wave can have these registers; where acc is 0, an arch count above its cap is the total."""
    acc_too_many = kernel.accumulator_registers_per_thread > (sm.max_acc_vgprs_per_thread or 0)
    arch_too_many = (kernel.accumulator_registers_per_thread > 0) & (
        kernel.registers_per_thread > sm.max_arch_vgprs_per_thread
    )
    return (vgprs > sm.max_registers_per_thread) | acc_too_many | arch_too_many


def _waves_by_sgprs(sm: AmdCu, sgprs: Any) -> Any:
    if sm.sgprs_per_simd is None or sm.sgpr_alloc_granularity_sgprs is None:
        return np.int64(sm.max_waves_per_simd)
    unit = sm.sgpr_alloc_granularity_sgprs
    allocated = -(-np.maximum(sgprs, 1) // unit) * unit + (sm.sgprs_reserved_per_wave or 0)
    return np.minimum(sm.max_waves_per_simd, sm.sgprs_per_simd // allocated)


def _smem(sm: AmdCu, pool_bytes: int, granularity_bytes: int, smem_bytes: Any) -> tuple[Any, Any]:
    used = -(-smem_bytes // granularity_bytes) * granularity_bytes
    blocks = np.where(used == 0, UNLIMITED, pool_bytes // np.maximum(used, 1))
    return np.where(smem_bytes > sm.max_smem_bytes_per_block, 0, blocks), used


def _llvm_waves_by_group(sm: AmdCu, mode: Mode, kernel: KernelUse, waves: Any, slots: Any) -> Any:
    """LLVM's waves per SIMD from workgroup size and LDS; never below 1."""
    groups = np.minimum(sm.max_waves_per_simd * mode.num_simds // waves, slots)
    unit = mode.llvm_granularity_bytes
    # Without LDS the quotient is the whole pool, more than there are groups.
    by_smem = mode.smem_bytes // np.maximum(-(-kernel.smem_bytes_per_block // unit) * unit, 1)
    return _between(-(-waves * np.minimum(groups, by_smem) // mode.num_simds), sm.max_waves_per_simd)
