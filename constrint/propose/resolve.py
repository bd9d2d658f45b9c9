"""From proposals to the configurations that are tried: what any kind of proposal comes to, for one workload.

A proposal says where to look. Which configuration of that part comes first is said by its preferences, then by the
default search: the cost model's order, corrected by what was measured so far (`constrint/tune/search/model.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from constrint.errors import UsageError
from constrint.propose.facts import facts_of, ranked
from constrint.propose.intersect import Intersection, intersect, penalties
from constrint.propose.parse import faults
from constrint.propose.records import (
    ActionProposal,
    Config,
    Facts,
    KernelFacts,
    Proposal,
    Ranked,
    Refusal,
    SourceProposal,
    SpaceProposal,
    StrategyProposal,
)
from constrint.propose.strategies.actions import applied_to_config, applied_to_strategy
from constrint.select.candidates import Candidates, Rows
from constrint.tune.search.interface import Proposal as Tried
from constrint.tune.search.interface import Task
from constrint.tune.search.model import MOST_AMONG, ModelSearch

#: A configuration as a set holds it: its kernel, and its values by name.
Key: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]


def key_of(kernel: str, config: Mapping[str, int]) -> Key:
    """What tells a configuration from all others."""
    return kernel, tuple(sorted(config.items()))


class Order(Protocol):
    """Says which configurations come first; the default search is one (`ModelSearch`)."""

    def peek(self, number: int) -> list[Tried]:
        """The most promising of all configurations that were not proposed before."""

    def expected(self, number: int) -> list[Tried]:
        """What is expected to be fastest of all configurations that were not proposed before."""

    def ask_among(self, kernel: str, rows: Rows, number: int) -> list[Tried]:
        """The most promising of some rows of a kernel that were not proposed before; they count as proposed."""

    def tell(self, proposal: Tried, seconds: float | None) -> None:
        """What came of a configuration: its time, or None where it failed."""


@dataclass(frozen=True)
class Resolved:
    """What a proposal comes to: configurations, the most promising first, or why there are none."""

    configs: tuple[Ranked, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class Resolver:
    """Resolves the proposals of one task, and keeps its strategies by name.

    Args:
        task: What is tuned.
        candidates: Its valid configurations; all of its kernels' if None.
        order: Which configuration of a part of the space comes first; that of the default search if None.
    """

    def __init__(self, task: Task, candidates: Candidates | None = None, order: Order | None = None) -> None:
        self.task = task
        self.candidates = candidates or Candidates.of(task.operation, task.gpu, task.workload, task.fixed)
        self.facts: Facts = facts_of(task, self.candidates)
        self.strategies: dict[str, StrategyProposal] = {}
        self._kernels = {kernel.name: kernel for kernel in self.facts.kernels}
        self._order: Order = order or ModelSearch(task, self.candidates)

    def hear(self, kernel: str, config: Config, seconds: float | None) -> None:
        """What came of a configuration: its time, or None where it did not pass a gate."""
        self._order.tell(Tried(kernel, config), seconds)

    def modelled(self, number: int, tried: Collection[Key]) -> list[Ranked]:
        """The configurations that the cost model alone puts first, those left out that were tried."""
        places, rows = self.candidates.best(number + len(tried))
        found: list[Ranked] = []
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            kernel = self.candidates.kernels[place]
            if len(found) < number and key_of(kernel.spec.full_name, kernel.config(row)) not in tried:
                found.append(ranked(kernel, row))
        return found

    def promising(self, number: int) -> list[Ranked]:
        """The configurations of which most can be expected; they may be proposed again.

        Of some little is known, so that they may be much faster, or slower.
        """
        return self._ranked(self._order.peek(number))

    def expected(self, number: int) -> list[Ranked]:
        """The configurations that are expected to be fastest; they may be proposed again."""
        return self._ranked(self._order.expected(number))

    def resolve(
        self, proposal: Proposal, number: int, tried: Collection[Key] = (), best: Ranked | None = None
    ) -> Resolved:
        """The configurations that a proposal comes to.

        Args:
            proposal: A space, a strategy or an action; source is refused, as it is no configuration.
            number: How many to return at most.
            tried: Those that are left out, because they were tried before.
            best: What an action starts from that names neither a configuration nor a strategy.
        """
        wrong = tuple(faults(proposal, self.facts.kernels))
        if wrong:
            return Resolved(refusals=wrong)
        try:
            space = self._space(proposal, best)
        except UsageError as error:
            return Resolved(refusals=(Refusal(where="", message=str(error)),))
        found = self.intersect(space)
        if isinstance(found, Refusal):
            return Resolved(refusals=(found,))
        configs = self._chosen(space, found, number, tried)
        if not configs:
            message = f"every configuration of this part of {space.kernel} was tried before; widen it."
            return Resolved(refusals=(Refusal(where="", message=message),))
        return Resolved(tuple(configs))

    def _ranked(self, several: Iterable[Tried]) -> list[Ranked]:
        found = []
        for one in several:
            kernel = self.candidates.kernels[self.candidates.by_name[one.kernel]]
            row = kernel.find(one.config)
            found += [ranked(kernel, row)] if row is not None else []
        return found

    def _chosen(self, space: SpaceProposal, found: Intersection, number: int, tried: Collection[Key]) -> list[Ranked]:
        """The most promising configurations of an intersection that were not tried."""
        base = self.candidates.kernels[self.candidates.by_name[space.kernel]]
        known = [base.find(dict(config)) for kernel, config in tried if kernel == space.kernel]
        missed = penalties(space.preferences, found.kernel, found.rows)
        configs: list[Ranked] = []
        for level in np.unique(missed).tolist():
            rows = found.rows[missed == level]
            if found.kernel is not base:
                listed = [base.find(found.kernel.config(row)) for row in rows[:MOST_AMONG].tolist()]
                rows = np.array([row for row in listed if row is not None], dtype=np.int64)
            fresh = rows[~np.isin(rows, [row for row in known if row is not None])]
            chosen = self._order.ask_among(space.kernel, fresh, number - len(configs))
            configs += [ranked(base, row) for one in chosen if (row := base.find(one.config)) is not None]
            if len(configs) == number:
                break
        return configs

    def intersect(self, space: SpaceProposal) -> Intersection | Refusal:
        """The valid configurations that a space leaves, or why there are none."""
        kernel = self.candidates.kernels[self.candidates.by_name[space.kernel]]
        return intersect(space, kernel, self.task.fixed)

    def kernel(self, name: str) -> KernelFacts:
        """The facts of a kernel."""
        return self._kernels[name]

    def _space(self, proposal: Proposal, best: Ranked | None) -> SpaceProposal:
        """What a proposal comes to as a space; a strategy is kept under its name.

        Raises:
            UsageError: When there is no such strategy, nothing to start from, or nowhere to go.
        """
        if isinstance(proposal, SpaceProposal):
            return proposal
        if isinstance(proposal, StrategyProposal):
            self.strategies[proposal.name] = proposal
            return proposal.space
        if isinstance(proposal, SourceProposal):
            raise UsageError("source is no configuration of a kernel; it has gates of its own.")
        return self._after(proposal, best)

    def _after(self, action: ActionProposal, best: Ranked | None) -> SpaceProposal:
        """Where an action leads."""
        kernel = self.kernel(action.kernel)
        if action.strategy:
            strategy = self.strategies.get(action.strategy)
            if strategy is None or strategy.kernel != action.kernel:
                known = ", ".join(s.name for s in self.strategies.values() if s.kernel == action.kernel)
                raise UsageError(f"{action.kernel} has no strategy {action.strategy!r}; known: {known or 'none'}.")
            moved = applied_to_strategy(action, strategy, kernel)
            self.strategies[moved.name] = moved
            return moved.space
        start: Config | None = action.config
        if start is None and best is not None and best.kernel == action.kernel:
            start = best.config
        if start is None:
            raise UsageError(f"no configuration of {action.kernel} was timed yet: say which `config` to start from.")
        return applied_to_config(action, start, kernel)
