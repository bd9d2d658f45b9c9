"""Compiled kernels as numbers, and what weights say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constrint.kernels.resources.registers import END, Family, Margins, RegisterModel

Floats = NDArray[np.float64]
#: A count this close below the limit says what was allowed, not what was needed: allocations are rounded up to it.
NEAR_LIMIT = 3
#: Parts of a sample, or of a group in it; each is left out once.
FOLDS = 4


@dataclass(frozen=True)
class SampledKernel:
    """One compiled kernel of a sample.

    Args:
        target: What it was compiled for.
        families: Whose weights it may take, from the narrowest family to the widest.
        terms: The terms of its registers.
        registers: Registers that the compiler gave a thread.
        limit: Registers that the compiler could give a thread.
        spills: Whether registers ran out.
        is_light: Whether it spills a few bytes at most.
        counts: Whether its compiler is one that the estimate is for.
        is_ragged: Whether some rows do not allow the widest loads or stores.
        is_erratic: Whether its registers hardly follow the sizes.
        is_covered: Whether margins are raised until they cover it if it spills; else the linear programme alone is.
        weight: What losing it costs, against a kernel drawn at random.
    """

    target: str
    families: tuple[Family, ...]
    terms: Mapping[str, int]
    registers: int
    limit: int
    spills: bool
    is_light: bool = False
    counts: bool = True
    is_ragged: bool = False
    is_erratic: bool = False
    is_covered: bool = True
    weight: float = 1.0

    @property
    def is_free(self) -> bool:
        """Whether its count says what it needs."""
        return self.counts and not self.spills and self.registers < self.limit - NEAR_LIMIT


Kernels = Sequence[SampledKernel]


def folds(kernels: Kernels, seed: int) -> Iterator[tuple[list[SampledKernel], list[SampledKernel]]]:
    """Each part of the kernels in turn: the others, and the part that is left out."""
    part = np.random.default_rng(seed).permutation(len(kernels)) % FOLDS
    for number in range(FOLDS):
        left_out = [kernel for kernel, of in zip(kernels, part, strict=True) if of == number]
        yield [kernel for kernel, of in zip(kernels, part, strict=True) if of != number], left_out


def matrix(kernels: Kernels, names: Sequence[str]) -> Floats:
    """Terms as columns."""
    return np.array([[float(kernel.terms.get(name, 0)) for name in names] for kernel in kernels])


def ends_of(names: Sequence[str]) -> NDArray[np.bool_]:
    """Which terms belong to the end of a kernel."""
    return np.array([name.startswith(END) for name in names])


def larger(x: Floats, weights: Floats, ends: NDArray[np.bool_], margins: Margins = (100, 100)) -> Floats:
    """The larger of the sums over the loop's terms and over the end's, each so many percent of itself."""
    sums = np.maximum(x[:, ~ends] @ weights[~ends] * margins[0], x[:, ends] @ weights[ends] * margins[1])
    return np.asarray(sums / 100)


@dataclass(frozen=True)
class Fit:
    """Weights in hundredths by term, and margins for kernels without and with ragged rows."""

    names: Sequence[str]
    estimate: Floats
    bound: Floats
    margins: tuple[Margins, Margins] = ((0, 0), (0, 0))

    def of(self, kernels: Kernels) -> tuple[Floats, Floats]:
        """Estimate and bound of kernels."""
        x, ends = matrix(kernels, self.names), ends_of(self.names)
        bound = np.maximum(self.with_margins(kernels), larger(x, self.bound, ends))
        return np.ceil(larger(x, self.estimate, ends) / 100), np.ceil(bound / 100)

    def with_margins(self, kernels: Kernels) -> Floats:
        """The estimate with the margins that suit each kernel, in hundredths."""
        x, ends = matrix(kernels, self.names), ends_of(self.names)
        is_ragged = np.array([kernel.is_ragged for kernel in kernels])
        plain, ragged = (larger(x, self.estimate, ends, margins) for margins in self.margins)
        return np.where(is_ragged, ragged, plain)

    def is_end(self, kernels: Kernels) -> NDArray[np.bool_]:
        """Whether the estimate is that of the end."""
        x, ends = matrix(kernels, self.names), ends_of(self.names)
        return np.asarray(x[:, ends] @ self.estimate[ends] > x[:, ~ends] @ self.estimate[~ends])

    def model(self) -> RegisterModel:
        """The weights that are not zero, by name."""
        estimate, bound = (
            {name: int(weight) for name, weight in zip(self.names, weights, strict=True) if weight}
            for weights in (self.estimate, self.bound)
        )
        return RegisterModel(estimate, bound, *self.margins)
