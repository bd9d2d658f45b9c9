"""How many blocks one SM (CU, WGP) holds at once, and what limits the number.

The rules are in `occupancy_nvidia.py` (cuda_occupancy.h) and `occupancy_amd.py` (LLVM's waves per SIMD).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from constrint.errors import UsageError
from constrint.hwmodels import occupancy_amd, occupancy_nvidia
from constrint.hwmodels.load import load_gpu
from constrint.hwmodels.model import AmdCu, GpuModel, NvidiaSm
from constrint.hwmodels.occupancy_inputs import common_shape, differs, whole_number, whole_numbers
from constrint.hwmodels.occupancy_limits import LIMIT_NAMES, UNLIMITED, Limits, Occupancy

__all__ = ["LIMIT_NAMES", "UNLIMITED", "Occupancy", "occupancy"]


def occupancy(
    gpu: GpuModel | str,
    *,
    threads_per_block: ArrayLike,
    registers_per_thread: ArrayLike,
    smem_bytes_per_block: ArrayLike = 0,
    accumulator_registers_per_thread: ArrayLike = 0,
    sgprs_per_wave: ArrayLike | None = None,
    wave_size: int | None = None,
    wgp_mode: bool = False,
    smem_opt_in: bool = True,
    carveout_percent: ArrayLike = -1,
    barriers_per_block: ArrayLike = 0,
    lds_granularity_bytes: int | None = None,
) -> Occupancy:
    """Compute the occupancy of one configuration, or of columns of them (arrays broadcast).

    NVIDIA: equal to `cuda_occupancy.h` of CUDA 13.0, so 256 registers per thread are accepted although
    hardware and PTX allow 255. Static and dynamic shared memory count together: the header's result depends
    on their sum alone.

    AMD: `waves_per_simd` is LLVM's figure, with LLVM's LDS granule (512 B on RDNA). `blocks_per_sm` uses the
    granule of the hardware model (1,024 B on RDNA, the larger one where sources disagree) and counts per CU
    in CU mode, per WGP in WGP mode. `lds_granularity_bytes` replaces both granules.

    Args:
        gpu: A model, or a name for `load_gpu`.
        threads_per_block: Threads per block (workgroup), at least 1.
        registers_per_thread: 32-bit registers per thread; on AMD the architectural VGPRs, or, where no
            accumulator registers are given, all VGPRs of a unified file.
        smem_bytes_per_block: Shared memory (LDS), static and dynamic together.
        accumulator_registers_per_thread: AMD, CDNA: accumulation VGPRs.
        sgprs_per_wave: AMD: scalar registers, with VCC and the like; None does not limit, nor does RDNA.
        wave_size: AMD, RDNA: 32 (the default there) or 64.
        wgp_mode: AMD, RDNA: workgroups spread over a WGP instead of one CU.
        smem_opt_in: NVIDIA: whether the kernel opts in to more than 48 KiB of shared memory.
        carveout_percent: NVIDIA: preferred share of shared memory, 0 to 100; -1 is the default, the most.
        barriers_per_block: NVIDIA: named barriers that a block uses; 0 does not limit.
        lds_granularity_bytes: AMD: replaces the granule of LDS allocation.

    Raises:
        UsageError: When an input is no whole number in range, does not broadcast or does not apply.
    """
    model = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if not isinstance(model, GpuModel):
        raise UsageError(f"gpu: expected a GpuModel or a name, got {type(gpu).__name__}.")
    columns = {
        "threads_per_block": whole_numbers("threads_per_block", threads_per_block, least=1),
        "registers_per_thread": whole_numbers("registers_per_thread", registers_per_thread),
        "smem_bytes_per_block": whole_numbers("smem_bytes_per_block", smem_bytes_per_block),
        "accumulator_registers_per_thread": whole_numbers(
            "accumulator_registers_per_thread", accumulator_registers_per_thread
        ),
        "sgprs_per_wave": whole_numbers("sgprs_per_wave", 0 if sgprs_per_wave is None else sgprs_per_wave),
        "carveout_percent": whole_numbers("carveout_percent", carveout_percent, least=-1, most=100),
        "barriers_per_block": whole_numbers("barriers_per_block", barriers_per_block),
    }
    shape = common_shape(columns)
    wave = None if wave_size is None else whole_number("wave_size", wave_size, least=1)
    granularity = None
    if lds_granularity_bytes is not None:
        granularity = whole_number("lds_granularity_bytes", lds_granularity_bytes, least=1)
    for name, flag in (("wgp_mode", wgp_mode), ("smem_opt_in", smem_opt_in)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name}: expected True or False, got {flag!r}.")
    if isinstance(model.sm, AmdCu):
        _refuse_on_amd(model, columns, smem_opt_in)
        return _amd(model.sm, columns, occupancy_amd.mode_of(model.sm, wave, wgp_mode, granularity)).combine(shape)
    _refuse_on_nvidia(model, columns, wave, wgp_mode, granularity)
    return _nvidia(model.sm, columns, smem_opt_in).combine(shape)


def _nvidia(sm: NvidiaSm, columns: dict[str, Any], smem_opt_in: bool) -> Limits:
    kernel = occupancy_nvidia.Kernel(
        threads=columns["threads_per_block"],
        registers=columns["registers_per_thread"],
        smem_bytes=columns["smem_bytes_per_block"],
        carveout_percent=columns["carveout_percent"],
        barriers=columns["barriers_per_block"],
        has_smem_opt_in=smem_opt_in,
    )
    return occupancy_nvidia.limits(sm, kernel)


def _amd(sm: AmdCu, columns: dict[str, Any], mode: occupancy_amd.Mode) -> Limits:
    kernel = occupancy_amd.Kernel(
        threads=columns["threads_per_block"],
        arch_vgprs=columns["registers_per_thread"],
        acc_vgprs=columns["accumulator_registers_per_thread"],
        sgprs=columns["sgprs_per_wave"],
        smem_bytes=columns["smem_bytes_per_block"],
    )
    return occupancy_amd.limits(sm, mode, kernel)


def _refuse_on_nvidia(
    gpu: GpuModel, columns: dict[str, Any], wave_size: int | None, wgp_mode: bool, granularity: int | None
) -> None:
    used = {
        "accumulator_registers_per_thread": differs(columns["accumulator_registers_per_thread"], 0),
        "sgprs_per_wave": differs(columns["sgprs_per_wave"], 0),
        "wgp_mode": wgp_mode,
        "lds_granularity_bytes": granularity is not None,
    }
    for name in (name for name, is_used in used.items() if is_used):
        raise UsageError(f"{name} is for AMD GPUs; {gpu.name} is one of NVIDIA's.")
    if wave_size not in (None, *gpu.sm.warp_sizes):
        raise UsageError(f"wave_size = {wave_size}: a warp of {gpu.name} has {gpu.sm.warp_size} threads.")


def _refuse_on_amd(gpu: GpuModel, columns: dict[str, Any], smem_opt_in: bool) -> None:
    used = {
        "carveout_percent": differs(columns["carveout_percent"], -1),
        "barriers_per_block": differs(columns["barriers_per_block"], 0),
        "smem_opt_in=False": not smem_opt_in,
    }
    for name in (name for name, is_used in used.items() if is_used):
        raise UsageError(f"{name} is for NVIDIA GPUs; {gpu.name} is one of AMD's.")
    sm = gpu.sm
    has_none = isinstance(sm, AmdCu) and sm.max_acc_vgprs_per_thread is None
    if has_none and differs(columns["accumulator_registers_per_thread"], 0):
        raise UsageError(f"accumulator_registers_per_thread: {gpu.name} has no accumulation registers.")
