"""Which GPUs this machine has.

Asks PyTorch if it is installed, else nvidia-ml-py, else `rocminfo`; none of them before `detect` runs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

from constrint.errors import NoDeviceError
from constrint.hwmodels.match import DetectedDevice, identify

ROCMINFO_TIMEOUT_S = 20.0


def detect() -> list[DetectedDevice]:
    """Find the GPUs of this machine and match each to a model.

    Raises:
        NoDeviceError: When none is found; says what was asked.
    """
    asked = []
    for source, ask in SOURCES:
        found, remark = ask()
        if found:
            return [identify(device) for device in found]
        asked.append(f"{source}: {remark}")
    raise NoDeviceError(f"no GPU found on this machine ({'; '.join(asked)}).")


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
    """What PyTorch reports of one of its devices, and which model it is."""
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
