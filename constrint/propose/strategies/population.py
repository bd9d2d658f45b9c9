"""A population of strategies: which are tried next, how good each was, and how two become a new one.

A strategy is as good as the fastest configuration that satisfies all of its constraints, whoever proposed it. Two are
crossed as sets of constraints: the child keeps both; where both cannot hold, the better parent's stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import msgspec

from constrint.errors import ConstrintError
from constrint.propose.parse import read_rule
from constrint.propose.records import (
    MAX_ITEMS,
    Config,
    GateResult,
    Restriction,
    StrategyProposal,
    Values,
    Zone,
)
from constrint.propose.strategies.strategy import chosen_by_zone

#: Strategies that are kept: of more, the slowest are forgotten.
MOST_KEPT = 24


class Population:
    """Strategies and what was measured under each.

    Args:
        fits: Whether a strategy leaves any configuration of its kernel.
    """

    def __init__(self, fits: Callable[[StrategyProposal], bool]) -> None:
        self._fits = fits
        self._members: dict[str, StrategyProposal] = {}
        self._best_s: dict[str, float] = {}
        self._asked: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, strategies: Iterable[StrategyProposal]) -> None:
        """Take in strategies that leave something; one of a known name, or with the same constraints, is not new."""
        for strategy in strategies:
            known = (constraints(member) for member in self._members.values())
            if strategy.name not in self._members and constraints(strategy) not in known and self._fits(strategy):
                self._members[strategy.name] = strategy
                self._best_s[strategy.name] = math.inf
        slowest = sorted(self._asked & set(self._members), key=lambda name: -self._best_s[name])
        for name in slowest[: max(0, len(self._members) - MOST_KEPT)]:
            del self._members[name]

    def hear(self, results: Iterable[GateResult]) -> None:
        """Take in times: each counts for every strategy whose constraints its configuration satisfies."""
        timed = [result for result in results if result.gate == "fast" and result.passed and result.seconds]
        for name, strategy in self._members.items():
            times = [
                r.seconds for r in timed if r.seconds and r.kernel == strategy.kernel and holds(strategy, r.config)
            ]
            self._best_s[name] = min(times, default=math.inf)

    def next(self, zone: Zone) -> StrategyProposal | None:
        """The next strategy that was not asked for yet, those for the zone first; None where there is none."""
        waiting = [member for name, member in self._members.items() if name not in self._asked]
        chosen = next(chosen_by_zone(waiting, zone), None)
        if chosen is not None:
            self._asked.add(chosen.name)
        return chosen

    def best(self) -> list[StrategyProposal]:
        """The strategies under which something was timed, the fastest first."""
        timed = [name for name in self._members if math.isfinite(self._best_s[name])]
        return [self._members[name] for name in sorted(timed, key=lambda name: self._best_s[name])]

    def cross(self) -> StrategyProposal | None:
        """A child of the two best strategies of one kernel that have none yet; taken in at once. None: no pair left."""
        pairs = itertools.combinations(self.best(), 2)
        for better, other in sorted(pairs, key=lambda pair: self._best_s[pair[0].name] + self._best_s[pair[1].name]):
            if better.kernel != other.kernel:
                continue
            child = crossed(better, other, self._fits)
            known = [constraints(member) for member in self._members.values()]
            if child is not None and child.name not in self._members and constraints(child) not in known:
                self.add([child])
                return self._members.get(child.name)
        return None


def crossed(
    better: StrategyProposal, other: StrategyProposal, fits: Callable[[StrategyProposal], bool]
) -> StrategyProposal | None:
    """The child of two strategies of one kernel: the better one's constraints, and as many of the other's as fit.

    None where nothing of the other one can be added.
    """
    child = StrategyProposal(
        name=f"{better.name} x {other.name}"[:120],
        text=f"{better.text} {other.text}"[:1000],
        kernel=better.kernel,
        values=better.values,
        rules=better.rules,
        preferences=(*better.preferences, *other.preferences)[:MAX_ITEMS],
        zones=tuple(sorted({*better.zones, *other.zones})),
        parents=(better.name, other.name),
    )
    added = 0
    parts: tuple[Values | Restriction, ...] = (*other.values, *other.rules)
    for part in parts:
        wider = _with(child, part)
        if wider is not None and fits(wider):
            child, added = wider, added + 1
    return child if added else None


def constraints(strategy: StrategyProposal) -> tuple[object, ...]:
    """What a strategy comes to, without its words: equal for strategies that leave the same configurations."""
    values = sorted((part.parameter, tuple(sorted(part.values))) for part in strategy.values)
    rules, wishes = sorted(part.rule for part in strategy.rules), sorted(part.rule for part in strategy.preferences)
    return strategy.kernel, tuple(values), tuple(rules), tuple(wishes)


def holds(strategy: StrategyProposal, config: Config) -> bool:
    """Whether a configuration satisfies every constraint of a strategy."""
    if any(config.get(part.parameter) not in part.values for part in strategy.values):
        return False
    return holds_rules(strategy.rules, config)


def holds_rules(rules: Iterable[Restriction], config: Config) -> bool:
    """Whether a configuration satisfies all of these rules."""
    try:
        return all(read_rule(part.rule, list(config)).holds(config) for part in rules)
    except ConstrintError:
        return False


def _with(strategy: StrategyProposal, part: Values | Restriction) -> StrategyProposal | None:
    """A strategy with one constraint more; None where it has it, has values of that parameter, or has no room."""
    values, rules = strategy.values, strategy.rules
    if isinstance(part, Values):
        if part.parameter in {known.parameter for known in values} or len(values) == MAX_ITEMS:
            return None
        values = (*values, part)
    else:
        if part.rule in {known.rule for known in rules} or len(rules) == MAX_ITEMS:
            return None
        rules = (*rules, part)
    return msgspec.structs.replace(strategy, values=values, rules=rules)
