"""The register model: weighted sums of a kernel's terms as integer expressions, and the fitted weights in `data/`.

A kernel needs the larger of two sums: of the terms of its main loop, and of the terms of its epilogue. The estimate
gives the occupancy, and by a logistic curve the chance that the kernel spills. A kernel may have no epilogue terms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from constrint.errors import UnsupportedError
from constrint.model import Expr, ceildiv, const, maximum
from constrint.model.expr import add
from constrint.select.limits import Spilling

#: Terms whose names start with this belong to the end of the kernel, the others to its loop.
END = "end_"
DATA = Path(__file__).parent / "data"


class RegisterModel(msgspec.Struct, frozen=True):
    """Weights of the terms, and the chance that their sum spills.

    Args:
        estimate: Weights of the terms in hundredths of a register.
        at_percent: Percent of the register limit at which half of the kernels spill.
        slope_tenths: Steepness of the chance of spilling; see `Spilling`.
        error_percent: The 90th percentile of the estimate's error in percent, for kernels left out of the fit.
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


def name_of_weights(families: Sequence[Family], available: Collection[str]) -> str:
    """Return the name of the most specific weights: the narrowest family first, the target's own before the shared.

    Raises:
        UnsupportedError: When none of the families has weights.
    """
    for family in families:
        for name in (family.own, family.name):
            if name in available:
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


class LeftOut(msgspec.Struct, frozen=True):
    """The quality of estimates and chances, for kernels that were left out of the fit.

    Args:
        counts: Kernels whose register count shows their need.
        median_error: Median relative error of their estimates, in percent.
        p90_error: 90th percentile of that error, in percent.
        kernels: All kernels.
        spilled: Kernels that spill.
        expected: The sum of the predicted chances to spill; equal to `spilled` for calibrated chances.
        log_loss: Mean of -ln(predicted chance of the outcome): 0 for certainty, 0.69 for a coin.
    """

    counts: int
    median_error: float | None
    p90_error: float | None
    kernels: int
    spilled: int
    expected: float
    log_loss: float


class FittedModel(RegisterModel, frozen=True, kw_only=True):
    """Weights, and the measurements that they were fitted to.

    Args:
        targets: Targets of the kernels that the weights were fitted to.
        kernels: The number of these kernels.
        left_out: The quality for the kernels that take these weights; null where every recorded target has weights of
            its own, or where there are too few kernels to leave some out.
    """

    targets: tuple[str, ...]
    kernels: int
    left_out: LeftOut | None


class Weights(msgspec.Struct, frozen=True):
    """One kernel's file of weights.

    Args:
        compilers: Compilers of the sample.
        fitted_on: Date of the fit.
        command: The command that wrote the file.
        models: Weights by family of kernels.
    """

    compilers: tuple[str, ...]
    fitted_on: str
    command: str
    models: dict[str, FittedModel]


@cache
def load_models(kernel: str) -> Mapping[str, FittedModel]:
    """The weights of a kernel by family."""
    return read_weights(DATA / f"{kernel}.json").models


def read_weights(path: Path) -> Weights:
    """Read a file of weights."""
    return msgspec.json.decode(path.read_bytes(), type=Weights)
