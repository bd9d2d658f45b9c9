"""The chance that a kernel spills, from what it is estimated to need over what it may have: a logistic curve.

The curve is fitted to estimates of kernels that were left out of the weights' fit: estimates of kernels that were in it
are too good. Few kernels spill in any one family, so that its curve is drawn to that of all families. Needs scipy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from constrint.kernels.resources.scores import Floats, SampledKernel

#: Where the curve of all kernels is drawn to (ln of the place and of the slope), and how strongly: one standard
#: deviation of each.
USUAL, USUAL_SPREAD = (np.log(1.1), np.log(7.0)), (0.5, 0.5)
#: How far a family's curve may easily be from that of all kernels, likewise.
SPREAD = (0.15, 0.35)
#: Chances at which calibration is looked at: between each two of them.
STEPS = (0.0, 0.02, 0.1, 0.3, 0.7, 0.9, 0.98, 1.0)


class Judged(NamedTuple):
    """A kernel, and what weights that have not seen it say of it."""

    kernel: SampledKernel
    estimate: float

    @property
    def logit_share(self) -> float:
        """Logarithm of what it is estimated to need over what it may have."""
        return float(np.log(max(self.estimate, 1.0) / self.kernel.limit))


class Curve(NamedTuple):
    """Chance = 1 / (1 + exp(-slope (x - at))) of x = ln(registers / most)."""

    at: float
    slope: float

    def chances(self, x: Floats) -> Floats:
        """The chance at each place."""
        return np.asarray(1.0 / (1.0 + np.exp(-self.slope * (x - self.at))))

    def rounded(self) -> tuple[int, int]:
        """Percent of the most registers, and tenths of the slope."""
        return round(100 * float(np.exp(self.at))), max(1, round(10 * self.slope))


def fit_curve(results: Sequence[Judged], prior: Curve | None = None) -> Curve:
    """The likeliest curve near the prior, or near what is usual."""
    from scipy.optimize import minimize

    x = np.array([result.logit_share for result in results])
    spills = np.array([float(result.kernel.spills) for result in results])
    centre = np.array(USUAL if prior is None else (prior.at, np.log(prior.slope)))
    spread = np.array(USUAL_SPREAD if prior is None else SPREAD)

    def loss(z: Floats) -> float:
        logit = np.exp(z[1]) * (x - z[0])
        likelihood = np.logaddexp(0.0, logit) - spills * logit
        return float(likelihood.sum() + 0.5 * (((z - centre) / spread) ** 2).sum())

    at, slope = minimize(loss, centre, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6}).x
    return Curve(float(at), float(np.exp(slope)))


class Calibration(NamedTuple):
    """Kernels whose chance lies between two steps: how many, the mean chance, and how many spilled."""

    least: float
    most: float
    kernels: int
    mean_chance: float
    spilled: int


def calibration(chances: Iterable[float], spills: Iterable[bool]) -> list[Calibration]:
    """How often kernels spilled, by the chance that was given them."""
    p, y = np.array(list(chances), dtype=float), np.array(list(spills), dtype=bool)
    rows = []
    for least, most in pairwise(STEPS):
        inside = (p >= least) & ((p < most) | (most == 1.0))
        mean = float(p[inside].mean()) if inside.any() else 0.0
        rows.append(Calibration(least, most, int(inside.sum()), mean, int(y[inside].sum())))
    return rows
