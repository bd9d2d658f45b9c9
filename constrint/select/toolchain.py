"""The tools that a measurement rests on, by version, and whether they are the ones of now."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from constrint.select.compiled import triton_version

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec

#: What has to be the same for a measured choice to be launched: these make the code. Of the driver, its branch.
MAKERS = ("triton", "cuda", "rocm", "nvrtc")
_DRIVER_FILES = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))


def toolchain() -> Mapping[str, str]:
    """Versions by name: `triton`, `torch`, `cuda` or `rocm`, `driver`; what is not there is left out.

    Torch is asked only where it has been imported: what is launched comes with it.
    """
    return _toolchain(sys.modules.get("torch") is not None)


def toolchain_of(spec: KernelSpec, tools: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The tools that a measurement of a kernel rests on: those of every kernel, and what else compiles this one.

    Args:
        spec: The kernel.
        tools: Those of every kernel; of this process if None.
    """
    return {**(toolchain() if tools is None else tools), **spec.compilers}


@lru_cache(maxsize=2)
def _toolchain(has_torch: bool) -> Mapping[str, str]:
    found = {"triton": triton_version(), "driver": _driver()}
    if has_torch:
        torch = sys.modules["torch"]
        found["torch"] = str(torch.__version__)
        found["cuda"], found["rocm"] = (str(getattr(torch.version, name, None) or "") for name in ("cuda", "hip"))
    return {name: version for name, version in sorted(found.items()) if version}


def differences(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What makes a measurement one of other tools, in words; empty where it is one of these."""
    told = [
        f"{name} {recorded.get(name) or 'none'}, now {now.get(name) or 'none'}"
        for name in MAKERS
        if recorded.get(name, "") != now.get(name, "")
    ]
    before, after = (_branch(versions.get("driver", "")) for versions in (recorded, now))
    if before != after and before and after:
        told.append(f"driver {recorded['driver']}, now {now['driver']}")
    return told


def _branch(driver: str) -> str:
    return driver.partition(".")[0]


def _driver() -> str:
    for file in _DRIVER_FILES:
        with suppress(OSError, UnicodeDecodeError):
            found = re.search(r"\b\d+\.\d+(?:\.\d+)*\b", file.read_text(encoding="utf-8"))
            if found:
                return found.group()
    return ""
