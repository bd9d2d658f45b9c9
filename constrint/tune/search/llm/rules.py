"""The built-in proposer: no language model, the same mechanisms.

It spreads its trials over sources that are wrong in different places. A quarter of its proposals are what the cost
model alone puts first. Half are those of which most can be expected by what was measured, on this workload and on
others. The last quarter is, in turn, a macro action or two away from the best, with what the judge's verdicts say; or a
strategy for the roofline's zone, at first from winners nearby and later crossed from the best ones. There is no chance
in it: the same facts always get the same proposals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from constrint.tune.search.llm.actions import near_rule
from constrint.tune.search.llm.records import (
    MAX_ITEMS,
    Config,
    Edit,
    Failure,
    GateResult,
    Preference,
    Proposal,
    Ranked,
    Refusal,
    Restriction,
    SpaceProposal,
    StrategyProposal,
    TaskFacts,
    Values,
)
from constrint.tune.search.llm.resolve import Key, Resolver, key_of
from constrint.tune.search.llm.strategies import Population, holds_rules, strategies_against, strategies_nearby, zone_of

#: What is proposed in turn: what the cost model alone (o) and as corrected by times (m) puts first, what is promising
#: (p), an action (a), a strategy (s), a verdict (v). What other plans take: `python -m benchmarks.propose.value`.
PLAN: Final = "oppaoppsoppaoppv"
#: Proposals of a round.
WIDTH: Final = 4
#: How many parameters a configuration may differ in from the best one to be near it.
NEAR: Final = 2
#: Edits of verdicts that are remembered.
MOST_EDITS: Final = 16


class BuiltInProposer:
    """Proposes by rules; see the module's docstring.

    Args:
        resolver: What the rounds resolve proposals with.
        plan: What is proposed in turn, a letter for each: see `PLAN`.
        width: How many proposals a round has.
    """

    name = "built-in"

    def __init__(self, resolver: Resolver, plan: str = PLAN, width: int = WIDTH) -> None:
        self._resolver, self._plan, self._width = resolver, plan, width
        self._population = Population(self._fits)
        self._wanted: deque[Edit] = deque(maxlen=MOST_EDITS)
        self._shunned: deque[Edit] = deque(maxlen=MOST_EDITS)
        self._at = 0

    def propose(self, facts: TaskFacts) -> Sequence[Proposal]:
        """What to try in this round; in the first one the model's first choice comes first."""
        if facts.round == 0:
            self._population.add([*strategies_nearby(facts), *self._first_strategies(facts)])
        self._population.hear(facts.results)
        for verdict in facts.verdicts:
            if verdict.edit is not None:
                (self._shunned if isinstance(verdict, Failure) else self._wanted).append(verdict.edit)
        best = best_of(facts.results)
        letters = self._letters(self._width - (facts.round == 0))
        others = [self._by_letter(letter, facts, best) for letter in letters]
        told = [proposal for proposal in others if proposal is not None]
        return [*self._plain(letters, self._width - len(told), facts), *told]

    def _letters(self, number: int) -> str:
        """The next letters of the plan."""
        letters = [self._plan[(self._at + n) % len(self._plan)] for n in range(number)]
        self._at += number
        return "".join(letters)

    def _first_strategies(self, facts: TaskFacts) -> Iterator[StrategyProposal]:
        """Against what binds each kernel's first choice; the kernel that the model puts first comes first."""
        for kernel in dict.fromkeys(choice.kernel for choice in facts.ranking):
            choice = next(choice for choice in facts.ranking if choice.kernel == kernel)
            yield from strategies_against(choice, self._resolver.kernel(kernel))

    def _by_letter(self, letter: str, facts: TaskFacts, best: GateResult | None) -> Proposal | None:
        """A proposal of a kind; None for single configurations, and where there is none of the kind now."""
        if letter == "s":
            return self._population.next(zone_of(facts)) or self._population.cross()
        if best is None or not best.config:
            return None
        if letter == "a":
            return near(best.kernel, best.config, 1)
        return self._refined(best) if letter == "v" else None

    def _plain(self, letters: str, number: int, facts: TaskFacts) -> list[SpaceProposal]:
        """So many single configurations: by the cost model alone, as corrected, and then the most promising ones."""
        found: dict[Key, SpaceProposal] = {}

        def add(choices: Iterable[Ranked], most: int, because: str) -> None:
            for choice in choices:
                if len(found) < min(most, number):
                    found.setdefault(key_of(choice.kernel, choice.config), one(choice.kernel, choice.config, because))

        tried = {key_of(result.kernel, result.config) for result in facts.results}
        most = letters.count("o") + (facts.round == 0)
        add(self._resolver.modelled(most, tried), most, "the cost model alone puts it first")
        most += letters.count("m")
        add(self._resolver.expected(most), most, "the cost model, corrected by what was measured, puts it first")
        add(self._resolver.promising(number), number, "by what was measured, most can be gained here")
        return list(found.values())

    def _refined(self, best: GateResult) -> SpaceProposal:
        """The neighbourhood of the best one with the newest edit of a verdict that it does not follow already.

        What failed before is what comes last there.
        """
        shunned = [rule for edit in self._shunned if edit.kernel == best.kernel for rule in edit.add]
        wishes = [Preference(rule=rule.rule, because=rule.because) for rule in shunned[-MAX_ITEMS:]]
        around = edited(near(best.kernel, best.config, NEAR), Edit(kernel=best.kernel, prefer=tuple(wishes)))
        for edit in reversed(self._wanted):
            if edit.kernel == best.kernel and not holds_rules(edit.add, best.config):
                space = edited(around, edit)
                if not isinstance(self._resolver.intersect(space), Refusal):
                    return space
        return around

    def _fits(self, strategy: StrategyProposal) -> bool:
        return not isinstance(self._resolver.intersect(strategy.space), Refusal)


def best_of(results: Sequence[GateResult]) -> GateResult | None:
    """The fastest candidate so far; None where none was timed."""
    timed = [result for result in results if result.gate == "fast" and result.passed and result.seconds]
    return min(timed, key=lambda result: result.seconds or 0.0) if timed else None


def one(kernel: str, config: Config, because: str) -> SpaceProposal:
    """A space of a single configuration."""
    values = tuple(Values(parameter=name, values=(value,)) for name, value in config.items())
    return SpaceProposal(kernel=kernel, values=values, because=because)


def near(kernel: str, config: Config, most: int) -> SpaceProposal:
    """The space of what differs from a configuration in so many parameters at most."""
    because = f"at most {most} macro actions from the best so far"
    rule = Restriction(rule=near_rule(config, most), because=because)
    return SpaceProposal(kernel=kernel, rules=(rule,), because=because)


def edited(space: SpaceProposal, edit: Edit) -> SpaceProposal:
    """A space with a judge's edit."""
    replaced = {part.parameter for part in edit.values}
    return SpaceProposal(
        kernel=space.kernel,
        values=(*(part for part in space.values if part.parameter not in replaced), *edit.values),
        rules=(*(rule for rule in space.rules if rule.rule not in edit.drop), *edit.add),
        preferences=(*space.preferences, *edit.prefer),
        because=space.because,
    )
