"""Compiled kernels as numbers, and what weights say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constrint.kernels.resources.registers import END, Family

Floats = NDArray[np.float64]
#: A count this close below the limit says what was allowed, not what was needed: allocations are rounded up to it.
NEAR_LIMIT = 3
#: Parts of a sample; each is left out once.
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
        spills: Whether registers went to memory.
        counts: Whether its compiler is one that the estimate is for.
    """

    target: str
    families: tuple[Family, ...]
    terms: Mapping[str, int]
    registers: int
    limit: int
    spills: bool
    counts: bool = True

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


@dataclass(frozen=True)
class Fit:
    """Weights in hundredths by term."""

    names: Sequence[str]
    weights: Floats

    def of(self, kernels: Kernels) -> Floats:
        """Estimated registers: the larger of the sums over the loop's terms and over the end's."""
        x, ends = matrix(kernels, self.names), ends_of(self.names)
        sums = np.maximum(x[:, ~ends] @ self.weights[~ends], x[:, ends] @ self.weights[ends])
        return np.asarray(np.maximum(1, np.ceil(sums / 100)))

    def to_plain(self) -> dict[str, int]:
        """The weights that are not zero, by name."""
        return {name: int(weight) for name, weight in zip(self.names, self.weights, strict=True) if weight}
