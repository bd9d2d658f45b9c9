"""The default search: the cost model's order, corrected by measurements of this workload and of others.

A regression (`regression.py`) learns the error of the predictions, with its uncertainty. Next comes the configuration
with the largest expected improvement over the best so far: a fast one by prediction, or an uncertain one. The pool of
choices holds the model's first few thousand configurations and the neighbours of every best one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from constrint.select.candidates import Candidates, Rows
from constrint.select.rank import tie_steps
from constrint.tune.search.interface import Proposal, SearchTask
from constrint.tune.search.learned import learn_from
from constrint.tune.search.points import ConfigPoints, Describer, Floats
from constrint.tune.search.regression import Prior, Regression

#: Configurations in the pool at first.
POOL = 3000
#: Logarithm of the factor on the expected time of configurations like a failed one.
PENALTY = math.log(2.0)
#: One proposal in `EVERY` is a neighbour of the best configuration so far.
EVERY = 4
#: Most configurations of a named part of the space that are considered: those of least predicted time.
MOST_AMONG = 512


class ModelSearch:
    """The default search; see the module's docstring.

    Args:
        task: The workload and the GPU.
        candidates: The valid configurations.
        prior: Prior of the regression.
    """

    def __init__(self, task: SearchTask, candidates: Candidates, prior: Prior | None = None) -> None:
        self.candidates = candidates
        self.seed = task.seed
        self._describer = Describer(self.candidates)
        learned = learn_from(task, self._describer)
        self._num_earlier = len(learned.log_ratios)
        self._places: dict[tuple[int, int], int] = {}  # of the pool's rows, by kernel and row
        self._pool: list[tuple[int, int]] = []
        self._predicted = np.zeros(0)  # logarithms
        points = self._described(*self.candidates.best(POOL))
        points = points if learned.points is None else ConfigPoints.joined([learned.points, points])
        self._regression = Regression(prior or Prior(), points, learned.distances)
        if self._num_earlier:
            self._regression.learn_first(learned.log_ratios)
        self._is_proposed = np.zeros(len(self._pool), dtype=bool)
        self._pending: list[int] = []
        self._penalty = np.zeros(len(self._pool))
        self._best: tuple[float, int] | None = None  # the logarithm of its time, its place in the pool
        self._near: set[int] = set()  # places of the best one's neighbours
        self._near_of = -1  # whose neighbours these are
        self._num_measured = 0

    def ask(self, number: int) -> list[Proposal]:
        """Up to `number` configurations not proposed before."""
        number = min(number, self._widened(number))
        self._find_neighbours()
        return self._proposed(number, self._choose)

    def peek(self, number: int) -> list[Proposal]:
        """The next proposals of `ask`, which may be proposed again."""
        before = len(self._pending)
        proposals = self.ask(number)
        self._is_proposed[self._pending[before:]] = False
        del self._pending[before:]
        return proposals

    def expected(self, number: int) -> list[Proposal]:
        """The configurations with the least expected time not proposed before; they may be proposed later."""
        order = np.argsort(tie_steps(np.exp(self._expected())), kind="stable")
        return [self._proposal(place) for place in order[~self._is_proposed[order]][:number].tolist()]

    def ask_among(self, kernel: str, rows: Rows, number: int) -> list[Proposal]:
        """Up to `number` of a kernel's rows not proposed before, the most promising first."""
        at = self.candidates.by_name[kernel]
        rows = rows[np.argsort(self.candidates.kernels[at].seconds[rows], kind="stable")[:MOST_AMONG]]
        places = np.array(self._add(np.full(len(rows), at), rows), dtype=np.int64)

        def choose() -> int:
            left = places[~self._is_proposed[places]]
            return int(left[np.argmax(self._gain()[left])] if self._is_proposed.any() else left[0])

        return self._proposed(min(number, int(np.count_nonzero(~self._is_proposed[np.unique(places)]))), choose)

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """Learn the median time of a proposal, also of another search's; None where it failed."""
        place = self._place_of(proposal)
        if place is None:
            return
        if place in self._pending:
            self._pending.remove(place)
        self._is_proposed[place] = True
        if seconds is None or not math.isfinite(seconds) or seconds <= 0:
            self._fail(place)
            return
        self._num_measured += 1
        measured = math.log(seconds)
        self._regression.learn(self._num_earlier + place, measured - float(self._predicted[place]))
        if self._best is None or measured < self._best[0]:
            self._best = measured, place

    def _proposed(self, number: int, choose: Callable[[], int]) -> list[Proposal]:
        """`number` proposals one after another; each counts as measured, with its expected time, for the next one."""
        proposals: list[Proposal] = []
        with self._regression.supposing():
            for place in self._pending:
                self._believe(place)
            while len(proposals) < number:
                place = choose()
                proposals.append(self._proposal(place))
                self._is_proposed[place] = True
                self._pending.append(place)
                self._believe(place)
        return proposals

    def _expected(self) -> Floats:
        """The logarithms of the expected times of the pool."""
        return self._predicted + self._regression.mean[self._num_earlier :] + self._penalty

    def _find_neighbours(self) -> None:
        """Put the neighbours of the best configuration into the pool."""
        if self._best is not None and self._best[1] != self._near_of:
            self._near_of = self._best[1]
            kernel, row = self._pool[self._near_of]
            near = self.candidates.kernels[kernel].neighbours(row)
            self._near = set(self._add(np.full(len(near), kernel), near))

    def _choose(self) -> int:
        """The place of the most promising configuration; now and then the most promising neighbour of the best."""
        if not self._is_proposed.any():
            return 0
        gain = self._gain()
        near = [place for place in self._near if not self._is_proposed[place]]
        if near and self._is_proposed.sum() % EVERY == EVERY - 1:
            return max(sorted(near), key=lambda place: gain[place])
        return int(np.argmax(gain))

    def _gain(self) -> Floats:
        """The expected improvement of every configuration of the pool over the best one; -inf for those proposed."""
        mean = self._expected()
        sigma = np.sqrt(self._regression.variance[self._num_earlier :]) + 1e-12
        if self._best is None and not self._pending:  # all of them failed
            return np.where(self._is_proposed, -np.inf, -mean)
        measured = [self._best[0]] if self._best is not None else []
        best = min(measured + [float(mean[place]) for place in self._pending])
        z = (best - mean) / sigma
        # Far away all improvements are 0; then the least time decides.
        gain = -1.0 - np.maximum(mean - best, 0.0)
        (near,) = np.nonzero((z > -6.0) & ~self._is_proposed)
        at = z[near]
        improved = at * _normal_share(at) + np.exp(-0.5 * np.square(at)) / math.sqrt(2.0 * math.pi)
        gain[near] = np.where(improved > 0.0, sigma[near] * improved, gain[near])
        return np.where(self._is_proposed, -np.inf, gain)

    def _believe(self, place: int) -> None:
        """Learn the expected time as if it were measured, so that the next proposal differs."""
        row = self._num_earlier + place
        self._regression.learn(row, float(self._regression.mean[row]))

    def _proposal(self, place: int) -> Proposal:
        kernel, row = self._pool[place]
        candidates = self.candidates.kernels[kernel]
        is_modelled = math.isfinite(candidates.seconds[row])
        seconds = math.exp(self._predicted[place] + self._regression.mean[self._num_earlier + place])
        return Proposal(
            kernel=candidates.spec.full_name,
            config=candidates.config(row),
            predicted_s=seconds if is_modelled or self._num_measured else math.nan,
            because=self._reason(place),
        )

    def _reason(self, place: int) -> str:
        if place in self._near:
            return "neighbour of the best"
        if self._num_earlier or self._num_measured:
            return "corrected model"
        return f"model's choice {place + 1}"

    def _fail(self, place: int) -> None:
        """Penalise configurations like a failed one."""
        points = self._regression.points
        row = self._num_earlier + place
        own = slice(self._num_earlier, None)
        distance = np.square(points.at[own] - points.at[row]).sum(axis=1)
        similarity = np.exp(-0.5 * distance) * (points.kernel[own] == points.kernel[row])
        self._penalty = np.maximum(self._penalty, PENALTY * similarity)

    def _widened(self, number: int) -> int:
        """Number of configurations not proposed yet; the pool grows where there are fewer than `number`."""
        if self._num_left() < number:
            self._add(*self.candidates.best(2 * len(self._pool)))
        if self._num_left() < number:
            for place, kernel in enumerate(self.candidates.kernels):
                rows = kernel.widen(POOL, self.seed + len(self._pool))
                self._add(np.full(len(rows), place), rows)
        return self._num_left()

    def _num_left(self) -> int:
        """Configurations of the pool that were not proposed yet."""
        return len(self._pool) - int(np.count_nonzero(self._is_proposed))

    def _place_of(self, proposal: Proposal) -> int | None:
        """The place of a configuration in the pool; None where it is not valid."""
        for pending in self._pending:
            at, place = self._pool[pending]
            candidates = self.candidates.kernels[at]
            if candidates.spec.full_name == proposal.kernel and candidates.config(place) == proposal.config:
                return pending
        kernel = self.candidates.by_name.get(proposal.kernel)
        row = None if kernel is None else self.candidates.kernels[kernel].find(proposal.config)
        if kernel is None or row is None:
            return None
        self._add(np.array([kernel]), np.array([row]))
        return self._places[kernel, row]

    def _add(self, kernels: Rows, rows: Rows) -> list[int]:
        """Put configurations into the pool; gives the places of all of them."""
        keys = list(zip(kernels.tolist(), rows.tolist(), strict=True))
        fresh = [key for key in keys if key not in self._places]
        if fresh:
            added = self._described(*(np.array(column, dtype=np.int64) for column in zip(*fresh, strict=True)))
            self._regression.extend(added)
            self._is_proposed = np.append(self._is_proposed, np.zeros(len(added), dtype=bool))
            self._penalty = np.append(self._penalty, np.zeros(len(added)))
        return [self._places[key] for key in keys]

    def _described(self, kernels: Rows, rows: Rows) -> ConfigPoints:
        """Number configurations as the pool's next ones, and describe them in that order."""
        points, seconds, order = [], np.zeros(len(rows)), []
        for place, kernel in enumerate(self.candidates.kernels):
            mine = np.flatnonzero(kernels == place)
            if len(mine):
                points.append(self._describer.points(kernel, rows[mine]))
                seconds[mine] = kernel.seconds[rows[mine]]
                order.append(mine)
        for key in zip(kernels.tolist(), rows.tolist(), strict=True):
            self._places[key] = len(self._pool)
            self._pool.append(key)
        self._predicted = np.append(self._predicted, np.log(_finite(seconds)))
        return ConfigPoints.joined(points).take(np.argsort(np.concatenate(order), kind="stable"))


def _finite(seconds: Floats) -> Floats:
    """The times, with unknown ones replaced by the longest known one."""
    finite = seconds[np.isfinite(seconds)]
    return np.where(np.isfinite(seconds), seconds, float(finite.max()) if len(finite) else 1.0)


def _normal_share(z: Floats) -> Floats:
    """The share of a standard normal distribution below z."""
    return 0.5 * np.array(list(map(math.erfc, (z / -math.sqrt(2.0)).tolist())))
