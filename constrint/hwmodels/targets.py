"""Targets that kernels are compiled for: which ones a vendor has, and what is said of one that constrint does not know.

A GPU that is prepared before constrint knows its target can be loaded: its file is checked for form, and whatever
depends on the target names the nearest one whose rules stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from constrint.errors import UnsupportedError

if TYPE_CHECKING:
    from constrint.hwmodels.schema import GpuModel

#: A broken rule of a GPU's file: the key's path, and the rule.
Finding = tuple[str, str]


def target_findings(gpu: GpuModel) -> Iterator[Finding]:
    """A target that its vendor cannot have, and a known one of another family."""
    maker, target = gpu.maker, gpu.arch.target
    if maker.target_pattern and not re.fullmatch(maker.target_pattern, target):
        yield "arch.target", f"{target!r} is no target of {maker.title}'s: write {maker.target_form}"
    family = maker.targets.get(target)
    if family is not None and family != gpu.arch.family:
        yield "arch.family", f"{gpu.arch.family!r} is not the family of {target}, which is {family!r}"


def nearest_target(gpu: GpuModel) -> str:
    """The known target whose number is nearest; empty where the vendor states none."""
    maker = gpu.maker
    number = maker.target_number(gpu.arch.target)
    return min(maker.targets, key=lambda known: abs(maker.target_number(known) - number), default="")


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
    """What is assumed of a target that constrint does not know; empty for a known one."""
    nearest = nearest_target(gpu)
    if not nearest or gpu.arch.target in gpu.maker.targets:
        return ""
    return (
        f"{gpu.arch.target} is no target that constrint knows (nearest: {nearest}): registers and shared memory are "
        "estimated by rules that were fitted to other targets"
    )
