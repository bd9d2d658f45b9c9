"""Fitting weights to a sample, family by family, and judging them by kernels that were left out of the fit.

Recorded kernels that spill lie beyond the bound by construction: the fit sees to it. That the bound is safe is
shown by kernels that no fit has seen: the fresh samples that the tests compile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from constrint.errors import UnsupportedError
from constrint.kernels.resources.registers import name_of_weights
from constrint.kernels.resources.scores import Fit, Kernels, SampledKernel, folds
from constrint.kernels.resources.weights import FittedModel, LeftOut

#: Fits one group of kernels, near the weights of a larger group if there are such.
Method = Callable[[Kernels, Fit | None], Fit]

#: Fewer kernels than this have no weights of their own target.
LEAST_KERNELS = 40
#: Fewer than this have no weights at all.
LEAST_POOLED = 8
#: A family with fewer kernels per weight than this takes the weights of the next wider one, if there is one.
LEAST_PER_WEIGHT = 3


def fit_all(kernels: Kernels, method: Method) -> dict[str, Fit]:
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
            fit = fit_family(members, method, is_widest=is_widest)
            if fit is None:
                passed_on += users
                continue
            own = fit_targets(users, depth, fit, method)
            if len({kernel.target for kernel in members}) == 1:
                # Stored once, by the name under which targets to come find it, too.
                own = dict.fromkeys([name], next(iter(own.values()), fit))
            fits |= {name: fit} | own
        waiting, depth = passed_on, depth + 1
    return fits


def fit_family(members: Kernels, method: Method, *, is_widest: bool) -> Fit | None:
    """The fit of a family; None where there are too few kernels, for any or for so many weights."""
    count = sum(kernel.is_free for kernel in members)
    if count < LEAST_POOLED:
        return None
    fit = method(members, None)
    return fit if is_widest or count >= LEAST_PER_WEIGHT * np.count_nonzero(fit.estimate) else None


def fit_targets(users: Kernels, depth: int, fit: Fit, method: Method) -> dict[str, Fit]:
    """Fits of single targets with enough kernels, near that of their family."""
    owns = grouped((kernel.families[depth].own, kernel) for kernel in users)
    return {
        own: method(members, fit)
        for own, members in owns.items()
        if own and sum(kernel.is_free for kernel in members) >= LEAST_KERNELS
    }


def grouped(pairs: Iterable[tuple[str, SampledKernel]]) -> dict[str, list[SampledKernel]]:
    """Kernels by name, names in order."""
    groups: dict[str, list[SampledKernel]] = defaultdict(list)
    for name, kernel in pairs:
        groups[name].append(kernel)
    return dict(sorted(groups.items()))


class Judged(NamedTuple):
    """A kernel and what weights say of it."""

    kernel: SampledKernel
    estimate: float
    bound: float


def judged(fits: Mapping[str, Fit], kernels: Kernels) -> list[Judged]:
    """Kernels that have weights among the fits, with their figures."""
    named = []
    for kernel in kernels:
        try:
            named.append((name_of_weights(kernel.families, fits), kernel))
        except UnsupportedError:
            continue  # of a family that is too small without the kernels that were left out
    return [
        Judged(kernel, float(estimate), float(bound))
        for name, members in grouped(named).items()
        for kernel, estimate, bound in zip(members, *fits[name].of(members), strict=True)
    ]


def left_out(kernels: Kernels, method: Method) -> list[Judged]:
    """What fits to all parts of the sample but one say of that one, for each in turn."""
    return [result for rest, part in folds(kernels, 1) for result in judged(fit_all(rest, method), part)]


def summary(results: Iterable[Judged]) -> LeftOut:
    """How weights do on kernels."""
    results = list(results)
    errors = [abs(result.estimate / result.kernel.registers - 1) for result in results if result.kernel.is_free]
    median, p90 = (round(100 * float(np.quantile(errors, share)), 1) if errors else None for share in (0.5, 0.9))
    spilling, clean = (
        [bool(result.bound <= result.kernel.limit) for result in results if result.kernel.spills == spills]
        for spills in (True, False)
    )
    return LeftOut(len(errors), median, p90, len(spilling), sum(spilling), len(clean), clean.count(False))


def summaries(results: Iterable[Judged], label: Callable[[SampledKernel], str]) -> dict[str, LeftOut]:
    """Summaries of the kernels with each label."""
    by_label: dict[str, list[Judged]] = defaultdict(list)
    for result in results:
        by_label[label(result.kernel)].append(result)
    return {name: summary(of_label) for name, of_label in sorted(by_label.items())}


def fitted_models(kernels: Kernels, fits: Mapping[str, Fit], results: Iterable[Judged]) -> dict[str, FittedModel]:
    """The weights with where they come from, and what was said of kernels while they were left out."""
    by_name = summaries(results, lambda kernel: name_of_weights(kernel.families, fits))
    models = {}
    for name, fit in sorted(fits.items()):
        members = [kernel for kernel in kernels if any(name in family for family in kernel.families)]
        models[name] = FittedModel(
            **msgspec.structs.asdict(fit.model()),
            targets=tuple(sorted({kernel.target for kernel in members})),
            kernels=len(members),
            left_out=by_name.get(name),
        )
    return models
