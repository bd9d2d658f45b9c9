"""A device of this machine: what it reports, which model it is, and where the two disagree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from constrint.hwmodels.load import list_gpus, load_gpu
from constrint.hwmodels.model import AmdCu, GpuModel, NvidiaSm
from constrint.hwmodels.names import match_device_name

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
    same = [m for m in _of_target(device.target) if device.sm_count in _sm_counts(m)]
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
    return (m for m in map(load_gpu, list_gpus()) if m.arch.target.rstrip("a") == target.rstrip("a"))


def compare(device: DetectedDevice, model: GpuModel) -> list[str]:
    """Where the device disagrees with the model, one sentence each, on what both of them state."""
    sm = model.sm
    registers = sm.registers_per_partition * sm.num_partitions if isinstance(sm, NvidiaSm) else None
    l2 = {model.memory.l2.size_bytes, model.memory.l2.size_bytes_per_xcd} - {None}
    facts: list[tuple[str, int | None, set[Any]]] = [
        ("SMs" if model.vendor == "nvidia" else "CUs", device.sm_count, _sm_counts(model)),
        ("threads per warp", device.warp_size, set(sm.warp_sizes)),
        ("threads per SM", device.max_threads_per_sm, _threads_per_sm(model)),
        ("registers per SM", device.registers_per_sm, {registers}),
        ("bytes of shared memory per SM", device.smem_bytes_per_sm, _smem_per_sm(model)),
        ("bytes of shared memory per block", device.max_smem_bytes_per_block, {sm.max_smem_bytes_per_block}),
        ("bytes of L2", device.l2_bytes, l2),
        ("Hz maximum clock", device.max_clock_hz, {model.device.max_clock_hz}),
    ]
    found = []
    if device.target is not None and device.target.rstrip("a") != model.arch.target.rstrip("a"):
        found.append(f"the device is {device.target}, the model {model.arch.target}")
    for what, seen, known in facts:
        known = known - {None}
        if seen is not None and known and seen not in known:
            stated = " or ".join(f"{value:,}" for value in sorted(known))
            found.append(f"the device reports {seen:,} {what}, the model states {stated}")
    memory = model.memory.dram.size_bytes
    if device.memory_bytes is not None and not _is_near(device.memory_bytes, memory):
        found.append(f"the device reports {device.memory_bytes:,} bytes of memory, the model states {memory:,}")
    return found


def _sm_counts(model: GpuModel) -> set[int | None]:
    """HIP counts WGPs on RDNA, rocminfo CUs."""
    is_rdna = isinstance(model.sm, AmdCu) and model.sm.smem_bytes_per_wgp is not None
    return {model.device.sm_count, model.device.sm_count // 2 if is_rdna else None}


def _threads_per_sm(model: GpuModel) -> set[int | None]:
    """RDNA devices report threads per CU or per WGP, in waves of either size."""
    sm = model.sm
    if isinstance(sm, AmdCu):
        cus = (1, 2) if sm.smem_bytes_per_wgp else (1,)
        return {sm.max_warps_per_sm * size * n for size in sm.warp_sizes for n in cus}
    return {sm.max_threads_per_sm}


def _smem_per_sm(model: GpuModel) -> set[int | None]:
    sm = model.sm
    return {sm.smem_bytes_per_sm, sm.smem_bytes_per_wgp if isinstance(sm, AmdCu) else None}


def _is_near(seen: int, stated: int) -> bool:
    return math.isclose(seen, stated, rel_tol=MEMORY_TOLERANCE)
