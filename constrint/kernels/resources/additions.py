"""A way to fit kernels without an end of their own: the bound is a multiple of the estimate and additions to its terms.

The estimate has the least mean relative error over kernels whose counts say what they need. The bound is a linear
programme: every kernel that spills lies beyond its limit, and as few of the others as possible do. Needs scipy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constrint.kernels.resources.scores import Fit, Floats, Kernels, matrix

#: Weight of a spilling kernel that the bound calls clean, in clean kernels lost; and of one that spills a little,
#: times its weight in the sample.
FALSE_FIT_COST, LIGHT_FIT_COST = 300.0, 3.0
#: Weights of the bound's mean size, and of a clean kernel that takes more than the bound, in clean kernels lost.
SIZE_COST, SHORTFALL_COST = 0.05, 0.5
#: Steps of the re-weighted least squares, and the relative error below which all errors weigh the same.
STEPS, LEAST_ERROR = 40, 0.01


@dataclass(frozen=True)
class Additions:
    """The method, called as `Additions(...)(kernels)`.

    Args:
        beyond: A kernel that spills has to lie this far beyond its limit.
        added_cost: Weight of what is added to the estimate for the bound, against a multiple of it.
    """

    beyond: float
    added_cost: float

    def __call__(self, kernels: Kernels, prior: Fit | None = None) -> Fit:
        """Both figures of one group; the prior is not used."""
        names = list(dict.fromkeys(name for kernel in kernels for name in kernel.terms))
        free = [kernel for kernel in kernels if kernel.is_free]
        estimate = least_error(matrix(free, names), np.array([float(kernel.registers) for kernel in free]))
        bound = self.fit_bound(matrix(kernels, names), kernels, estimate)
        return Fit(names, np.round(100 * estimate), np.round(100 * bound))

    def fit_bound(self, x: Floats, kernels: Kernels, estimate: Floats) -> Floats:
        """The linear programme: spilling kernels beyond their limit, others below it but above their count."""
        from scipy.optimize import linprog

        x = np.hstack([x, (x @ estimate)[:, None]])
        limit = np.array([kernel.limit for kernel in kernels], dtype=float)
        count = np.array([kernel.registers for kernel in kernels], dtype=float)
        spills = np.array([kernel.spills for kernel in kernels])
        clean = ~spills
        num_clean, num_spills, num_terms = int(clean.sum()), int(spills.sum()), x.shape[1]
        excess, shortfall, missed = np.eye(num_clean), np.eye(num_clean), np.eye(num_spills)
        no_clean, no_spills = np.zeros((num_clean, num_clean)), np.zeros((num_clean, num_spills))
        rows = [
            np.hstack([x[clean] / limit[clean, None], -excess, no_clean, no_spills]),
            np.hstack([-x[clean] / count[clean, None], no_clean, -shortfall, no_spills]),
            np.hstack([-x[spills] / limit[spills, None], no_spills.T, no_spills.T, -missed]),
        ]
        # A little below the limit: weights are rounded, and sums of them up.
        right = np.concatenate([0.98 * np.ones(num_clean), -np.ones(num_clean), -self.beyond * np.ones(num_spills)])
        size = (x[clean] / count[clean, None]).mean(axis=0)
        size[:-1] *= self.added_cost
        weight, is_light = (np.array([getattr(kernel, name) for kernel in kernels]) for name in ("weight", "is_light"))
        missing = np.where(is_light, LIGHT_FIT_COST * weight, FALSE_FIT_COST)[spills]
        costs = [SIZE_COST * size, weight[clean], SHORTFALL_COST * np.ones(num_clean), missing]
        result = linprog(np.concatenate(costs), A_ub=np.vstack(rows), b_ub=right, bounds=(0, None), method="highs")
        return np.asarray(result.x[: num_terms - 1] + result.x[num_terms - 1] * estimate)


def least_error(x: Floats, counts: Floats) -> Floats:
    """Weights >= 0 of the least mean relative error: re-weighted least squares."""
    from scipy.optimize import nnls

    scaled, ones = x / counts[:, None], np.ones(len(counts))
    weights, _ = nnls(scaled, ones)
    for _ in range(STEPS):
        row = 1 / np.sqrt(np.maximum(np.abs(scaled @ weights - ones), LEAST_ERROR))
        weights, _ = nnls(scaled * row[:, None], ones * row)
    return np.asarray(weights)
