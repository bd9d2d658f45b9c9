"""Versions of Triton: the installed one, those that the resource rules are checked with, and how compilers differ.

To add a version, run `benchmarks/registers.py sample` and `check` with it, write its line in `CHECKED`, and name its
tables in the samples of the kernels. Nothing else lists versions. With another version the rules of `NEWEST` hold, a
warning says so once, and kernels are looked at as compiled before they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple


class CheckedVersion(NamedTuple):
    """A version that the resource rules are checked with.

    Args:
        evidence: The tables of compiled kernels that the rules were compared with.
        reads_weights_again: NVIDIA: a weight that a dot before a loop and a dot in the loop use comes from shared
            memory in every step, instead of staying in registers.
        copies_on_cdna4: gfx950: a pipelined loop copies past the registers, into one padded buffer per stage.
        keeps_both_halves: sm_100: a persistent block keeps both halves of bare 32-bit sums in memory of their own.
        keeps_two_layouts: AMD: weights that a dot before a loop and one in the loop read in two layouts stay in LDS.
    """

    evidence: str
    reads_weights_again: bool = False
    copies_on_cdna4: bool = True
    keeps_two_layouts: bool = True
    keeps_both_halves: bool = False


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
