"""Fitting weights to a sample, family by family, and judging them by kernels that were left out of the fit.

That estimates and chances hold is shown by kernels that no fit has seen: the fresh samples that the tests compile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from constrint.errors import UnsupportedError
from constrint.kernels.resources.curve import Curve, Judged, fit_curve
from constrint.kernels.resources.estimate import fit_estimate
from constrint.kernels.resources.registers import name_of_weights
from constrint.kernels.resources.scores import FOLDS, Fit, Kernels, SampledKernel, folds
from constrint.kernels.resources.weights import FittedModel, LeftOut

#: Fewer kernels than this have no weights of their own target.
LEAST_KERNELS = 40
#: Fewer than this have no weights at all.
LEAST_POOLED = 8
#: A family with fewer kernels per weight than this takes the weights of the next wider one, if there is one.
LEAST_PER_WEIGHT = 3


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
    """The fit of a family; None where there are too few kernels, for any or for so many weights."""
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
    """Kernels that have weights among the fits, with their estimates."""
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
    """What fits to all parts of the sample but one say of that one, for each in turn."""
    return [result for rest, part in folds(kernels, 1) for result in judged(fit_all(rest), part)]


def curves_of(results: Iterable[Judged], known: Iterable[str]) -> dict[str, Curve]:
    """The curve of every name of weights, near that of all kernels."""
    results, known = list(results), list(known)
    pooled = fit_curve(results)
    by_name: dict[str, list[Judged]] = defaultdict(list)
    for result in results:
        by_name[name_of_weights(result.kernel.families, known)].append(result)
    return {name: fit_curve(by_name[name], pooled) if name in by_name else pooled for name in known}


def chances_left_out(results: Iterable[Judged], known: Iterable[str]) -> list[float]:
    """The chance of every kernel to spill, by curves that were fitted without it."""
    results, known = list(results), list(known)
    part = np.random.default_rng(2).permutation(len(results)) % FOLDS
    chances = np.zeros(len(results))
    for number in range(FOLDS):
        curves = curves_of([result for result, of in zip(results, part, strict=True) if of != number], known)
        for place in np.flatnonzero(part == number):
            curve = curves[name_of_weights(results[place].kernel.families, known)]
            chances[place] = curve.chances(np.array(results[place].logit_share))
    return [float(chance) for chance in chances]


def summary(results: Iterable[Judged], chances: Iterable[float]) -> LeftOut:
    """How estimates and chances do on kernels that they have not seen."""
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
        kept = by_label[label(result.kernel)]
        kept[0].append(result)
        kept[1].append(chance)
    return {name: summary(*of_label) for name, of_label in sorted(by_label.items())}


def fitted_models(kernels: Kernels, fits: Mapping[str, Fit], results: Iterable[Judged]) -> dict[str, FittedModel]:
    """The weights and curves with where they come from, and what was said of kernels while they were left out."""
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
