"""Checks of a GPU's file that types cannot express: sources resolve, unknowns are declared, numbers agree.

`findings` lists every broken rule, `relations` those between quantities of the hardware, whatever the vendor. The
vendors' own relations stand in their `findings`, and what their units do in one clock in `units.yaml`.

A GPU whose target constrint does not know is loaded all the same: its file is checked for form, and what depends on the
target names the nearest known one, whose rules stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from constrint.errors import UnsupportedError
from constrint.hwmodels.schema import DTYPES, CacheLevel, Dtype, GpuModel
from constrint.hwmodels.vendors.interface import Finding, Vendor, list_vendors

#: How far a peak may be above what the units do at the stated clock: data sheets round, and name another clock's rate.
PEAK_TOLERANCE = 1.1
#: Least share of what the units do at the stated clock that the nearest peak has: 0.995 in the files that are shipped.
LEAST_PEAK = 0.6
#: Most times a second that a device's memory can be read whole: at most 60 in the files that are shipped.
MOST_READS = 200
#: How far the rate of device memory may be from bus width times data rate: both are rounded.
DRAM_TOLERANCE = 0.03
#: Types that are at least as fast as the one before, in matrix units: each is narrower.
_NARROWER: tuple[Dtype, ...] = ("fp64", "tf32", "fp16", "fp8", "fp4")


def findings(raw: dict[str, Any], model: GpuModel) -> Iterator[Finding]:
    """Every broken rule of one file; `raw` is the parsed file that `model` was made from."""
    yield from _sources(raw, model)
    yield from _unknowns(raw, model)
    yield from _numbers(model)
    yield from _magnitudes(model)
    yield from target_findings(model)
    yield from model.maker.findings(model)
    yield from relations(model)


def _sources(raw: dict[str, Any], model: GpuModel) -> Iterator[Finding]:
    used: set[str] = set()
    for path, keys in _walk_sources(raw, ""):
        used |= set(keys)
        for key in keys:
            if key not in model.sources:
                yield path, f"source {key!r} is not among the keys of the top-level 'sources' block"
    for key in model.sources:
        if key not in used:
            yield f"sources.{key}", "no block names this source; remove it, or name it where its values stand"


def _walk_sources(value: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else key
            if key == "sources" and isinstance(inner, list):
                yield where, inner
            else:
                yield from _walk_sources(inner, where)


def _unknowns(raw: dict[str, Any], model: GpuModel) -> Iterator[Finding]:
    present: dict[str, bool] = {}
    for path, is_null in _walk_keys(raw, ""):
        present[path] = present.get(path, False) or is_null
    for path in model.maker.required_keys:
        if path not in present:
            yield (path, f"missing; {model.vendor} files state it (null, and under 'unconfirmed', when unknown)")
    declared = {entry.partition(":")[0].strip() for entry in model.unconfirmed}
    for path, is_null in present.items():
        if is_null and path not in declared:
            yield (path, "null is unknown, so it must be listed under 'unconfirmed' (leave out what does not apply)")
    for path in sorted(declared):
        if path not in present:
            yield ("unconfirmed", f"{path!r} is no key of this file; an entry starts with a key's path and a colon")


def _walk_keys(value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Key paths of the file and whether the value is null; items of a list share the list's path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else key
            yield where, inner is None
            yield from _walk_keys(inner, where)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk_keys(inner, path)


def _numbers(model: GpuModel) -> Iterator[Finding]:
    sm, device = model.sm, model.device
    widest = max(sm.warp_sizes, default=0)
    if not sm.warp_sizes or list(sm.warp_sizes) != sorted(set(sm.warp_sizes)):
        yield "sm.warp_sizes", "must list sizes in increasing order"
    elif sm.max_threads_per_block < widest or sm.max_threads_per_sm < sm.max_threads_per_block:
        yield "sm.max_threads_per_sm", "must hold a block of max_threads_per_block, and that a warp"
    elif sm.max_threads_per_block % widest:
        yield "sm.max_threads_per_block", f"must be a multiple of the warp sizes; it is {sm.max_threads_per_block}"
    if sm.max_warps_per_sm * sm.warp_size != sm.max_threads_per_sm:
        yield "sm.max_threads_per_sm", "must be max_warps_per_sm times the warp size"
    if sm.max_smem_bytes_per_block + sm.smem_reserved_bytes_per_block > sm.smem_bytes_per_sm:
        yield "sm.max_smem_bytes_per_block", "with smem_reserved_bytes_per_block it exceeds smem_bytes_per_sm"
    if device.max_clock_hz and device.boost_clock_hz and device.max_clock_hz < device.boost_clock_hz:
        yield "device.max_clock_hz", "is below boost_clock_hz"
    small, large = device.max_cluster_blocks_portable, device.max_cluster_blocks_nonportable
    if small and large and small > large:
        yield "device.max_cluster_blocks_portable", "exceeds max_cluster_blocks_nonportable"
    for index, key in enumerate(model.matrix.instructions):
        if key.dtype not in model.compute.matrix_flop_per_s and key.dtype not in ("int4", "b1"):
            yield f"matrix.instructions[{index}]", f"{key.name}: compute.matrix_flop_per_s has no {key.dtype}"
        if key.kind not in model.maker.matrix_kinds:
            kinds = ", ".join(model.maker.matrix_kinds)
            yield f"matrix.instructions[{index}].kind", f"{key.kind!r} is none of {model.maker.title}'s: {kinds}"
    for dtype in model.compute.vector_flop_per_s:
        if dtype not in DTYPES[:2]:
            yield f"compute.vector_flop_per_s.{dtype}", "only fp64 and fp32 have a plain rate here"


#: Quantities of the file with the least and the most that a GPU may have: a slip of the unit is outside.
_PLAUSIBLE = {
    "device.sm_count": (1, 10_000),
    "device.boost_clock_hz": (10**8, 10**10),
    "device.max_clock_hz": (10**8, 10**10),
    "sm.max_threads_per_block": (32, 2**16),
    "sm.max_blocks_per_sm": (1, 2**10),
    "sm.num_partitions": (1, 2**8),
    "sm.max_registers_per_thread": (16, 2**12),
    "sm.smem_bytes_per_sm": (2**10, 2**24),
    "sm.smem_alloc_granularity_bytes": (1, 2**16),
    "sm.smem_banks": (1, 2**12),
    "sm.smem_bank_width_bytes": (1, 2**10),
    "sm.special_functions_per_clk": (1, 2**12),
    "memory.l1.size_bytes": (2**10, 2**26),
    "memory.l2.size_bytes": (2**14, 2**34),
    "memory.last_level.size_bytes": (2**14, 2**36),
    "memory.dram.size_bytes": (2**27, 2**44),
    "memory.dram.bandwidth_bytes_per_s": (10**9, 10**15),
    **{f"memory.{level}.line_bytes": (8, 2**13) for level in ("l1", "l2", "last_level")},
    **{f"memory.{level}.sector_bytes": (8, 2**13) for level in ("l1", "l2", "last_level")},
    **{f"memory.{level}.bandwidth_bytes_per_s": (10**9, 10**17) for level in ("l1", "l2", "last_level")},
    **{f"memory.{level}.assumed_bandwidth_bytes_per_s": (10**9, 10**17) for level in ("l1", "l2", "last_level")},
}
#: Least and most operations of an SM in one clock, in any dtype.
_FLOP_PER_CLK = (0.5, 2**17)


def _magnitudes(model: GpuModel) -> Iterator[Finding]:
    """Quantities that no GPU has, such as a clock in MHz where Hz are stated."""
    for path, (least, most) in _PLAUSIBLE.items():
        value = _at(model, path)
        if value is not None and not least <= value <= most:
            yield path, f"must be between {least:,} and {most:,} in the unit of the key; it is {value:,}"
    if not _has_plausible_clocks(model):
        return
    clock_hz = model.device.boost_clock_hz or model.device.max_clock_hz
    slow_hz, fast_hz = (clock_hz, clock_hz) if clock_hz else _PLAUSIBLE["device.max_clock_hz"]
    slowest, fastest = _FLOP_PER_CLK
    for block in ("matrix", "vector", "packed_vector", "matrix_fp16_accumulate"):
        rates = getattr(model.compute, f"{block}_flop_per_s") or {}
        for dtype, rate in rates.items():
            if rate is None:
                continue
            # With an unknown clock, at the slowest and at the fastest that a GPU may have.
            high, low = (rate / hz / model.device.sm_count for hz in (slow_hz, fast_hz))
            if high < slowest or low > fastest:
                per_clk = high if high < slowest else low
                rule = f"{rate:g} is {per_clk:,.3g} operations a clock of each {model.terms.sm}"
                yield f"compute.{block}_flop_per_s.{dtype}", f"{rule}; {slowest} to {fastest:,} are possible"


def _at(model: GpuModel, path: str) -> Any:
    """The value of a key; None where a part of the path is missing."""
    value: Any = model
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _has_plausible_clocks(model: GpuModel) -> bool:
    """Whether rates can be judged: a wrong clock or count of SMs makes all of them look wrong."""
    keys = ("device.sm_count", "device.boost_clock_hz", "device.max_clock_hz")
    stated = [(_at(model, key), *_PLAUSIBLE[key]) for key in keys]
    return all(value is None or least <= value <= most for value, least, most in stated)


def relations(gpu: GpuModel) -> Iterator[Finding]:
    """Every broken relation between quantities of the hardware, with the key and the rule."""
    yield from _peaks(gpu)
    yield from _orders(gpu)
    yield from _dram(gpu)
    yield from _caches(gpu)
    yield from _blocks(gpu)


def _peaks(gpu: GpuModel) -> Iterator[Finding]:
    """Peak rates against SMs x operations of an SM in a clock x clock."""
    device, units = gpu.device, gpu.maker.units().get(gpu.compiler_target)
    clock_hz = device.max_clock_hz or device.boost_clock_hz
    if units is None or clock_hz is None or not _has_plausible_clocks(gpu):
        return
    nearest: tuple[float, str, float] | None = None
    for block, limits in (
        ("matrix", units.matrix),
        ("matrix_fp16_accumulate", units.matrix),
        ("vector", units.vector),
        ("packed_vector", units.packed_vector),
    ):
        for dtype, rate in (getattr(gpu.compute, f"{block}_flop_per_s") or {}).items():
            per_clk = limits.get(dtype, 0)
            most = PEAK_TOLERANCE * device.sm_count * per_clk * clock_hz
            key = f"compute.{block}_flop_per_s.{dtype}"
            if rate is not None and most > 0:
                nearest = max(nearest or (0.0, "", 0.0), (PEAK_TOLERANCE * rate / most, key, per_clk))
            if rate is not None and 0 < most < rate:
                yield (
                    key,
                    f"must be at most {most:.4g}: {PEAK_TOLERANCE:g} x {device.sm_count} {gpu.terms.sms} x {per_clk:g} "
                    f"operations a clock x {clock_hz:.4g} Hz",
                )
    if nearest is not None and nearest[0] < LEAST_PEAK:
        share, key, per_clk = nearest
        yield (
            "device.sm_count",
            f"must be fewer, or the clock lower: {device.sm_count} {gpu.terms.sms} x {per_clk:g} operations a clock x "
            f"{clock_hz:.4g} Hz are {1 / share:.3g} times {key}, and no other peak is nearer",
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
    most = MOST_READS * dram.size_bytes
    if dram.bandwidth_bytes_per_s > most:
        rule = f"must be at most {most:.4g}: no memory is read whole more than {MOST_READS} times a second"
        yield "memory.dram.bandwidth_bytes_per_s", rule
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


def target_findings(gpu: GpuModel) -> Iterator[Finding]:
    """A known target of another family, and a family of another vendor's."""
    maker, target = gpu.maker, gpu.arch.target
    family = maker.targets.get(target)
    if family is not None and family != gpu.arch.family:
        yield "arch.family", f"{gpu.arch.family!r} is not the family of {target}, which is {family!r}"
    if family is None and gpu.arch.family not in maker.targets.values():
        # It may be a new family, but no other vendor's.
        for vendor in list_vendors():
            if gpu.arch.family in vendor.targets.values():
                listed = ", ".join(dict.fromkeys(maker.targets.values()))
                yield (
                    "arch.family",
                    f"{gpu.arch.family!r} is a family of {vendor.title}'s; {maker.title}'s are {listed}",
                )


