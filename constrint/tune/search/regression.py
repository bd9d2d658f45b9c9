"""The error of predicted times: a Gaussian process over parameters and parts of the cost model.

It learns the logarithm of measured over predicted time. The errors of two configurations correlate where they are near
each other, of one kernel, or bound by the same resources; across workloads they correlate less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from constrint.select.candidates import Rows
from constrint.tune.search.points import ConfigPoints, Floats

#: Most negative eigenvalue of a correlation matrix that is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Prior:
    """Standard deviations of the components of the log ratio of measured over predicted time.

    The defaults have about the largest likelihood on 600 configurations near the best of 13 products on an H200; how
    workloads resemble each other was chosen on these and on 76 recurrent layers.

    Args:
        level: Component of all workloads.
        own_level: Component of one workload.
        kernel: Component of one implementation.
        parts: Component of each cost part, for a configuration bound by it alone.
        near: Component of neighbouring configurations.
        reach: Length scale of the neighbourhood, in powers of two of a parameter.
        kernels: Correlation of the neighbourhood between two implementations.
        alone: Component of a configuration with all its orders and knobs.
        variant: Component of a single configuration.
        noise: Noise of a measurement.
        elsewhere: Noise of a measurement of another run.
        resemblance: Length scale between workloads, in powers of two of a size.
        far: Correlation between distant workloads.
    """

    level: float = 0.17
    own_level: float = 0.02
    kernel: float = 0.03
    parts: float = 0.14
    near: float = 0.085
    reach: float = 2.7
    kernels: float = 0.93
    alone: float = 0.01
    variant: float = 0.008
    noise: float = 0.01
    elsewhere: float = 0.03
    resemblance: float = 2.0
    far: float = 0.2


class Regression:
    """The posterior over a growing set of points, updated measurement by measurement.

    Args:
        prior: The prior.
        points: All points, those of other workloads included.
        distances: Distances between workloads, by their numbers, in powers of two of a size.
    """

    def __init__(self, prior: Prior, points: ConfigPoints, distances: Floats) -> None:
        self.prior, self.points = prior, points
        similarity = prior.far + (1.0 - prior.far) * np.exp(-0.5 * np.square(distances / prior.resemblance))
        self._similarity = _correlations(similarity)
        self.mean = np.zeros(len(points))
        self.variance = self._own(points)
        self._rows: list[int] = []
        # Cholesky factor of the measured points' covariance, continued to all points: a row per measured point.
        self._factor = np.zeros((0, len(points)))
        self._scales: list[float] = []
        self._rest: list[float] = []

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """Forget afterwards what is learnt inside the block; no points may be added inside."""
        mean, variance, number = self.mean, self.variance, len(self._rows)
        try:
            yield
        finally:
            self.mean, self.variance = mean, variance
            for column in (self._rows, self._scales, self._rest):
                del column[number:]

    def learn(self, row: int, log_ratio: float) -> None:
        """Learn one point's measurement."""
        number = len(self._rows)
        covariance = self._covariances(np.array([row]), self.points)[0]
        if number:
            covariance -= self._factor[:number, row] @ self._factor[:number]
        scale = math.hypot(math.sqrt(max(float(covariance[row]), 0.0)), self.prior.noise)
        fresh = covariance / scale
        rest = (log_ratio - self.mean[row]) / scale
        self.mean = self.mean + rest * fresh
        self.variance = np.maximum(self.variance - np.square(fresh), 0.0)
        if number == len(self._factor):
            self._factor = np.vstack([self._factor, np.zeros((max(8, number // 4), len(self.points)))])
        self._factor[number] = fresh
        self._rows.append(row)
        self._scales.append(scale)
        self._rest.append(rest)

    def learn_first(self, log_ratios: Floats) -> None:
        """Learn the first points' measurements at once, before any other."""
        rows = np.arange(len(log_ratios))
        among = self._covariances(rows, self.points.take(rows))
        among[rows, rows] += self.prior.elsewhere**2
        lower = np.linalg.cholesky(among)
        covariance = self._covariances(rows, self.points)
        self._factor = np.linalg.solve(lower, covariance)
        rest = np.linalg.solve(lower, log_ratios)
        self.mean = rest @ self._factor
        self.variance = np.maximum(self.variance - np.square(self._factor).sum(axis=0), 0.0)
        self._rows, self._scales, self._rest = rows.tolist(), np.diag(lower).tolist(), rest.tolist()

    def extend(self, points: ConfigPoints) -> None:
        """Add unmeasured points."""
        fresh = np.zeros((len(self._factor), len(points)))
        covariances = self._covariances(np.array(self._rows, dtype=np.int64), points)
        for place, row in enumerate(self._rows):
            above = self._factor[:place, row] @ fresh[:place]
            fresh[place] = (covariances[place] - above) / self._scales[place]
        self.points = ConfigPoints.joined([self.points, points])
        self.mean = np.concatenate([self.mean, np.array(self._rest) @ fresh[: len(self._rest)]])
        self.variance = np.concatenate(
            [self.variance, np.maximum(self._own(points) - np.square(fresh).sum(axis=0), 0.0)]
        )
        self._factor = np.hstack([self._factor, fresh])

    def _own(self, points: ConfigPoints) -> Floats:
        """Prior variance of points."""
        p = self.prior
        shared = p.level**2 + p.own_level**2 + p.kernel**2 + p.near**2 + p.alone**2 + p.variant**2
        return np.asarray(shared + p.parts**2 * np.square(points.shares).sum(axis=1), dtype=np.float64)

    def _covariances(self, rows: Rows, others: ConfigPoints) -> Floats:
        """Prior covariances of some points with others."""
        p, own = self.prior, self.points.take(rows)
        is_same = own.workload[:, None] == others.workload
        is_kernel = own.kernel[:, None] == others.kernel
        apart = own.squares[:, None] + others.squares - 2.0 * own.at @ others.at.T
        distance = math.sqrt(3.0) / p.reach * np.sqrt(np.maximum(apart, 0.0))
        # Matern's covariance of smoothness 3/2.
        near = (1.0 + distance) * np.exp(-distance) * np.where(is_kernel, 1.0, p.kernels)
        like = p.parts**2 * (own.shares @ others.shares.T) + p.near**2 * near
        like += p.kernel**2 * is_kernel
        like += p.alone**2 * (own.core[:, None] == others.core) + p.variant**2 * (own.whole[:, None] == others.whole)
        similarity = self._similarity[own.workload[:, None], others.workload]
        return np.asarray(p.level**2 + p.own_level**2 * is_same + similarity * like, dtype=np.float64)


def _correlations(similarity: Floats) -> Floats:
    """The nearest positive semidefinite correlations: distances with options and types may give indefinite ones."""
    values, vectors = np.linalg.eigh(similarity)
    if values[0] > -ROUNDING:
        return similarity
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale = np.sqrt(np.diag(nearest))
    return np.asarray(nearest / scale / scale[:, None], dtype=np.float64)
