"""From a proposal to configurations: the proposed space AND the kernel's own certain rules, the most promising first.

Whatever is proposed, the configurations that remain can run. Rules and values exclude; preferences only order; among
equals the default search decides (the cost model's order, corrected by the times so far, `tune/search/model.py`). Where
no configuration remains, the refusal names the minimal conflict and the cheapest change of the proposal that resolves
it: the rules of the kernel and of the GPU are not for a proposer to change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from constrint.errors import ConstrintError, LimitReachedError, UsageError
from constrint.model import Constraint, Problem, Var, is_in
from constrint.model.columns import column_of, test
from constrint.select.candidates import Candidates, KernelCandidates, Rows, with_fixed
from constrint.select.rank import KernelProblem, tie_steps
from constrint.solve import Limits, minimal_conflict, relaxations
from constrint.solve.explain.conflict import ways_out
from constrint.tune.search.interface import Proposal as Trial
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.actions import applied_to_config, applied_to_strategy
from constrint.tune.search.llm.facts import facts_of, ranked
from constrint.tune.search.llm.parse import faults, read_rule
from constrint.tune.search.llm.records import (
    ActionProposal,
    Config,
    PredictedConfig,
    Preference,
    Proposal,
    ProposalRefusal,
    SourceProposal,
    SpaceProposal,
    StrategyProposal,
    TaskFacts,
    TaskKernel,
)
from constrint.tune.search.model import MOST_AMONG, ModelSearch

#: A configuration as a member of a set: its kernel, and its values by name.
Key: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]
#: Time limit of one intersection, and of its explanation.
MAX_SECONDS: Final = 10.0
#: Reason of a proposed rule whose proposer gave none.
_NO_REASON: Final = "it was proposed"


def key_of(kernel: str, config: Mapping[str, int]) -> Key:
    """The key of a configuration."""
    return kernel, tuple(sorted(config.items()))


class Order(Protocol):
    """Order of configurations by promise; its methods are those of `ModelSearch`."""

    def peek(self, number: int) -> list[Trial]: ...  # noqa: D102 - see `ModelSearch`
    def expected(self, number: int) -> list[Trial]: ...  # noqa: D102
    def ask_among(self, kernel: str, rows: Rows, number: int) -> list[Trial]: ...  # noqa: D102
    def tell(self, proposal: Trial, seconds: float | None) -> None: ...  # noqa: D102


@dataclass(frozen=True)
class Resolved:
    """Configurations of a proposal, the most promising first, or the reasons for which there are none."""

    configs: tuple[PredictedConfig, ...] = ()
    refusals: tuple[ProposalRefusal, ...] = ()


class Resolver:
    """Resolves the proposals of one task, and keeps its strategies by name.

    Args:
        task: The workload and the GPU.
        candidates: Its valid configurations; those of all its kernels if None.
        order: Order within a proposed space; that of the default search if None.
    """

    def __init__(self, task: SearchTask, candidates: Candidates | None = None, order: Order | None = None) -> None:
        self.task = task
        self.candidates = candidates or Candidates.of(task.operation, task.gpu, task.workload, task.fixed)
        self.facts: TaskFacts = facts_of(task, self.candidates)
        self.strategies: dict[str, StrategyProposal] = {}
        self._kernels = {kernel.name: kernel for kernel in self.facts.kernels}
        self._order: Order = order or ModelSearch(task, self.candidates)

    def hear(self, kernel: str, config: Config, seconds: float | None) -> None:
        """Learn from a configuration's time, or from None where it failed a gate."""
        self._order.tell(Trial(kernel, config), seconds)

    def kernel(self, name: str) -> TaskKernel:
        """The facts of a kernel."""
        return self._kernels[name]

    def modelled(self, number: int, tried: Collection[Key]) -> list[PredictedConfig]:
        """The configurations that the cost model alone ranks first, without those in `tried`."""
        places, rows = self.candidates.best(number + len(tried))
        first: list[PredictedConfig] = []
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            kernel = self.candidates.kernels[place]
            if len(first) < number and key_of(kernel.spec.full_name, kernel.config(row)) not in tried:
                first.append(ranked(kernel, row))
        return first

    def promising(self, number: int) -> list[PredictedConfig]:
        """The configurations with the largest expected improvement; they may be proposed again.

        Some are little known: they may be much faster, or slower.
        """
        return self._ranked(self._order.peek(number))

    def expected(self, number: int) -> list[PredictedConfig]:
        """The configurations with the least expected time; they may be proposed again."""
        return self._ranked(self._order.expected(number))

    def resolve(
        self, proposal: Proposal, number: int, tried: Collection[Key] = (), best: PredictedConfig | None = None
    ) -> Resolved:
        """The configurations of a proposal.

        Args:
            proposal: A space, a strategy or an action; source is refused, as it is no configuration.
            number: Most configurations.
            tried: Configurations to leave out.
            best: Start of an action that names neither a configuration nor a strategy.
        """
        mistakes = tuple(faults(proposal, self.facts.kernels))
        if mistakes:
            return Resolved(refusals=mistakes)
        try:
            space = self._space(proposal, best)
        except UsageError as error:
            return Resolved(refusals=(ProposalRefusal(where="", message=str(error)),))
        left = self.intersect(space)
        if isinstance(left, ProposalRefusal):
            return Resolved(refusals=(left,))
        configs = self._chosen(space, left, number, tried)
        if configs:
            return Resolved(tuple(configs))
        message = f"every configuration of this part of {space.kernel} was tried before; widen it."
        return Resolved(refusals=(ProposalRefusal(where="", message=message),))

    def intersect(self, space: SpaceProposal) -> Intersection | ProposalRefusal:
        """The valid configurations in a space, or the reason for which there are none."""
        return intersect(space, self._candidates_of(space.kernel), self.task.fixed)

    def _candidates_of(self, kernel: str) -> KernelCandidates:
        return self.candidates.kernels[self.candidates.by_name[kernel]]

    def _ranked(self, trials: Iterable[Trial]) -> list[PredictedConfig]:
        found = ((kernel, kernel.find(one.config)) for one in trials if (kernel := self._candidates_of(one.kernel)))
        return [ranked(kernel, row) for kernel, row in found if row is not None]

    def _chosen(
        self, space: SpaceProposal, left: Intersection, number: int, tried: Collection[Key]
    ) -> list[PredictedConfig]:
        """The most promising configurations of an intersection, without those in `tried`."""
        base = self._candidates_of(space.kernel)
        old = _rows_in(base, (dict(config) for kernel, config in tried if kernel == space.kernel))
        missed = penalties(space.preferences, left.kernel, left.rows)
        configs: list[PredictedConfig] = []
        for level in np.unique(missed).tolist():
            rows = left.rows[missed == level]
            if left.kernel is not base:
                rows = _rows_in(base, map(left.kernel.config, rows[:MOST_AMONG].tolist()))
            fresh = rows[~np.isin(rows, old)]
            configs += self._ranked(self._order.ask_among(space.kernel, fresh, number - len(configs)))
            if len(configs) == number:
                break
        return configs

    def _space(self, proposal: Proposal, best: PredictedConfig | None) -> SpaceProposal:
        """A proposal as a space; a strategy is kept under its name.

        Raises:
            UsageError: When a named strategy is unknown, or an action has no start or no further value.
        """
        if isinstance(proposal, SourceProposal):
            raise UsageError("source is no configuration of a kernel; it has gates of its own.")
        space = self._after(proposal, best) if isinstance(proposal, ActionProposal) else proposal
        if isinstance(space, StrategyProposal):
            self.strategies[space.name] = space
        return space

    def _after(self, action: ActionProposal, best: PredictedConfig | None) -> SpaceProposal:
        """The space that an action leads to."""
        kernel = self.kernel(action.kernel)
        if action.strategy:
            strategy = self.strategies.get(action.strategy)
            if strategy is None or strategy.kernel != action.kernel:
                names = ", ".join(s.name for s in self.strategies.values() if s.kernel == action.kernel)
                raise UsageError(f"{action.kernel} has no strategy {action.strategy!r}; known: {names or 'none'}.")
            return applied_to_strategy(action, strategy, kernel)
        start = best.config if best is not None and best.kernel == action.kernel else None
        if action.config is None and start is None:
            raise UsageError(f"no configuration of {action.kernel} was timed yet: say which `config` to start from.")
        return applied_to_config(action, action.config or start or {}, kernel)


