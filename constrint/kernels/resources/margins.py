"""A way to fit: the bound is the estimate with margins, and a linear programme for what spills nevertheless.

The estimate has the least mean relative error over kernels whose counts say what they need; weights of few kernels are
drawn to those of their family. A margin is what few large kernels exceeded when they were left out of the fit, but
never so large that it excludes a clean first choice of the model. Spilling kernels that the margins leave within their
limit are put beyond it by a linear programme that excludes as few of the others as possible. Needs scipy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.kernels.resources.fit import LEAST_POOLED
from constrint.kernels.resources.registers import Margins
from constrint.kernels.resources.scores import Fit, Floats, Kernels, SampledKernel, ends_of, folds, matrix

#: A kernel that spills has to lie this far beyond its limit.
BEYOND = 1.2
#: Weight of the bound's mean size, in clean kernels lost: only as large as it has to be.
SIZE_COST = 0.02
#: Weight of a spilling kernel that the bound calls clean, in clean kernels lost.
FALSE_FIT_COST = 300.0
#: The bound is above the estimate by what this share of kernels does not exceed it by; without enough of them, and at
#: most for their sake, by so many percent; at most for the sake of kernels that spill, by so many.
COVERED, FEW_MARGIN, MOST_MARGIN = 0.95, 50, 200
#: A kernel that spills although it was left out has to be so far beyond its limit.
MORE = 1.04
#: Percent: a first choice that takes all registers there are may be estimated to take a few more.
LEAST_MARGIN = 97
#: With so many erratic kernels of a family the bound is twice the estimate.
ERRATIC_KERNELS = 60
#: Kernels count for margins that take at least one in so many of the registers there are.
LARGE = 3
#: How strongly weights of few kernels are drawn to their family's: relative error per relative change of a term.
PULL = 3.0
#: The estimate without any margin.
NO_MARGINS: tuple[Margins, Margins] = ((100, 100), (100, 100))


def fit_with_margins(kernels: Kernels, prior: Fit | None = None) -> Fit:
    """Both figures of one group, and margins from kernels that were left out of it."""
    excesses: list[Excess] = []
    for rest, left_out in folds(kernels, len(kernels)):
        if left_out and sum(kernel.is_free for kernel in rest) >= LEAST_POOLED:
            fit = without_bound(*fit_estimate(rest, prior))
            for kernel, is_end, estimate in zip(left_out, fit.is_end(left_out), fit.of(left_out)[0], strict=True):
                excesses.append(Excess(kernel, bool(is_end), kernel.registers / estimate, kernel.limit / estimate))
    names, estimate = fit_estimate(kernels, prior)
    whole = without_bound(names, estimate)
    loops, ends = (
        [margin_of(excesses, whole, kernels, is_end=is_end, is_ragged=is_ragged) for is_ragged in (False, True)]
        for is_end in (False, True)
    )
    fit = replace(whole, margins=((loops[0], ends[0]), (loops[1], ends[1])))
    return replace(fit, bound=np.round(100 * fit_bound(kernels, replace(fit, estimate=100 * estimate))))


class Excess(NamedTuple):
    """A kernel that was left out, which part of it was estimated to be larger, its count and limit per estimate."""

    kernel: SampledKernel
    is_end: bool
    ratio: float
    room: float


def margin_of(excesses: list[Excess], fit: Fit, kernels: Kernels, *, is_end: bool, is_ragged: bool) -> int:
    """Percent of the estimate that few large kernels exceed, and none that spills, short of excluding a first choice.

    What small kernels exceed their estimate by says little about large ones.
    """
    mine = [excess for excess in excesses if excess.is_end == is_end and excess.kernel.is_ragged == is_ragged]
    large = [e.ratio for e in mine if e.kernel.is_free and LARGE * e.kernel.registers >= e.kernel.limit]
    margin = np.quantile(large, COVERED) if len(large) >= LEAST_POOLED else 1 + FEW_MARGIN / 100
    margin = MORE * min(float(margin), 1 + FEW_MARGIN / 100)
    if kernels[0].is_erratic:
        # Families that share weights are erratic each in its own way: without this 2 of 23 fresh kernels spilled.
        num_families = len({kernel.families[0].name for kernel in kernels})
        margin = max(margin, 1 + ERRATIC_KERNELS * num_families / len(kernels))
    margin = max([margin, *(MORE * e.room for e in mine if e.kernel.spills and e.kernel.is_covered)])
    most = 1 + MOST_MARGIN / 100
    first = [k for k in kernels if k.weight > 1 and not k.spills and k.is_ragged == is_ragged]
    if first:
        of_part = ends_of(fit.names) == is_end
        sums = np.maximum(1, matrix(first, fit.names)[:, of_part] @ fit.estimate[of_part] / 100)
        most = min(most, float(np.min([kernel.limit for kernel in first] / sums)))
    return max(LEAST_MARGIN, int(100 * min(margin, most)))


def fit_estimate(kernels: Kernels, prior: Fit | None) -> tuple[list[str], Floats]:
    """Names and weights of the estimate."""
    names = sorted({name for kernel in kernels for name, term in kernel.terms.items() if term})
    free = [kernel for kernel in kernels if kernel.is_free]
    known = None
    if prior is not None:
        by_name = dict(zip(prior.names, prior.estimate / 100, strict=True))
        known = np.array([by_name.get(name, 0.0) for name in names])
    counts = np.array([float(kernel.registers) for kernel in free])
    return names, least_error(matrix(free, names), counts, ends_of(names), known)


def without_bound(names: list[str], estimate: Floats) -> Fit:
    """The estimate in whole hundredths, without margins and without a bound."""
    return Fit(names, np.round(100 * estimate), np.zeros(len(names)), NO_MARGINS)


@dataclass(frozen=True)
class Loss:
    """Mean relative error of the larger of two sums, smoothed, and how far the weights are from where they start.

    Args:
        scaled: Terms per register that was counted.
        ends: Which terms belong to the end of the kernel.
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


