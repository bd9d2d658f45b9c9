"""Relations between the quantities of a GPU's file that hold for every GPU, whatever its vendor.

A finding names the key and the rule. The vendors' own relations stand in their `findings`, and what their units do in
one clock in `units.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from constrint.hwmodels.schema import CacheLevel, Dtype, GpuModel
from constrint.hwmodels.vendors.interface import Finding

#: How far a peak may be above what the units do at the stated clock: data sheets round, and name another clock's rate.
PEAK_TOLERANCE = 1.1
#: How far the rate of device memory may be from bus width times data rate: both are rounded.
DRAM_TOLERANCE = 0.03
#: Types that are at least as fast as the one before, in matrix units: each is narrower.
_NARROWER: tuple[Dtype, ...] = ("fp64", "tf32", "fp16", "fp8", "fp4")


def relations(gpu: GpuModel) -> Iterator[Finding]:
    """Every broken relation."""
    yield from _peaks(gpu)
    yield from _orders(gpu)
    yield from _dram(gpu)
    yield from _caches(gpu)
    yield from _blocks(gpu)


def _peaks(gpu: GpuModel) -> Iterator[Finding]:
    """Peak rates against SMs x operations of an SM in a clock x clock."""
    device, units = gpu.device, gpu.maker.units().get(gpu.compiler_target)
    clock_hz = device.max_clock_hz or device.boost_clock_hz
    if units is None or clock_hz is None:
        return
    for block, limits in (
        ("matrix", units.matrix),
        ("matrix_fp16_accumulate", units.matrix),
        ("vector", units.vector),
        ("packed_vector", units.packed_vector),
    ):
        for dtype, rate in (getattr(gpu.compute, f"{block}_flop_per_s") or {}).items():
            per_clk = limits.get(dtype, 0)
            most = PEAK_TOLERANCE * device.sm_count * per_clk * clock_hz
            if rate is not None and 0 < most < rate:
                yield (
                    f"compute.{block}_flop_per_s.{dtype}",
                    f"must be at most {most:.4g}: {PEAK_TOLERANCE:g} x {device.sm_count} {gpu.terms.sms} x {per_clk:g} "
                    f"operations a clock x {clock_hz:.4g} Hz",
                )


def _orders(gpu: GpuModel) -> Iterator[Finding]:
    rates = gpu.compute.matrix_flop_per_s
    stated = [(dtype, rate) for dtype in _NARROWER if (rate := rates.get(dtype)) is not None]
    for (wide, slow), (narrow, fast) in pairwise(stated):
        if slow > fast:
            rule = f"must be at most that of {narrow}, {fast:.4g}: a wider type is no faster"
            yield f"compute.matrix_flop_per_s.{wide}", rule
    vector = gpu.compute.vector_flop_per_s
    double, single = vector.get("fp64"), vector.get("fp32")
    if double is not None and single is not None and double > single:
        yield "compute.vector_flop_per_s.fp64", f"must be at most that of fp32, {single:.4g}"


def _dram(gpu: GpuModel) -> Iterator[Finding]:
    dram = gpu.memory.dram
    if (dram.bus_width_bits is None) != (dram.data_rate_bits_per_s is None):
        stated = f"bus_width_bits is {dram.bus_width_bits}, data_rate_bits_per_s {dram.data_rate_bits_per_s}"
        yield "memory.dram", f"needs both or neither: {stated.replace('None', 'null')}"
    elif dram.bus_width_bits is not None and dram.data_rate_bits_per_s is not None:
        product = dram.bus_width_bits * dram.data_rate_bits_per_s / 8
        if not 1 - DRAM_TOLERANCE <= dram.bandwidth_bytes_per_s / product <= 1 + DRAM_TOLERANCE:
            yield (
                "memory.dram.bandwidth_bytes_per_s",
                f"must be bus_width_bits x data_rate_bits_per_s / 8, {product:.4g}",
            )


def _caches(gpu: GpuModel) -> Iterator[Finding]:
    """Lines and sectors that divide; levels that grow and slow down with the distance from the SMs."""
    memory = gpu.memory
    levels: list[tuple[str, CacheLevel]] = [("l1", memory.l1), ("l2", memory.l2)]
    if memory.last_level is not None:
        levels.append(("last_level", memory.last_level))
    for name, level in levels:
        path = f"memory.{name}"
        if level.line_bytes and level.line_bytes & (level.line_bytes - 1):
            yield f"{path}.line_bytes", "must be a power of two"
        if level.line_bytes and level.sector_bytes and level.line_bytes % level.sector_bytes:
            yield f"{path}.sector_bytes", f"must divide line_bytes, {level.line_bytes}"
        if level.size_bytes and level.line_bytes and level.size_bytes % level.line_bytes:
            yield f"{path}.size_bytes", f"must be a multiple of line_bytes, {level.line_bytes}"
    sizes = [(name, level.size_bytes) for name, level in levels] + [("dram", memory.dram.size_bytes)]
    for (name, small), (outer, large) in pairwise([(name, size) for name, size in sizes if size]):
        if small > large:
            yield f"memory.{name}.size_bytes", f"must be at most that of {outer}, {large:,}"
    rates = [(name, level.bandwidth_bytes_per_s) for name, level in levels]
    rates.append(("dram", memory.dram.bandwidth_bytes_per_s))
    for (name, fast), (outer, slow) in pairwise([(name, rate) for name, rate in rates if rate]):
        if fast < slow:
            yield f"memory.{name}.bandwidth_bytes_per_s", f"must be at least that of {outer}, {slow:.4g}"


def _blocks(gpu: GpuModel) -> Iterator[Finding]:
    """Slots and shares of one SM."""
    sm, device = gpu.sm, gpu.device
    if sm.max_warps_per_sm % sm.num_partitions:
        yield "sm.max_warps_per_sm", f"must be a multiple of num_partitions, {sm.num_partitions}"
    if sm.max_blocks_per_sm > sm.max_warps_per_sm:
        yield "sm.max_blocks_per_sm", f"exceeds max_warps_per_sm, {sm.max_warps_per_sm}: a block has a warp at least"
    for key in ("smem_bytes_per_sm", "max_smem_bytes_per_block"):
        if getattr(sm, key) % sm.smem_alloc_granularity_bytes:
            rule = f"must be a multiple of smem_alloc_granularity_bytes, {sm.smem_alloc_granularity_bytes}"
            yield f"sm.{key}", rule
    for key, value in (("smem_banks", sm.smem_banks), ("smem_bank_width_bytes", sm.smem_bank_width_bytes)):
        if value and value & (value - 1):
            yield f"sm.{key}", "must be a power of two"
    for key in ("num_gpcs", "num_shader_engines"):
        groups = getattr(device, key)
        if groups is not None and groups > device.sm_count:
            yield f"device.{key}", f"exceeds sm_count, {device.sm_count}"
