"""GPUs of this machine: detects them and matches each to a model.

`detect` queries PyTorch if it is installed, else nvidia-ml-py, else `rocminfo`; nothing is imported before it runs.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from constrint.errors import NoDeviceError
from constrint.hwmodels.files import match_device_name
from constrint.hwmodels.load import list_gpus, load_gpu
from constrint.hwmodels.schema import GpuModel

ROCMINFO_TIMEOUT_S = 20.0


def detect() -> list[DetectedDevice]:
    """Find the GPUs of this machine and match each to a model.

    Raises:
        NoDeviceError: When no device is found; lists the sources and their remarks.
    """
    remarks = []
    for source, ask in SOURCES:
        found, remark = ask()
        if found:
            return [identify(device) for device in found]
        remarks.append(f"{source}: {remark}")
    raise NoDeviceError(f"no GPU found on this machine ({'; '.join(remarks)}).")


def ask_torch() -> tuple[list[DetectedDevice], str]:
    """Devices as PyTorch reports them, or none and why."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return [], f"cannot be imported ({type(error).__name__})"
    if not torch.cuda.is_available():
        return [], "sees no device"
    try:
        return [_from_torch(torch, index) for index in range(torch.cuda.device_count())], "sees no device"
    except RuntimeError as error:
        return [], f"failed ({str(error).partition(chr(10))[0]})"


def describe_torch_device(index: int) -> DetectedDevice:
    """Describe one of PyTorch's devices by what PyTorch reports, with its model."""
    import torch

    return identify(_from_torch(torch, index))


def _from_torch(torch: Any, index: int) -> DetectedDevice:
    properties = torch.cuda.get_device_properties(index)
    gfx = getattr(properties, "gcnArchName", "").partition(":")[0]
    is_amd = torch.version.hip is not None

    def read(name: str) -> int | None:
        value = getattr(properties, name, None)
        return value if isinstance(value, int) and value > 0 else None

    clock_khz = read("clock_rate")
    return DetectedDevice(
        index=index,
        source="torch",
        name=properties.name,
        target=gfx if is_amd else f"sm_{properties.major}{properties.minor}",
        sm_count=read("multi_processor_count"),
        warp_size=read("warp_size"),
        memory_bytes=read("total_memory"),
        l2_bytes=read("L2_cache_size"),
        max_threads_per_sm=read("max_threads_per_multi_processor"),
        registers_per_sm=None if is_amd else read("regs_per_multiprocessor"),
        smem_bytes_per_sm=read("shared_memory_per_multiprocessor"),
        max_smem_bytes_per_block=read("shared_memory_per_block_optin"),
        max_clock_hz=clock_khz * 1000 if clock_khz else None,
    )


def ask_nvml() -> tuple[list[DetectedDevice], str]:
    """Devices as nvidia-ml-py reports them, or none and why."""
    try:
        import pynvml
    except ImportError:
        return [], "not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], str(error)
    try:
        return [_from_nvml(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())], "sees no device"
    except pynvml.NVMLError as error:
        return [], str(error)
    finally:
        pynvml.nvmlShutdown()


def _from_nvml(nvml: Any, index: int) -> DetectedDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    clock_mhz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    return DetectedDevice(
        index=index,
        source="nvidia-ml-py",
        name=name.decode() if isinstance(name, bytes) else name,
        target=f"sm_{major}{minor}",
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        max_clock_hz=int(clock_mhz) * 10**6,
    )


def ask_rocminfo() -> tuple[list[DetectedDevice], str]:
    """Devices as `rocminfo` prints them, or none and why."""
    try:
        done = subprocess.run(
            ["rocminfo"], capture_output=True, text=True, errors="replace", timeout=ROCMINFO_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return [], "not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"failed ({type(error).__name__})"
    if done.returncode != 0:
        return [], f"ended with status {done.returncode}"
    return parse_rocminfo(done.stdout), "lists no GPU"


def parse_rocminfo(text: str) -> list[DetectedDevice]:
    """The GPU agents of rocminfo's output."""
    devices: list[DetectedDevice] = []
    for agent in re.split(r"^\*+\s*\nAgent \d+\s*\n\*+\s*$", text, flags=re.MULTILINE)[1:]:
        fields: dict[str, str] = {}
        for key, value in re.findall(r"^\s*([A-Za-z0-9 ()]+?):[ \t]+(\S.*?)\s*$", agent, flags=re.MULTILINE):
            fields.setdefault(key, value)
        if fields.get("Device Type") != "GPU":
            continue
        lds = re.search(r"Segment:\s+GROUP.*?Size:\s+(\d+)\(", agent, flags=re.DOTALL)
        memory = re.search(r"Segment:\s+GLOBAL.*?Size:\s+(\d+)\(", agent, flags=re.DOTALL)
        l2 = re.search(r"^\s*L2:\s+(\d+)\(", agent, flags=re.MULTILINE)
        devices.append(
            DetectedDevice(
                index=len(devices),
                source="rocminfo",
                name=fields.get("Marketing Name", fields.get("Name", "")),
                target=fields.get("Name"),
                sm_count=_leading_int(fields.get("Compute Unit")),
                warp_size=_leading_int(fields.get("Wavefront Size")),
                max_smem_bytes_per_block=int(lds[1]) * 1024 if lds else None,
                memory_bytes=int(memory[1]) * 1024 if memory else None,
                l2_bytes=int(l2[1]) * 1024 if l2 else None,
            )
        )
    return devices


def _leading_int(text: str | None) -> int | None:
    match = re.match(r"\d+", text or "")
    return int(match[0]) if match else None


SOURCES: tuple[tuple[str, Callable[[], tuple[list[DetectedDevice], str]]], ...] = (
    ("torch", ask_torch),
    ("nvidia-ml-py", ask_nvml),
    ("rocminfo", ask_rocminfo),
)


#: Reported memory differs from the data sheet by the share of ECC, and by GB against GiB.
MEMORY_TOLERANCE = 0.12


@dataclass(frozen=True)
class DetectedDevice:
    """One device: the values it reports (None where the library does not report them), and its model.

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
    differences = []
    if device.target is not None and not _is_target(device.target, model):
        differences.append(f"the device is {device.target}, the model {model.arch.target}")
    for what, reported, values in stated:
        stated_values = sorted(value for value in values if value is not None)
        if reported is not None and stated_values and reported not in stated_values:
            either = " or ".join(f"{value:,}" for value in stated_values)
            differences.append(f"the device reports {reported:,} {what}, the model states {either}")
    memory = model.memory.dram.size_bytes
    if device.memory_bytes is not None and not _is_near(device.memory_bytes, memory):
        differences.append(f"the device reports {device.memory_bytes:,} bytes of memory, the model states {memory:,}")
    return differences


def _is_near(reported: int, stated: int) -> bool:
    return math.isclose(reported, stated, rel_tol=MEMORY_TOLERANCE)
