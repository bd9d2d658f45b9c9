"""Strategies, short texts with constraints: from winners nearby, against bottlenecks, and crossed in a population.

The score of a strategy is the fastest configuration that satisfies all its constraints, whoever proposed it. A cross is
the union of two sets of constraints; where both cannot hold, the better parent's remain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from constrint.errors import ConstrintError
from constrint.tune.search.llm.actions import Move, moves_against, rule_of, zone_of_part
from constrint.tune.search.llm.parse import read_rule
from constrint.tune.search.llm.records import (
    MAX_ITEMS,
    MAX_RULE,
    Config,
    GateResult,
    PredictedConfig,
    Restriction,
    StrategyProposal,
    TaskFacts,
    TaskKernel,
    Values,
    Zone,
)

#: Size of a population; of more strategies the slowest are forgotten.
MOST_KEPT: Final = 24
#: Largest parts of a predicted time that strategies are made against.
NUM_PARTS: Final = 3
#: Text of the strategy that makes a move.
TEXTS: Final[Mapping[Move, str]] = {
    ("tile", "more"): "Larger tiles: every operand that was loaded is used more often.",
    ("tile", "less"): "Smaller tiles: more blocks, so that the last wave is fuller.",
    ("fuse", "more"): "Do more in one launch or one pass: less is started and written in between.",
    ("fuse", "less"): "Do less at once: each block is started, done and gone sooner.",
    ("pipeline", "more"): "A deeper pipeline: more loads are in flight while the units compute.",
    ("pipeline", "less"): "A shallower pipeline: more blocks fit on one SM and hide each other's waiting.",
    ("reorder", "more"): "Walk more neighbouring tiles together: what they share is found in the cache.",
    ("reorder", "less"): "Walk fewer tiles together.",
    ("vectorise", "more"): "More warps share a block's work: each thread holds less.",
    ("vectorise", "less"): "Fewer warps: each loads less of what others load too.",
    ("split", "more"): "Split the work of one tile over more blocks: all SMs have something to do.",
    ("split", "less"): "Split less: nothing has to be summed or waited for.",
}


class Population:
    """Strategies with the best time of each.

    Args:
        fits: Whether any configuration of its kernel satisfies a strategy.
    """

    def __init__(self, fits: Callable[[StrategyProposal], bool]) -> None:
        self._fits = fits
        self._members: dict[str, StrategyProposal] = {}
        self._best_s: dict[str, float] = {}
        self._used: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, strategies: Iterable[StrategyProposal]) -> None:
        """Add strategies that fit, except those with a name or a set of constraints that a member has."""
        for strategy in strategies:
            if self._is_new(strategy) and self._fits(strategy):
                self._members[strategy.name] = strategy
                self._best_s[strategy.name] = math.inf
        slowest = sorted(self._used & set(self._members), key=lambda name: -self._best_s[name])
        for name in slowest[: max(0, len(self._members) - MOST_KEPT)]:
            del self._members[name]

    def hear(self, results: Iterable[GateResult]) -> None:
        """Score the members: a time counts for every strategy whose constraints its configuration satisfies."""
        timed = [result for result in results if result.gate == "fast" and result.passed and result.seconds]
        for name, strategy in self._members.items():
            own = (r for r in timed if r.kernel == strategy.kernel and holds(strategy, r.config))
            self._best_s[name] = min((r.seconds for r in own if r.seconds), default=math.inf)

    def next(self, zone: Zone) -> StrategyProposal | None:
        """The next unused strategy, those for the zone first; None where all were used."""
        waiting = [member for name, member in self._members.items() if name not in self._used]
        chosen = next(chosen_by_zone(waiting, zone), None)
        if chosen is not None:
            self._used.add(chosen.name)
        return chosen

    def best(self) -> list[StrategyProposal]:
        """The strategies with a time, the fastest first."""
        timed = [name for name in self._members if math.isfinite(self._best_s[name])]
        return [self._members[name] for name in sorted(timed, key=lambda name: self._best_s[name])]

    def cross(self) -> StrategyProposal | None:
        """Add the child of the best pair of one kernel's strategies without a child, and return it; None: no pair."""
        pairs = itertools.combinations(self.best(), 2)
        for better, other in sorted(pairs, key=lambda pair: self._best_s[pair[0].name] + self._best_s[pair[1].name]):
            child = crossed(better, other, self._fits) if better.kernel == other.kernel else None
            if child is not None and self._is_new(child):
                self.add([child])
                return self._members.get(child.name)
        return None

    def _is_new(self, strategy: StrategyProposal) -> bool:
        present = (constraints(member) for member in self._members.values())
        return strategy.name not in self._members and constraints(strategy) not in present


