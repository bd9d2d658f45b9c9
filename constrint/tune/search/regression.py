"""How much longer than predicted configurations take: a Gaussian process over parameters and parts of the cost model.

What it learns is the logarithm of measured over predicted time. Two configurations are expected to be off alike where
they are near each other, of one kernel, or bound by the same resources; those of another workload likewise, but less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from constrint.select.candidates import Rows
from constrint.tune.search.points import ConfigPoints, Floats

#: An eigenvalue of correlations that is no further below zero is zero, but for rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Prior:
    """Standard deviations of what the logarithm of measured over predicted time is made of.

    The defaults have about the largest likelihood on 600 configurations near the best of 13 products on an H200; how
    workloads resemble each other was chosen on these and on 76 recurrent layers.

    Args:
        level: Of all workloads together.
        own_level: Of a workload of its own.
        kernel: Of one implementation.
        parts: Of each part of the model, for a configuration that is bound by it alone.
        near: Of what neighbouring configurations have in common.
        reach: How far neighbourhood goes, in powers of two of a parameter.
        kernels: Correlation of what is near between two implementations.
        alone: Of what a configuration has in common with no other but those of another order or of other knobs.
        variant: Of what it has in common with no other at all.
        noise: Of a measurement.
        elsewhere: Of a measurement of another run.
        resemblance: How far likeness of workloads goes, in powers of two of a size.
        far: Correlation between workloads that are far apart.
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
        prior: What is expected beforehand.
        points: The points, those of other workloads among them.
        distances: Between workloads, by their numbers, in powers of two of a size.
    """

    def __init__(self, prior: Prior, points: ConfigPoints, distances: Floats) -> None:
        self.prior, self.points = prior, points
        alike = prior.far + (1.0 - prior.far) * np.exp(-0.5 * np.square(distances / prior.resemblance))
        self._alike = _correlations(alike)
        self.mean = np.zeros(len(points))
        self.variance = self._own(points)
        self._told: list[int] = []
        # Of the Cholesky factor of the told points' covariance, continued to all points: a row for each told one.
        self._factor = np.zeros((0, len(points)))
        self._scales: list[float] = []
        self._rest: list[float] = []

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """What is learnt inside is forgotten afterwards; no points may be added meanwhile."""
        mean, variance, number = self.mean, self.variance, len(self._told)
        try:
            yield
        finally:
            self.mean, self.variance = mean, variance
            for told in (self._told, self._scales, self._rest):
                del told[number:]

    def learn(self, row: int, log_ratio: float) -> None:
        """Hear of one point's measurement."""
        number = len(self._told)
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
        self._told.append(row)
        self._scales.append(scale)
        self._rest.append(rest)

    def learn_first(self, log_ratios: Floats) -> None:
        """Hear of the first points' measurements at once, before any other."""
        told = np.arange(len(log_ratios))
        among = self._covariances(told, self.points.take(told))
        among[told, told] += self.prior.elsewhere**2
        lower = np.linalg.cholesky(among)
        covariance = self._covariances(told, self.points)
        self._factor = np.linalg.solve(lower, covariance)
        rest = np.linalg.solve(lower, log_ratios)
        self.mean = rest @ self._factor
        self.variance = np.maximum(self.variance - np.square(self._factor).sum(axis=0), 0.0)
        self._told, self._scales, self._rest = told.tolist(), np.diag(lower).tolist(), rest.tolist()

    def extend(self, points: ConfigPoints) -> None:
        """Add points, of which nothing was measured."""
        fresh = np.zeros((len(self._factor), len(points)))
        covariances = self._covariances(np.array(self._told, dtype=np.int64), points)
        for place, row in enumerate(self._told):
            above = self._factor[:place, row] @ fresh[:place]
            fresh[place] = (covariances[place] - above) / self._scales[place]
        self.points = ConfigPoints.joined([self.points, points])
        self.mean = np.concatenate([self.mean, np.array(self._rest) @ fresh[: len(self._rest)]])
        self.variance = np.concatenate(
            [self.variance, np.maximum(self._own(points) - np.square(fresh).sum(axis=0), 0.0)]
        )
        self._factor = np.hstack([self._factor, fresh])

    def _own(self, points: ConfigPoints) -> Floats:
        """The variance of points of which nothing is known."""
        p = self.prior
        shared = p.level**2 + p.own_level**2 + p.kernel**2 + p.near**2 + p.alone**2 + p.variant**2
        return np.asarray(shared + p.parts**2 * np.square(points.shares).sum(axis=1), dtype=np.float64)

    def _covariances(self, rows: Rows, others: ConfigPoints) -> Floats:
        """Of some points with others."""
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
        alike = self._alike[own.workload[:, None], others.workload]
        return np.asarray(p.level**2 + p.own_level**2 * is_same + alike * like, dtype=np.float64)


def _correlations(alike: Floats) -> Floats:
    """Likenesses as correlations that can hold together: distances that add options and types may give others."""
    values, vectors = np.linalg.eigh(alike)
    if values[0] > -ROUNDING:
        return alike
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale = np.sqrt(np.diag(nearest))
    return np.asarray(nearest / scale / scale[:, None], dtype=np.float64)
