"""The tools that a measurement depends on, by version, how they differ from those of this process, and keys of results.

To add a version of Triton, run `benchmarks/registers.py sample` and `check` with it, write its line in `CHECKED`, and
name its tables in the samples of the kernels. Nothing else lists versions. With another version the rules of `NEWEST`
hold, a warning says so once, and kernels are looked at as compiled before they run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from constrint.hwmodels import GpuModel
from constrint.hwmodels.load import content_of

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec


class CheckedVersion(NamedTuple):
    """A version that the resource rules are checked with.

    Args:
        evidence: The tables of compiled kernels that the rules were compared with.
        reads_weights_again: NVIDIA: a weight that a dot before a loop and a dot in the loop use comes from shared
            memory in every step, instead of staying in registers.
        copies_on_cdna4: gfx950: a pipelined loop copies past the registers, into one padded buffer per stage.
        keeps_both_halves: sm_100: a persistent block keeps both halves of bare 32-bit sums in memory of their own.
        fails_on_one_pack: gfx942: no tf32 dot compiles whose tile is no deeper than the slices that `kpack` = 2 joins.
        keeps_two_layouts: AMD: weights that a dot before a loop and one in the loop read in two layouts stay in LDS.
    """

    evidence: str
    reads_weights_again: bool = False
    copies_on_cdna4: bool = True
    keeps_two_layouts: bool = True
    keeps_both_halves: bool = False
    fails_on_one_pack: bool = False


#: By major and minor number.
CHECKED: Mapping[str, CheckedVersion] = {
    "3.6": CheckedVersion("compiled for six targets (tests/data/triton_gemm_space_3_6.csv), run on an H200"),
    "3.7": CheckedVersion(
        "compiled for six targets (tests/data/triton_gemm_space_3_7.csv)",
        copies_on_cdna4=False,
        keeps_two_layouts=False,
    ),
    "3.8": CheckedVersion(
        "compiled for six targets (tests/data/triton_gemm_space_3_8.csv)",
        reads_weights_again=True,
        keeps_both_halves=True,
        fails_on_one_pack=True,
    ),
    "3.9": CheckedVersion("compiled for 13 targets (tests/data/triton_gemm_space.csv)"),
}
#: The version whose rules hold where another one or none is installed.
NEWEST = "3.9"


@lru_cache(maxsize=1)
def triton_version() -> str:
    """Triton's version without importing it; empty where it is not installed."""
    return version_of("triton")


def version_of(package: str) -> str:
    """The version of an installed package; empty where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long to import as all else here

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def rules_of(version: str) -> CheckedVersion:
    """The version whose rules hold under a version, whatever its patch level."""
    return CHECKED.get(_minor(version), CHECKED[NEWEST])


def key_of(gpu: GpuModel, specs: Iterable[KernelSpec], *facts: object) -> bytes | None:
    """The key of a result that depends on a GPU's model, on kernels, on Triton's version, and on further facts.

    Triton's version decides which resource rules hold, and what is known of a measurement.

    Args:
        gpu: The hardware model, all of which counts.
        specs: The kernels.
        facts: Numbers, texts, and tuples of them.

    Returns:
        None where a vendor or a kernel comes from another package: nothing on disk tells that its code has changed.
    """
    specs = tuple(specs)
    if not all(home.startswith("constrint.") for home in (type(gpu.maker).__module__, *(spec.home for spec in specs))):
        return None
    names = tuple(spec.full_name for spec in specs)
    return content_of(gpu) + repr((names, triton_version(), facts)).encode()


def is_verified(version: str) -> bool:
    """Whether the rules are checked with this version, whatever its patch level."""
    return _minor(version) in CHECKED


def caution(version: str) -> str:
    """Warning for a user of another version; empty for a verified one."""
    if is_verified(version):
        return ""
    *others, last = CHECKED
    return (
        f"the resource rules are checked with Triton {', '.join(others)} and {last}, not with {version}: shared memory "
        f"and registers may differ from the model. Compare them with `constrint verify`, or install one of those "
        f"versions."
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


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
