"""The tools that a measurement depends on, by version, and how they differ from those of this process."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from constrint.select.triton_versions import triton_version, version_of

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec

#: Tools that generate machine code: with the same versions, and the same branch of the driver, a measurement is exact.
MAKERS = ("triton", "cuda", "rocm", "nvrtc")
_DRIVER_FILES = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))


def toolchain() -> Mapping[str, str]:
    """Return versions by name: `triton`, `torch`, `cuda` or `rocm`, `driver`, without those that are not installed.

    Torch, CUDA and ROCm are named once torch is imported: no kernel is launched before.
    """
    return _toolchain(sys.modules.get("torch") is not None)


def toolchain_of(spec: KernelSpec, tools: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the tools that a kernel's time depends on: those of all kernels, and its own compilers.

    Args:
        spec: The kernel.
        tools: Versions that all kernels share; those of this process if None.
    """
    return {**(toolchain() if tools is None else tools), **spec.compilers}


@lru_cache(maxsize=2)
def _toolchain(has_torch: bool) -> Mapping[str, str]:
    versions = {"triton": triton_version(), "driver": _driver()}
    if has_torch:
        torch = sys.modules["torch"]
        versions["torch"] = str(torch.__version__)
        versions["cuda"], versions["rocm"] = (str(getattr(torch.version, name, None) or "") for name in ("cuda", "hip"))
    return {name: version for name, version in sorted(versions.items()) if version}


@lru_cache(maxsize=1)
def compilers() -> tuple[str, str]:
    """The versions of Triton and NVRTC without importing them; empty texts for tools that are not installed."""
    return triton_version(), version_of("nvidia-cuda-nvrtc")


def differences(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return how the tools of a measurement differ from other ones, in words; empty where they generate equal code."""
    changes = [
        f"{name} {recorded.get(name) or 'none'}, now {now.get(name) or 'none'}"
        for name in MAKERS
        if recorded.get(name, "") != now.get(name, "")
    ]
    before, after = (_branch(versions.get("driver", "")) for versions in (recorded, now))
    if before != after and before and after:
        changes.append(f"driver {recorded['driver']}, now {now['driver']}")
    return changes


def missing(recorded: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the first tool of a measurement that is not installed here, in words; empty if all are."""
    absent = (f"{name} {recorded[name]}, now none" for name in MAKERS if recorded.get(name) and not now.get(name))
    return next(absent, "")


def _branch(driver: str) -> str:
    return driver.partition(".")[0]


def _driver() -> str:
    for file in _DRIVER_FILES:
        with suppress(OSError, UnicodeDecodeError):
            match = re.search(r"\b\d+\.\d+(?:\.\d+)*\b", file.read_text(encoding="utf-8"))
            if match:
                return match.group()
    return ""
