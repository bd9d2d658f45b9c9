"""Versions of Triton that the GEMM's resource rules are checked with."""

from __future__ import annotations

from collections.abc import Mapping

#: Version -> evidence. Layouts, and with them shared memory and registers, change between versions.
VERIFIED: Mapping[str, str] = {
    "3.6": "compiled for six targets (tests/data/triton_gemm_space_3_6.csv), run on an H200",
    "3.9": "compiled for 13 targets (tests/data/triton_gemm_space.csv)",
}


def is_verified(version: str) -> bool:
    """Whether the rules are checked with this version, whatever its patch level."""
    return ".".join(version.split(".")[:2]) in VERIFIED


def caution(version: str) -> str:
    """Warning for a user of another version; empty for a verified one."""
    if is_verified(version):
        return ""
    return (
        f"the resource rules are checked with Triton {' and '.join(VERIFIED)}, not with {version}: shared memory and "
        f"registers may differ from the model. Compare them with `constrint verify`, or install one of those versions."
    )