def _rows_in(kernel: KernelCandidates, configs: Iterable[Mapping[str, int]]) -> Rows:
    """The rows of a kernel that have one of the configurations."""
    return np.array([row for config in configs if (row := kernel.find(config)) is not None], dtype=np.int64)


@dataclass(frozen=True)
class Intersection:
    """The configurations of one kernel that are in a proposed space.

    Args:
        kernel: The kernel's configurations; solved for this space alone where the whole one is too large to list.
        rows: Rows of `kernel` in the space, the most promising first.
    """

    kernel: KernelCandidates
    rows: Rows


def intersect(
    space: SpaceProposal, kernel: KernelCandidates, fixed: Mapping[str, int] | None = None
) -> Intersection | ProposalRefusal:
    """The valid configurations of a kernel in a proposed space, or the reason for which there are none.

    Args:
        space: The proposal, of this kernel.
        kernel: The kernel's valid configurations.
        fixed: Parameters that the caller fixed.
    """
    try:
        rules = constraints_of(space, list(kernel.columns))
        if kernel.space is None:
            rows: Rows = np.arange(kernel.num_rows)
            for rule in rules:
                rows = rows[holds(rule, kernel, rows)]
        else:
            problem, _ = _problem(rules, kernel, fixed or {})
            request = KernelProblem(kernel.spec, kernel.gpu, kernel.workload, problem)
            kernel = KernelCandidates.of(request, Limits(max_seconds=MAX_SECONDS))
            rows = np.arange(kernel.num_rows)
        return (
            Intersection(kernel, _ordered(space, kernel, rows)) if len(rows) else _explained(rules, kernel, fixed or {})
        )
    except ConstrintError as error:
        return ProposalRefusal(where="", message=f"{space.kernel}: {error}")


