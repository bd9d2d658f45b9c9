"""The register model: sums of a kernel's terms with fitted weights, as integer expressions.

A kernel needs the larger of what its loop and its end hold at a time. There are two figures: an estimate, from which
occupancy follows, and a bound, which says what may spill. A kernel whose terms are all of its loop is the simple case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from constrint.errors import UnsupportedError
from constrint.model import Expr, ceildiv, const, maximum
from constrint.model.expr import add

#: Terms whose names start with this belong to the end of the kernel, the others to its loop.
END = "end_"

#: Percent of the estimate's loop and of its end.
Margins = tuple[int, int]


class RegisterModel(msgspec.Struct, frozen=True):
    """Weights of the terms in hundredths of a register.

    Args:
        estimate: Weights of the estimate.
        bound: Weights of the bound.
        margins: The bound is at least so many percent of the estimate's loop and of its end; 0 asks for nothing.
        ragged_margins: The same for kernels whose rows do not all allow the widest loads or stores.
    """

    estimate: Mapping[str, int]
    bound: Mapping[str, int]
    margins: Margins = (0, 0)
    ragged_margins: Margins = (0, 0)

    def margins_of(self, *, is_ragged: bool) -> Margins:
        """The margins for kernels with or without ragged rows."""
        return self.ragged_margins if is_ragged else self.margins


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


def weighted(weights: Mapping[str, int], terms: Mapping[str, Expr], percents: Margins = (100, 100)) -> Expr:
    """The larger of the loop's and the end's weighted sums, each so many percent of itself, in whole registers.

    Terms that a kernel does not have count as zero.
    """
    parts: tuple[list[Expr], list[Expr]] = ([], [])
    for name, weight in weights.items():
        if name in terms:
            parts[name.startswith(END)].append(weight * terms[name])
    loop, end = (add(const(0), *part) for part in parts)
    if percents == (100, 100):
        return ceildiv(maximum(loop, end) if parts[True] else loop, 100)
    return ceildiv(maximum(percents[0] * loop, percents[1] * end) if parts[True] else percents[0] * loop, 10_000)
