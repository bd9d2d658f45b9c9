"""Compiled kernels as numbers, and the fit of their weights: the larger of two sums with the least mean relative error.

Only kernels whose register count shows their need are fitted. Weights of small families are drawn to those of wider
families. Needs scipy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constrint.kernels.resources.registers import END, Family

Floats = NDArray[np.float64]
#: A count within this distance of the limit shows the limit, not the need, since allocations are rounded up.
NEAR_LIMIT = 3
#: Parts of a sample; each is left out once.
FOLDS = 4
#: Pull of a target's weights to its family's: relative error per relative change of a term.
PULL = 3.0


@dataclass(frozen=True)
class SampledKernel:
    """One compiled kernel of a sample.

    Args:
        target: The target it was compiled for.
        families: Families whose weights it may take, the narrowest first.
        terms: The terms of its registers.
        registers: Registers that the compiler gave a thread.
        limit: Registers that the compiler could give a thread.
        spills: Whether registers went to memory.
        counts: Whether its compiler is the one of the estimates.
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
        """Whether its register count shows its need."""
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
    """Mask of the terms that belong to the end of a kernel."""
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


def fit_estimate(kernels: Kernels, prior: Fit | None = None) -> Fit:
    """Weights of one group in whole hundredths, near the prior where kernels are few."""
    names = sorted({name for kernel in kernels for name, term in kernel.terms.items() if term})
    free = [kernel for kernel in kernels if kernel.is_free]
    prior_weights = None
    if prior is not None:
        by_name = dict(zip(prior.names, prior.weights / 100, strict=True))
        prior_weights = np.array([by_name.get(name, 0.0) for name in names])
    counts = np.array([float(kernel.registers) for kernel in free])
    return Fit(names, np.round(100 * least_error(matrix(free, names), counts, ends_of(names), prior_weights)))


@dataclass(frozen=True)
class Loss:
    """Mean relative error of the larger of two sums, smoothed, and how far the weights are from where they start.

    Args:
        scaled: Terms per register that was counted.
        ends: Mask of the terms that belong to the end of the kernel.
        scale: Mean size of each term; the weights that are varied are multiples of it.
        centre: Weights that cost nothing.
        pull: Cost of the squared distance from the centre.
    """

    scaled: Floats
    ends: NDArray[np.bool_]
    scale: Floats
    centre: Floats
    pull: float

    def __call__(self, z: Floats, sharpness: float) -> tuple[float, Floats]:
        """Loss and gradient of scaled weights."""
        scaled, ends = self.scaled, self.ends
        weights = z / self.scale
        loop, end = scaled[:, ~ends] @ weights[~ends], scaled[:, ends] @ weights[ends]
        top = np.maximum(loop, end)
        of_loop, of_end = np.exp(sharpness * (loop - top)), np.exp(sharpness * (end - top))
        total = of_loop + of_end
        error = top + np.log(total) / sharpness - 1
        size = np.sqrt(error**2 + 1e-4)
        slope = error / size / len(scaled)
        gradient = np.zeros_like(z)
        gradient[~ends] = scaled[:, ~ends].T @ (slope * of_loop / total)
        gradient[ends] = scaled[:, ends].T @ (slope * of_end / total)
        away = z - self.centre * self.scale
        value = float(size.mean() + self.pull * (away**2).sum())
        return value, gradient / self.scale + 2 * self.pull * away


def least_error(x: Floats, counts: Floats, ends: NDArray[np.bool_], prior: Floats | None) -> Floats:
    """Weights >= 0 of the least mean relative error, near the prior where kernels are few."""
    from scipy.optimize import minimize

    scaled = x / counts[:, None]
    scale = np.sqrt((scaled**2).mean(axis=0)) + 1e-9
    if prior is None:
        start = separate_sums(scaled, ends)
        loss = Loss(scaled, ends, scale, np.zeros_like(start), 0.002)
    else:
        start = prior
        loss = Loss(scaled, ends, scale, start, PULL * 100 / len(counts))
    best = []
    # The largest of two sums has several best places; some are found only from the other side.
    for factor in (0.9, 0.5) if prior is None else (1.0,):
        z = np.where(ends, factor, 1.0) * start * scale
        for sharpness in (20.0, 60.0, 200.0):
            result = minimize(
                loss, z, args=(sharpness,), jac=True, method="L-BFGS-B",
                bounds=[(0, None)] * len(start), options={"maxiter": 300},
            )  # fmt: skip
            z = result.x
        best.append((result.fun, tuple(z / scale)))
    return np.asarray(min(best)[1])


def separate_sums(scaled: Floats, ends: NDArray[np.bool_]) -> Floats:
    """Weights >= 0 of the least squared error of the loop's sum alone, and of the end's."""
    from scipy.optimize import nnls

    weights = np.zeros(scaled.shape[1])
    for part in (~ends, ends):
        if part.any():
            weights[part], _ = nnls(scaled[:, part], np.ones(len(scaled)))
    return weights