def form_of_target(vendor: Vendor, target: str) -> str:
    """Say why a target has no form of the vendor's; empty for one that it may have some day."""
    if not vendor.target_pattern or re.fullmatch(vendor.target_pattern, target):
        return ""
    return f"{target!r} is no target of {vendor.title}'s, the vendor of this file: write {vendor.target_form}"


def nearest_target(gpu: GpuModel) -> str:
    """The known target whose number is nearest; empty where the vendor states none."""
    maker = gpu.maker
    number = maker.target_number(gpu.arch.target)
    return min(maker.targets, key=lambda target: abs(maker.target_number(target) - number), default="")


def check_compilable(gpu: GpuModel) -> None:
    """Refuse to compile for a target that is not known: compilers end the whole process over one that they lack.

    Raises:
        UnsupportedError: When the vendor's targets do not hold it.
    """
    if gpu.arch.target not in gpu.maker.targets:
        raise UnsupportedError(
            f"{gpu.name}: nothing can be compiled for {gpu.arch.target}, which constrint does not know. "
            f"The nearest that it knows is {nearest_target(gpu)}; `targets` of {gpu.maker.title}'s class lists them."
        )


def target_note(gpu: GpuModel) -> str:
    """State the assumptions about a target unknown to constrint; empty for a known one."""
    nearest = nearest_target(gpu)
    if not nearest or gpu.arch.target in gpu.maker.targets:
        return ""
    return (
        f"{gpu.arch.target} is no target that constrint knows (nearest: {nearest}): registers and shared memory are "
        "estimated by rules that were fitted to other targets"
    )