def crossed(
    better: StrategyProposal, other: StrategyProposal, fits: Callable[[StrategyProposal], bool]
) -> StrategyProposal | None:
    """The child of two strategies of one kernel: the better one's constraints, and those of the other that fit.

    None where no constraint of the other one fits.
    """
    child = first = StrategyProposal(
        name=f"{better.name} x {other.name}"[:120],
        text=f"{better.text} {other.text}"[:1000],
        kernel=better.kernel,
        values=better.values,
        rules=better.rules,
        preferences=(*better.preferences, *other.preferences)[:MAX_ITEMS],
        zones=tuple(sorted({*better.zones, *other.zones})),
        parents=(better.name, other.name),
    )
    parts: tuple[Values | Restriction, ...] = (*other.values, *other.rules)
    for part in parts:
        wider = _with(child, part)
        child = wider if wider is not None and fits(wider) else child
    return None if child is first else child


def constraints(strategy: StrategyProposal) -> tuple[object, ...]:
    """The constraints of a strategy without its text, for comparison."""
    values = sorted((part.parameter, tuple(sorted(part.values))) for part in strategy.values)
    rules, wishes = sorted(part.rule for part in strategy.rules), sorted(part.rule for part in strategy.preferences)
    return strategy.kernel, tuple(values), tuple(rules), tuple(wishes)


def holds(strategy: StrategyProposal, config: Config) -> bool:
    """Whether a configuration satisfies every constraint of a strategy."""
    has_values = all(config.get(part.parameter) in part.values for part in strategy.values)
    return has_values and holds_rules(strategy.rules, config)


def holds_rules(rules: Iterable[Restriction], config: Config) -> bool:
    """Whether a configuration satisfies all rules."""
    try:
        return all(read_rule(part.rule, list(config)).holds(config) for part in rules)
    except ConstrintError:
        return False


def _with(strategy: StrategyProposal, part: Values | Restriction) -> StrategyProposal | None:
    """A strategy with one more constraint; None where it has that constraint or parameter, or no room."""
    if isinstance(part, Values):
        if part.parameter in {own.parameter for own in strategy.values} or len(strategy.values) == MAX_ITEMS:
            return None
        return msgspec.structs.replace(strategy, values=(*strategy.values, part))
    if part.rule in {own.rule for own in strategy.rules} or len(strategy.rules) == MAX_ITEMS:
        return None
    return msgspec.structs.replace(strategy, rules=(*strategy.rules, part))


def chosen_by_zone(strategies: list[StrategyProposal], zone: Zone) -> Iterator[StrategyProposal]:
    """Strategies for the zone, then those for any zone, then the others."""
    return iter(sorted(strategies, key=lambda strategy: 0 if zone in strategy.zones else 2 if strategy.zones else 1))


def strategies_nearby(facts: TaskFacts) -> list[StrategyProposal]:
    """Winners of the nearest workloads, limited to values that the kernels have for this workload."""
    has = {(kernel.name, param.name): param.values for kernel in facts.kernels for param in kernel.params}
    strategies = []
    for near in facts.nearby:
        values = tuple(
            Values(parameter=name, values=(value,), because=f"it won for {near.workload}")
            for name, value in near.config.items()
            if value in has.get((near.kernel, name), ())
        )
        text = f"What was fastest for {near.workload}, {near.distance:.1f} powers of two away."
        name = f"as for {near.workload}"[:100]
        strategies += [StrategyProposal(name=name, text=text, kernel=near.kernel, values=values)] if values else []
    return strategies


def strategies_against(choice: PredictedConfig, kernel: TaskKernel) -> list[StrategyProposal]:
    """Strategies against the largest parts of a configuration's predicted time, the largest first."""
    strategies: dict[Move, StrategyProposal] = {}
    for part in sorted(choice.parts_s, key=lambda name: -choice.parts_s[name])[:NUM_PARTS]:
        for move in moves_against(part):
            rule = rule_of(move, choice.config, kernel)
            if rule and move not in strategies and len(rule) <= MAX_RULE:
                because = f"{part} is a large part of the predicted time"
                strategies[move] = StrategyProposal(
                    name=f"{move[0]} {move[1]}, {kernel.name}",
                    text=TEXTS[move],
                    kernel=kernel.name,
                    rules=(Restriction(rule=rule, because=because),),
                    zones=(zone_of_part(part),),
                )
    return list(strategies.values())
