"""How much longer than predicted configurations take: a Gaussian process over parameters and parts of the cost model.

What it learns is the logarithm of measured over predicted time. Two configurations are expected to be off alike where
they are of one kernel, near each other, or bound by the same resources; those of another workload likewise, the more so
the more alike the workloads are.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import numpy as np

from constrint.tune.search.points import Floats, Points


@dataclass(frozen=True)
class Prior:
    """Standard deviations of what the logarithm of measured over predicted time is made of.

    Args:
        level: Of a whole workload.
        kernel: Of one implementation.
        parts: Of each part of the model, for a configuration that is bound by it alone.
        near: Of what neighbouring configurations have in common.
        reach: How far that goes, in powers of two of a parameter.
        others: Correlation of `near` between two implementations.
        alone: Of what a configuration has in common with no other.
        noise: Of a measurement.
        shared: Correlation of all but the level between the most different workloads.
        resemblance: How alike workloads are, in powers of two of a size.
    """

    level: float = 0.10
    kernel: float = 0.04
    parts: float = 0.05
    near: float = 0.06
    reach: float = 3.0
    others: float = 0.5
    alone: float = 0.01
    noise: float = 0.01
    shared: float = 0.3
    resemblance: float = 3.0


class Regression:
    """The posterior over a growing set of points, updated measurement by measurement.

    Args:
        prior: What is expected beforehand.
        points: The points, those of other workloads among them.
        distances: Between workloads, by their numbers, in powers of two of their sizes.
    """

    def __init__(self, prior: Prior, points: Points, distances: Floats) -> None:
        self.prior, self.points = prior, points
        self._alike = prior.shared + (1.0 - prior.shared) * np.exp(-0.5 * np.square(distances / prior.resemblance))
        self.mean = np.zeros(len(points))
        self.variance = self._own(points)
        self._told: list[int] = []
        # Of the Cholesky factor of the told points' covariance, continued to all points: a row for each told one.
        self._factor = np.zeros((0, len(points)))
        self._scales: list[float] = []
        self._rest = np.zeros(0)

    def copy(self) -> Regression:
        """One that hears of further measurements without this one's knowing."""
        other = copy(self)
        other._told, other._scales = list(self._told), list(self._scales)
        return other

    def learn(self, row: int, log_ratio: float, noise: float | None = None) -> None:
        """Hear of one point's measurement."""
        covariance = self._covariance(row, self.points)
        covariance[row] += self.prior.alone**2
        if self._told:
            covariance = covariance - self._factor[:, row] @ self._factor
        scale = math.hypot(math.sqrt(max(float(covariance[row]), 0.0)), self.prior.noise if noise is None else noise)
        fresh = covariance / scale
        rest = (log_ratio - self.mean[row]) / scale
        self.mean = self.mean + rest * fresh
        self.variance = np.maximum(self.variance - np.square(fresh), 0.0)
        self._told.append(row)
        self._scales.append(scale)
        self._factor = np.vstack([self._factor, fresh])
        self._rest = np.append(self._rest, rest)

    def extend(self, points: Points) -> None:
        """Add points, of which nothing was measured."""
        fresh = np.zeros((len(self._told), len(points)))
        for place, row in enumerate(self._told):
            above = self._factor[:place, row] @ fresh[:place]
            fresh[place] = (self._covariance(row, points) - above) / self._scales[place]
        self.points = Points.joined([self.points, points])
        self.mean = np.concatenate([self.mean, self._rest @ fresh])
        self.variance = np.concatenate(
            [self.variance, np.maximum(self._own(points) - np.square(fresh).sum(axis=0), 0.0)]
        )
        self._factor = np.hstack([self._factor, fresh])

    def _own(self, points: Points) -> Floats:
        p = self.prior
        shared = p.level**2 + p.kernel**2 + p.near**2 + p.alone**2
        return shared + p.parts**2 * np.square(points.shares).sum(axis=1)

    def _covariance(self, row: int, others: Points) -> Floats:
        """Of one point with others, without what each has alone."""
        p, own = self.prior, self.points
        same = (others.kernel == own.kernel[row]).astype(np.float64)
        distance = np.square((others.at - own.at[row]) / p.reach).sum(axis=1)
        near = p.near**2 * np.exp(-0.5 * distance) * np.where(same, 1.0, p.others)
        parts = p.parts**2 * (others.shares @ own.shares[row])
        level = p.level**2 * (others.workload == own.workload[row])
        alike = self._alike[own.workload[row], others.workload]
        return np.asarray(level + alike * (p.kernel**2 * same + parts + near), dtype=np.float64)