def constraints_of(space: SpaceProposal, names: Sequence[str]) -> list[Constraint]:
    """The constraints of a proposed space, each with its reason.

    Raises:
        ConstrintError: When a rule cannot be read.
    """
    values = ((is_in(Var(part.parameter), list(part.values)), part.because) for part in space.values)
    rules = ((read_rule(part.rule, names), part.because) for part in space.rules)
    return [rule.labelled(because or _NO_REASON, "", "") for rule, because in (*values, *rules)]


def holds(rule: Constraint, kernel: KernelCandidates, rows: Rows) -> NDArray[np.bool_]:
    """Mask of the rows for which a rule holds."""
    columns = {name: column_of(kernel.columns[name][rows]) for name in rule.variables}
    return np.broadcast_to(np.asarray(test(rule, columns), dtype=bool), (len(rows),))


def penalties(preferences: Sequence[Preference], kernel: KernelCandidates, rows: Rows) -> NDArray[np.int64]:
    """Per row the total weight of the preferences that it does not meet."""
    total = np.zeros(len(rows), dtype=np.int64)
    for part in preferences:
        total += part.weight * ~holds(read_rule(part.rule, list(kernel.columns)), kernel, rows)
    return total


def _ordered(space: SpaceProposal, kernel: KernelCandidates, rows: Rows) -> Rows:
    """Rows by preferences, then by predicted time, then by the order of the proposed values."""
    keys = [tie_steps(kernel.seconds[rows]), penalties(space.preferences, kernel, rows)]
    for part in space.values:
        by_value = np.argsort(part.values, kind="stable")
        at = np.searchsorted(np.asarray(part.values)[by_value], kernel.columns[part.parameter][rows])
        keys.insert(0, by_value[at])
    return rows[np.lexsort(keys)]


def _problem(
    rules: Sequence[Constraint], kernel: KernelCandidates, fixed: Mapping[str, int]
) -> tuple[Problem, list[Constraint]]:
    """The kernel's problem with the proposed rules added, and these rules as members of it."""
    problem = with_fixed(kernel.spec.problem(kernel.gpu, kernel.workload), fixed)
    return problem, [problem.add(rule) for rule in rules]


def _explained(rules: Sequence[Constraint], kernel: KernelCandidates, fixed: Mapping[str, int]) -> ProposalRefusal:
    """The refusal of an empty intersection: the conflict, and the cheapest change of the proposal that resolves it."""
    problem, proposed = _problem(rules, kernel, fixed)
    head, limits = f"no configuration of {kernel.spec.full_name} is left.", Limits(max_seconds=MAX_SECONDS)
    try:
        conflict = minimal_conflict(problem, limits, domains_in_force=True)
    except UsageError:
        # A table of measurements, say, holds fewer configurations than are valid.
        return ProposalRefusal(where="", message=f"{head} Valid ones exist, but none of them may be tried here.")
    except LimitReachedError as error:
        return ProposalRefusal(where="", message=f"{head} Why was not found: {error}")
    ways = relaxations(problem, conflict, limits, among=lambda member: any(member.constraint is r for r in proposed))
    change = f"The cheapest change: it {ways_out(ways[:1])}." if ways else "No change of one proposed rule is enough."
    return ProposalRefusal(where="", message=f"{head} {conflict}\n{change}")
