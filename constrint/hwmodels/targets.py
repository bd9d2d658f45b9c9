"""Compilation targets: the targets of a vendor, and the rules for a target that constrint does not know.

A GPU that is prepared before constrint knows its target can be loaded: its file is checked for form, and whatever
depends on the target names the nearest one whose rules stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from constrint.errors import UnsupportedError
from constrint.hwmodels.vendors import list_vendors

if TYPE_CHECKING:
    from constrint.hwmodels.schema import GpuModel
    from constrint.hwmodels.vendors.interface import Vendor

#: A broken rule of a GPU's file: the key's path, and the rule.
Finding = tuple[str, str]


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
