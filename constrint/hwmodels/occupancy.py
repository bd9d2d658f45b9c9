"""Occupancy: how many blocks one SM (CU, WGP) holds at once, and which limits bind or forbid a launch.

The rules are the vendors': `vendors/nvidia/vendor.py` follows cuda_occupancy.h, `vendors/amd/vendor.py` LLVM.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from constrint.errors import UsageError
from constrint.hwmodels.load import load_gpu
from constrint.hwmodels.occupancy_limits import KernelUse, Occupancy, common_shape, whole_number, whole_numbers
from constrint.hwmodels.schema import GpuModel
from constrint.hwmodels.vendors import list_vendors
from constrint.hwmodels.vendors.interface import BlockLimit


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
    for name, flag in (("wgp_mode", wgp_mode), ("smem_opt_in", smem_opt_in)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name}: expected True or False, got {flag!r}.")
    numbers = {
        name: None if value is None else whole_number(name, value, least=1)
        for name, value in (("wave_size", wave_size), ("lds_granularity_bytes", lds_granularity_bytes))
    }
    use = KernelUse(**columns, **numbers, wgp_mode=wgp_mode, smem_opt_in=smem_opt_in)
    for name in use.options():
        if name not in model.maker.occupancy_options:
            owners = " and ".join(vendor.title for vendor in list_vendors() if name in vendor.occupancy_options)
            raise UsageError(f"{name} is for {owners} GPUs; {model.name} is one of {model.maker.title}'s.")
    return model.maker.occupancy_limits(model, use).combine(shape)


def broken_limits(gpu: GpuModel, result: Occupancy, **asked: Any) -> list[BlockLimit]:
    """The limits that a block breaks where not one fits an SM; none where one does.

    Args:
        gpu: The hardware model.
        result: The occupancy, of scalar inputs.
        asked: The arguments of `occupancy` that it was computed from, all but `gpu`.
    """
    if result.blocks_per_sm:
        return []
    options: dict[str, Any] = {"lds_granularity_bytes": None, **asked, "sgprs_per_wave": asked["sgprs_per_wave"] or 0}
    limits = gpu.maker.block_limits(gpu, KernelUse(**options))
    broken = [limit for limit in limits if limit.asked > limit.most]
    if broken:
        return broken
    return [_warps_that_fit(gpu, result, asked)]


def _warps_that_fit(gpu: GpuModel, result: Occupancy, asked: dict[str, Any]) -> BlockLimit:
    """The limit where each figure alone is allowed, but warps with these registers are too many for the SM."""
    file, wave = gpu.register_file, asked["wave_size"] or gpu.sm.warp_size
    warps = -(-asked["threads_per_block"] // wave)
    each = result.registers_per_block // (warps * wave)
    fit = file.capacity * gpu.sm.warp_size // (each * file.per_thread * wave)
    most = fit * gpu.sm.num_partitions * (2 if asked["wgp_mode"] else 1)
    return BlockLimit("threads_per_block", f"{gpu.terms.warps} of {each} registers a thread", warps, most)


def sentence(limit: BlockLimit) -> str:
    """`1,025 threads, the limit is 1,024`."""
    return f"{limit.asked:,} {limit.unit}, the limit is {limit.most:,}"
