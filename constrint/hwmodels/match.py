"""A device of this machine: what it reports, which model it is, and where the two disagree."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from constrint.hwmodels.load import list_gpus, load_gpu
from constrint.hwmodels.names import match_device_name
from constrint.hwmodels.schema import GpuModel

#: What a device reports differs from the data sheet by what ECC takes, and by GB against GiB.
MEMORY_TOLERANCE = 0.12


@dataclass(frozen=True)
class DetectedDevice:
    """One device: what it reports (None where the way of asking does not tell), and the model that it is.

    Args:
        index: The device's index in the library that reported it.
        source: `torch`, `nvidia-ml-py` or `rocminfo`.
        name: The device's own name.
        target: `sm_90` or `gfx942`, say.
        model: Canonical name of the model, None when no model fits.
        disagreements: Sentences on where device and model differ.
    """

    index: int
    source: str
    name: str
    target: str | None = None
    sm_count: int | None = None
    warp_size: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    smem_bytes_per_sm: int | None = None
    max_smem_bytes_per_block: int | None = None
    max_clock_hz: int | None = None
    model: str | None = None
    disagreements: tuple[str, ...] = ()


def identify(device: DetectedDevice) -> DetectedDevice:
    """Fill in the model and the disagreements of a device."""
    model = find_model(device)
    if model is None:
        return device
    return replace(device, model=model.name, disagreements=tuple(compare(device, model)))


def find_model(device: DetectedDevice) -> GpuModel | None:
    """The model of that name, or else the only one with the device's target and SM count."""
    named = match_device_name(device.name)
    if named is not None:
        model = load_gpu(named)
        # One name can cover several memory sizes (A100, GH200): prefer the variant that fits.
        return _best_variant(device, model)
    if device.target is None or device.sm_count is None:
        return None
    same = [m for m in _of_target(device.target) if device.sm_count in m.maker.device_facts(m).sm_counts]
    return same[0] if len(same) == 1 else None


def _best_variant(device: DetectedDevice, model: GpuModel) -> GpuModel:
    if device.memory_bytes is None or _is_near(device.memory_bytes, model.memory.dram.size_bytes):
        return model
    same = [
        m
        for m in _of_target(model.arch.target)
        if m.device.sm_count == model.device.sm_count
        and m.name.partition("-")[0] == model.name.partition("-")[0]
        and _is_near(device.memory_bytes, m.memory.dram.size_bytes)
    ]
    return same[0] if len(same) == 1 else model


def _of_target(target: str) -> Iterable[GpuModel]:
    return (m for m in map(load_gpu, list_gpus()) if _is_target(target, m))


def _is_target(target: str, model: GpuModel) -> bool:
    return target in (model.arch.target, model.compiler_target)


def compare(device: DetectedDevice, model: GpuModel) -> list[str]:
    """Where the device disagrees with the model, one sentence each, on what both of them state."""
    sm, facts = model.sm, model.maker.device_facts(model)
    l2 = {model.memory.l2.size_bytes, model.memory.l2.size_bytes_per_xcd} - {None}
    stated: list[tuple[str, int | None, Collection[int | None]]] = [
        (model.terms.sms, device.sm_count, facts.sm_counts),
        ("threads per warp", device.warp_size, sm.warp_sizes),
        ("threads per SM", device.max_threads_per_sm, facts.threads_per_sm),
        ("registers per SM", device.registers_per_sm, facts.registers_per_sm),
        ("bytes of shared memory per SM", device.smem_bytes_per_sm, facts.smem_bytes_per_sm),
        ("bytes of shared memory per block", device.max_smem_bytes_per_block, {sm.max_smem_bytes_per_block}),
        ("bytes of L2", device.l2_bytes, l2),
        ("Hz maximum clock", device.max_clock_hz, {model.device.max_clock_hz}),
    ]
    found = []
    if device.target is not None and not _is_target(device.target, model):
        found.append(f"the device is {device.target}, the model {model.arch.target}")
    for what, seen, values in stated:
        known = sorted(value for value in values if value is not None)
        if seen is not None and known and seen not in known:
            either = " or ".join(f"{value:,}" for value in known)
            found.append(f"the device reports {seen:,} {what}, the model states {either}")
    memory = model.memory.dram.size_bytes
    if device.memory_bytes is not None and not _is_near(device.memory_bytes, memory):
        found.append(f"the device reports {device.memory_bytes:,} bytes of memory, the model states {memory:,}")
    return found


def _is_near(seen: int, stated: int) -> bool:
    return math.isclose(seen, stated, rel_tol=MEMORY_TOLERANCE)