def fit_bound(kernels: Kernels, fit: Fit) -> Floats:
    """The linear programme: spilling kernels that the margins leave below BEYOND * limit go beyond it.

    The others stay below their limit where that is possible. Which of the two sums has to be beyond the limit is what
    the estimate says is larger.
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, csr_matrix, identity

    x, ends, estimate = matrix(kernels, fit.names), ends_of(fit.names), fit.estimate / 100
    limit = np.array([kernel.limit for kernel in kernels], dtype=float)
    spills = np.array([kernel.spills for kernel in kernels])
    kept = spills & (fit.with_margins(kernels) / 100 <= BEYOND * limit)
    if not kept.any():
        return np.zeros(x.shape[1])
    clean = ~spills
    is_end = x[:, ends] @ estimate[ends] > x[:, ~ends] @ estimate[~ends]
    meant = np.where(ends[None, :] == is_end[:, None], x, 0.0)
    shares = x / limit[:, None]
    num_clean, num_kept = int(clean.sum()), int(kept.sum())
    excess, missed = identity(num_clean), identity(num_kept)
    rows = [
        [csr_matrix(shares[clean] * ~ends), -excess, None],
        [csr_matrix(shares[clean] * ends), -excess, None],
        [csr_matrix(-meant[kept] / limit[kept, None]), None, -missed],
    ]
    # A little below the limit: weights are rounded, and sums of them up.
    right = [0.98] * (2 * num_clean) + [-BEYOND] * num_kept
    weight = np.array([kernel.weight for kernel in kernels])[clean]
    costs = np.concatenate([SIZE_COST * shares.mean(axis=0) * len(x), weight, FALSE_FIT_COST * np.ones(num_kept)])
    result = linprog(costs, A_ub=bmat(rows, format="csr"), b_ub=right, bounds=(0, None), method="highs")
    return np.asarray(result.x[: x.shape[1]])
