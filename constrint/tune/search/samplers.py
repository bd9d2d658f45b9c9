"""Optuna's samplers over the solved space: `optuna:tpe`, `optuna:cmaes`, `optuna:gp` and others.

A sampler ignores constraints. Each suggestion is replaced by the nearest valid configuration that was not proposed
before, by the places of values in their order, and the sampler learns the time of that configuration.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from constrint.errors import UnknownNameError, UsageError
from constrint.select.candidates import Candidates, Rows
from constrint.tune.search.interface import Proposal, SearchTask

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

#: Samplers by the name behind the colon.
SAMPLERS = {
    "tpe": "TPESampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "nsgaii": "NSGAIISampler",
    "qmc": "QMCSampler",
}
DEFAULT_SAMPLER = "tpe"
KERNEL = "kernel"
#: How many places another kernel is away.
OTHER_KERNEL = 1000.0
#: Configurations of a space too large to list that are added where all listed ones were proposed.
NUM_ADDED = 1000


class SamplerSearch:
    """A search by one of Optuna's samplers.

    Args:
        task: The workload and the GPU.
        candidates: The valid configurations.
        name: The sampler's name.
    """

    def __init__(self, task: SearchTask, candidates: Candidates, name: str) -> None:
        self.candidates, self.name, self.seed = candidates, name, task.seed
        self._optuna = optuna = _load()
        with _quiet(optuna):
            self._study = optuna.create_study(sampler=_sampler(optuna, name, task.seed))
        self._values = _values(candidates)
        ints = optuna.distributions.IntDistribution
        self._space: dict[str, Any] = {n: ints(0, len(v) - 1) for n, v in self._values.items() if len(v) > 1}
        self._names = [kernel.spec.full_name for kernel in candidates.kernels if kernel.size]
        if len(self._names) > 1:
            self._space[KERNEL] = optuna.distributions.CategoricalDistribution(self._names)
        self._is_proposed = [np.zeros(kernel.num_rows, dtype=bool) for kernel in candidates.kernels]
        self._trials: dict[tuple[int, int], Any] = {}

    def ask(self, number: int) -> list[Proposal]:
        """Up to `number` configurations not proposed before."""
        proposals: list[Proposal] = []
        while len(proposals) < number and self._has_more():
            with _quiet(self._optuna):
                suggested = self._study.ask(self._space)
                place, row = self._nearest(suggested.params)
                trial, params = suggested, self._params(place, row)
                if params != suggested.params:
                    # The suggestion is replaced by a trial of the valid configuration nearest to it.
                    self._study.tell(suggested, state=self._optuna.trial.TrialState.FAIL)
                    self._study.enqueue_trial(params)
                    trial = self._study.ask(self._space)
            self._is_proposed[place][row] = True
            self._trials[place, row] = trial
            kernel = self.candidates.kernels[place]
            proposals.append(Proposal(kernel.spec.full_name, kernel.config(row), because=self.name))
        return proposals

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """Learn the median time of a proposal, also of another search's; None where it failed."""
        place = self.candidates.by_name.get(proposal.kernel)
        row = None if place is None else self.candidates.kernels[place].find(proposal.config)
        if place is None or row is None:
            return
        self._grow()
        self._is_proposed[place][row] = True
        with _quiet(self._optuna):
            trial = self._trials.pop((place, row), None)
            if trial is None:
                self._study.enqueue_trial(self._params(place, row))
                trial = self._study.ask(self._space)
            if seconds is None or not math.isfinite(seconds) or seconds <= 0:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, math.log(seconds))

    def _nearest(self, params: Mapping[str, Any]) -> tuple[int, int]:
        """Kernel and row nearest to a suggestion among those not proposed; the first of equals."""
        best = (math.inf, 0, 0)
        for place, kernel in enumerate(self.candidates.kernels):
            rows = np.flatnonzero(~self._is_proposed[place])
            if len(rows):
                far = np.zeros(len(rows))
                for name, column in kernel.columns.items():
                    far += np.abs(self._places(name, column[rows]) - params.get(name, 0))
                away = OTHER_KERNEL * (params.get(KERNEL, kernel.spec.full_name) != kernel.spec.full_name)
                at = int(np.argmin(far))
                best = min(best, (float(far[at]) + away, place, int(rows[at])))
        return best[1], best[2]

    def _params(self, place: int, row: int) -> dict[str, Any]:
        """A configuration as Optuna's parameters; parameters that its kernel lacks have their first value."""
        kernel = self.candidates.kernels[place]
        config = kernel.config(row)
        params: dict[str, Any] = {}
        for name in self._space:
            if name == KERNEL:
                params[name] = kernel.spec.full_name
            else:
                params[name] = int(self._places(name, config[name])) if name in config else 0
        return params

    def _places(self, name: str, values: Any) -> Any:
        """Places of a parameter's values in ascending order; an unlisted value has the place of the next."""
        listed = self._values[name]
        return np.minimum(np.searchsorted(listed, values), len(listed) - 1)

    def _has_more(self) -> bool:
        """Whether a configuration is left to propose; lists more of a large space first."""
        self._grow()
        if any(not proposed.all() for proposed in self._is_proposed):
            return True
        for kernel in self.candidates.kernels:
            kernel.widen(NUM_ADDED, self.seed + kernel.num_rows)
        self._grow()
        return any(not proposed.all() for proposed in self._is_proposed)

    def _grow(self) -> None:
        """Follow the candidates, whose list may have grown."""
        for place, kernel in enumerate(self.candidates.kernels):
            added = kernel.num_rows - len(self._is_proposed[place])
            if added > 0:
                self._is_proposed[place] = np.append(self._is_proposed[place], np.zeros(added, dtype=bool))


def make(task: SearchTask, candidates: Candidates, argument: str) -> SamplerSearch:
    """Make a search by the sampler that stands behind the colon.

    Raises:
        UsageError: When Optuna, or what the sampler needs, is not installed.
        UnknownNameError: When there is no such sampler.
    """
    name = argument or DEFAULT_SAMPLER
    if name not in SAMPLERS:
        raise UnknownNameError("sampler of Optuna", name, SAMPLERS, "Write it as --search optuna:tpe.")
    return SamplerSearch(task, candidates, name)


def _load() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            "search 'optuna' needs Optuna, which is not installed: pip install 'constrint[optuna]', "
            "or use --search model."
        ) from error
    return optuna


def _sampler(optuna: Any, name: str, seed: int) -> BaseSampler:
    """A sampler of that name, with Optuna's own settings."""
    try:
        sampler: BaseSampler = getattr(optuna.samplers, SAMPLERS[name])(seed=seed)
    except ImportError as error:
        raise UsageError(f"search 'optuna:{name}' needs a further package: {error}") from error
    return sampler


def _values(candidates: Candidates) -> dict[str, Rows]:
    """The values of every parameter in ascending order, over all kernels."""
    values: dict[str, Rows] = {}
    for kernel in candidates.kernels:
        for name, column in kernel.columns.items():
            values[name] = np.union1d(values.get(name, column[:0]), column)
    return values


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Silence Optuna's messages and warnings."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
