"""Fits of weights and spill curves, family by family, judged by kernels that were left out of the fit.

The curve gives the chance that a kernel spills from its estimated registers over those that a thread may have. It is
fitted to estimates of left-out kernels, because estimates of fitted kernels are too good. Needs scipy.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.resources.estimate import FOLDS, Fit, Floats, Kernels, SampledKernel, fit_estimate, folds
from constrint.errors import UnsupportedError
from constrint.kernels.resources.registers import FittedModel, LeftOut, Weights, name_of_weights

#: Fewer kernels than this have no weights of their own target.
LEAST_KERNELS = 40
#: Fewer than this have no weights at all.
LEAST_POOLED = 8
#: A family with fewer kernels per weight than this takes the weights of the next wider one, if there is one.
LEAST_PER_WEIGHT = 3
#: Prior of the curve of all kernels: mean and standard deviation of ln(place) and ln(slope).
USUAL, USUAL_SPREAD = (np.log(1.1), np.log(7.0)), (0.5, 0.5)
#: Standard deviations of a family's curve around that of all kernels, likewise.
SPREAD = (0.15, 0.35)
#: Bounds of the intervals of chances for which calibration is reported.
STEPS = (0.0, 0.02, 0.1, 0.3, 0.7, 0.9, 0.98, 1.0)


def fit_all(kernels: Kernels) -> dict[str, Fit]:
    """Fits by name: of every family with enough kernels for its weights, and of its targets near it.

    Kernels of a family that is too small count for the next wider one, together with all others of that one.
    """
    fits: dict[str, Fit] = {}
    waiting, depth = list(kernels), 0
    while waiting := [kernel for kernel in waiting if depth < len(kernel.families)]:
        passed_on: list[SampledKernel] = []
        for name, users in grouped((kernel.families[depth].name, kernel) for kernel in waiting).items():
            members = [kernel for kernel in kernels if any(family.name == name for family in kernel.families)]
            is_widest = any(kernel.families[-1].name == name for kernel in users)
            fit = fit_family(members, is_widest=is_widest)
            if fit is None:
                passed_on += users
                continue
            own = fit_targets(users, depth, fit)
            if len({kernel.target for kernel in members}) == 1:
                # Stored once, by the name under which targets to come find it, too.
                own = dict.fromkeys([name], next(iter(own.values()), fit))
            fits |= {name: fit} | own
        waiting, depth = passed_on, depth + 1
    return fits


def fit_family(members: Kernels, *, is_widest: bool) -> Fit | None:
    """Fit a family; None where it has too few kernels, at all or per weight."""
    count = sum(kernel.is_free for kernel in members)
    if count < LEAST_POOLED:
        return None
    fit = fit_estimate(members)
    return fit if is_widest or count >= LEAST_PER_WEIGHT * np.count_nonzero(fit.weights) else None


def fit_targets(users: Kernels, depth: int, fit: Fit) -> dict[str, Fit]:
    """Fits of single targets with enough kernels, near that of their family."""
    owns = grouped((kernel.families[depth].own, kernel) for kernel in users)
    return {
        own: fit_estimate(members, fit)
        for own, members in owns.items()
        if own and sum(kernel.is_free for kernel in members) >= LEAST_KERNELS
    }


def grouped(pairs: Iterable[tuple[str, SampledKernel]]) -> dict[str, list[SampledKernel]]:
    """Kernels by name, names in order."""
    groups: dict[str, list[SampledKernel]] = defaultdict(list)
    for name, kernel in pairs:
        groups[name].append(kernel)
    return dict(sorted(groups.items()))


def judged(fits: Mapping[str, Fit], kernels: Kernels) -> list[Judged]:
    """Return the kernels that have weights among the fits, with their estimates."""
    named = []
    for kernel in kernels:
        try:
            named.append((name_of_weights(kernel.families, fits), kernel))
        except UnsupportedError:
            continue  # of a family that is too small without the kernels that were left out
    return [
        Judged(kernel, float(estimate))
        for name, members in grouped(named).items()
        for kernel, estimate in zip(members, fits[name].of(members), strict=True)
    ]


def left_out(kernels: Kernels) -> list[Judged]:
    """Judge each part of the sample by a fit to all other parts."""
    return [result for rest, part in folds(kernels, 1) for result in judged(fit_all(rest), part)]


def curves_of(results: Iterable[Judged], names: Iterable[str]) -> dict[str, Curve]:
    """The curve of every name of weights, near that of all kernels."""
    results, names = list(results), list(names)
    pooled = fit_curve(results)
    by_name: dict[str, list[Judged]] = defaultdict(list)
    for result in results:
        by_name[name_of_weights(result.kernel.families, names)].append(result)
    return {name: fit_curve(by_name[name], pooled) if name in by_name else pooled for name in names}


def chances_left_out(results: Iterable[Judged], names: Iterable[str]) -> list[float]:
    """The chance of every kernel to spill, by curves that were fitted without it."""
    results, names = list(results), list(names)
    part = np.random.default_rng(2).permutation(len(results)) % FOLDS
    chances = np.zeros(len(results))
    for number in range(FOLDS):
        curves = curves_of([result for result, of in zip(results, part, strict=True) if of != number], names)
        for place in np.flatnonzero(part == number):
            curve = curves[name_of_weights(results[place].kernel.families, names)]
            chances[place] = curve.chances(np.array(results[place].logit_share))
    return [float(chance) for chance in chances]


def summary(results: Iterable[Judged], chances: Iterable[float]) -> LeftOut:
    """Summarise errors of estimates and chances for kernels that the fits have not seen."""
    results, p = list(results), np.clip(np.array(list(chances)), 1e-6, 1 - 1e-6)
    errors = [abs(result.estimate / result.kernel.registers - 1) for result in results if result.kernel.is_free]
    median, p90 = (round(100 * float(np.quantile(errors, share)), 1) if errors else None for share in (0.5, 0.9))
    spills = np.array([result.kernel.spills for result in results], dtype=bool)
    lost = float(-np.log(np.where(spills, p, 1 - p)).mean()) if len(results) else 0.0
    expected = round(float(p.sum()), 1)
    return LeftOut(len(errors), median, p90, len(results), int(spills.sum()), expected, round(lost, 3))


def summaries(
    results: Iterable[Judged], chances: Iterable[float], label: Callable[[SampledKernel], str]
) -> dict[str, LeftOut]:
    """Summaries of the kernels with each label."""
    by_label: dict[str, tuple[list[Judged], list[float]]] = defaultdict(lambda: ([], []))
    for result, chance in zip(results, chances, strict=True):
        grouped_results = by_label[label(result.kernel)]
        grouped_results[0].append(result)
        grouped_results[1].append(chance)
    return {name: summary(*of_label) for name, of_label in sorted(by_label.items())}


def fitted_models(kernels: Kernels, fits: Mapping[str, Fit], results: Iterable[Judged]) -> dict[str, FittedModel]:
    """Combine weights and curves with their origin and their quality for left-out kernels."""
    results = list(results)
    curves, chances = curves_of(results, fits), chances_left_out(results, fits)
    by_name = summaries(results, chances, lambda kernel: name_of_weights(kernel.families, fits))
    whole = summary(results, chances).p90_error or 0.0
    models = {}
    for name, fit in sorted(fits.items()):
        members = [kernel for kernel in kernels if any(name in family for family in kernel.families)]
        at_percent, slope_tenths = curves[name].rounded()
        judged_as = by_name.get(name)
        error = None if judged_as is None else judged_as.p90_error
        models[name] = FittedModel(
            estimate=fit.to_plain(),
            at_percent=at_percent,
            slope_tenths=slope_tenths,
            error_percent=int(np.ceil(whole if error is None else error)),
            targets=tuple(sorted({kernel.target for kernel in members})),
            kernels=len(members),
            left_out=judged_as,
        )
    return models


class Judged(NamedTuple):
    """A kernel with its estimate by weights that were fitted without it."""

    kernel: SampledKernel
    estimate: float

    @property
    def logit_share(self) -> float:
        """Natural logarithm of estimated registers over the limit."""
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
    """Fit the most likely curve near the prior, or near the usual curve."""
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
    """Count how often kernels spilled, by their predicted chance."""
    p, y = np.array(list(chances), dtype=float), np.array(list(spills), dtype=bool)
    rows = []
    for least, most in pairwise(STEPS):
        inside = (p >= least) & ((p < most) | (most == 1.0))
        mean = float(p[inside].mean()) if inside.any() else 0.0
        rows.append(Calibration(least, most, int(inside.sum()), mean, int(y[inside].sum())))
    return rows


def write_weights(weights: Weights, path: Path) -> None:
    """Write a file of weights, one figure a line, so that changes of a figure can be read."""
    head = msgspec.to_builtins(weights)
    models = head.pop("models")
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    blocks = []
    for name, model in models.items():
        fields = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in model.items())
        blocks.append(f"  {json.dumps(name)}: {{\n{fields}\n  }}")
    path.write_text("\n".join(["{", *lines, ' "models": {', ",\n".join(blocks), " }", "}", ""]))
