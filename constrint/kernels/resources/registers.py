"""The register model: sums of a kernel's terms with fitted weights, as integer expressions.

A kernel needs the larger of what its loop and its end hold at a time. From this estimate follow occupancy and, by a
curve, the chance that the kernel spills. A kernel whose terms are all of its loop is the simple case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from constrint.errors import UnsupportedError
from constrint.model import Expr, ceildiv, const, maximum
from constrint.model.expr import add
from constrint.select.limits import Spilling

#: Terms whose names start with this belong to the end of the kernel, the others to its loop.
END = "end_"


class RegisterModel(msgspec.Struct, frozen=True):
    """Weights of the terms, and how likely what they add up to spills.

    Args:
        estimate: Weights of the terms in hundredths of a register.
        at_percent: Percent of the most registers at which every other kernel spills.
        slope_tenths: How steep the chance of spilling is; see `Spilling`.
        error_percent: What one estimate in ten is off by at least, in percent of the true count; of kernels that were
            left out of the fit.
    """

    estimate: Mapping[str, int]
    at_percent: int
    slope_tenths: int
    error_percent: int

    @property
    def spilling(self) -> Spilling:
        """The curve as a block's limits take it."""
        return Spilling.of(self.at_percent, self.slope_tenths, self.error_percent)


class Family(NamedTuple):
    """A group of kernels that may share weights.

    Args:
        name: Name of the weights for any target.
        own: Name of the weights for the target alone; empty where targets have none of their own.
    """

    name: str
    own: str = ""


def name_of_weights(families: Sequence[Family], known: Collection[str]) -> str:
    """The nearest weights there are: from the narrowest family to the widest, the target's own first.

    Raises:
        UnsupportedError: When none of the families has weights.
    """
    for family in families:
        for name in (family.own, family.name):
            if name in known:
                return name
    tried = ", ".join(repr(family.name) for family in families)
    raise UnsupportedError(f"there are no register weights for {tried}. Compile a sample and fit it.")


def weighted(weights: Mapping[str, int], terms: Mapping[str, Expr]) -> Expr:
    """The larger of the loop's and the end's weighted sums, in whole registers.

    Terms that a kernel does not have count as zero.
    """
    parts: tuple[list[Expr], list[Expr]] = ([], [])
    for name, weight in weights.items():
        if name in terms:
            parts[name.startswith(END)].append(weight * terms[name])
    loop, end = (add(const(0), *part) for part in parts)
    return ceildiv(maximum(loop, end) if parts[True] else loop, 100)


def either(use: Expr, first: Spilling, second: Spilling) -> Spilling:
    """The first curve where `use` is 1, the second where it is 0."""

    def chosen(a: Expr | int, b: Expr | int) -> Expr | int:
        return a if isinstance(a, int) and a == b else use * a + (1 - use) * b

    return Spilling(
        chosen(first.at_percent, second.at_percent),
        chosen(first.slope_tenths, second.slope_tenths),
        chosen(first.clear_percent, second.clear_percent),
        chosen(first.error_percent, second.error_percent),
    )
