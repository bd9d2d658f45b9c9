"""The built-in proposer: rules in place of a language model.

It spreads its proposals over sources with different errors. A quarter are the cost model's own ranking. Half have the
largest expected improvement by the times so far, of this workload and of others. The last quarter is, in turn, one or
two macro actions away from the best configuration, with the edits of the judge's verdicts; or a strategy for the zone
on the roofline, at first from winners nearby, later crossed from the best strategies. Nothing is random: equal facts
get equal proposals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from constrint.tune.search.llm.actions import near_rule
from constrint.tune.search.llm.answer import PromptRequest, Response
from constrint.tune.search.llm.judge import judge
from constrint.tune.search.llm.records import (
    MAX_ITEMS,
    Config,
    Edit,
    Failure,
    GateResult,
    PredictedConfig,
    Preference,
    Proposal,
    ProposalRefusal,
    Reply,
    Restriction,
    SpaceProposal,
    StrategyProposal,
    TaskFacts,
    Values,
)
from constrint.tune.search.llm.resolve import Key, Resolver, key_of
from constrint.tune.search.llm.strategies import Population, holds_rules, strategies_against, strategies_nearby

#: Sources in turn, a letter each: the cost model's ranking (o), the ranking corrected by times (m), largest expected
#: improvement (p), an action (a), a strategy (s), a verdict's edit (v).
PLAN: Final = "oppaoppsoppaoppv"
#: Proposals of a round.
WIDTH: Final = 4
#: Parameters in which a near configuration may differ from the best one.
NEAR: Final = 2
#: Most edits of verdicts that are remembered.
MOST_EDITS: Final = 16


class BuiltInProposer:
    """A speaker that proposes and judges by rules; see the module's docstring. Its answers are parsed like a model's.

    Args:
        resolver: Resolves the search's proposals.
        plan: Sources in turn, see `PLAN`.
        width: Proposals of a round.
    """

    name, host = "built-in", ""

    def __init__(self, resolver: Resolver, plan: str = PLAN, width: int = WIDTH) -> None:
        self._resolver, self._plan, self._width = resolver, plan, width
        self._population = Population(self._fits)
        self._edits: deque[Edit] = deque(maxlen=MOST_EDITS)
        self._failures: deque[Edit] = deque(maxlen=MOST_EDITS)
        self._at = 0

    def answer(self, question: PromptRequest) -> Response:
        """The proposals of a round, or the verdict on a candidate."""
        evidence = question.evidence
        answer = Reply(proposals=tuple(self.propose(question.facts))) if evidence is None else judge(evidence)
        return Response(text=msgspec.json.encode(answer).decode())

    def propose(self, facts: TaskFacts) -> Sequence[Proposal]:
        """The proposals of a round; the first round begins with the cost model's first choice."""
        if facts.round == 0:
            self._population.add([*strategies_nearby(facts), *self._first_strategies(facts)])
        self._population.hear(facts.results)
        for verdict in facts.verdicts:
            if verdict.edit is not None:
                (self._failures if isinstance(verdict, Failure) else self._edits).append(verdict.edit)
        best = best_of(facts.results)
        number = self._width - (facts.round == 0)
        letters = "".join(self._plan[(self._at + n) % len(self._plan)] for n in range(number))
        self._at += number
        others = [self._by_letter(letter, facts, best) for letter in letters]
        proposals = [proposal for proposal in others if proposal is not None]
        return [*self._plain(letters, self._width - len(proposals), facts), *proposals]

    def _first_strategies(self, facts: TaskFacts) -> Iterator[StrategyProposal]:
        """Strategies against the bottleneck of each kernel's first choice, in the order of the ranking."""
        first = {choice.kernel: choice for choice in reversed(facts.ranking)}
        for kernel in dict.fromkeys(choice.kernel for choice in facts.ranking):
            yield from strategies_against(first[kernel], self._resolver.kernel(kernel))

    def _by_letter(self, letter: str, facts: TaskFacts, best: GateResult | None) -> Proposal | None:
        """The proposal of a letter; None for single configurations, and where the source has none now."""
        if letter == "s":
            return self._population.next(facts.zone or "latency") or self._population.cross()
        if best is None or not best.config:
            return None
        if letter == "a":
            return near(best.kernel, best.config, 1)
        return self._refined(best) if letter == "v" else None

    def _plain(self, letters: str, number: int, facts: TaskFacts) -> list[SpaceProposal]:
        """`number` single configurations: by the cost model alone, by its correction, then the most promising."""
        chosen: dict[Key, SpaceProposal] = {}

        def add(choices: Iterable[PredictedConfig], most: int, because: str) -> None:
            for choice in choices:
                if len(chosen) < min(most, number):
                    chosen.setdefault(key_of(choice.kernel, choice.config), one(choice.kernel, choice.config, because))

        tried = {key_of(result.kernel, result.config) for result in facts.results}
        most = letters.count("o") + (facts.round == 0)
        add(self._resolver.modelled(most, tried), most, "the cost model alone puts it first")
        most += letters.count("m")
        add(self._resolver.expected(most), most, "the cost model, corrected by what was measured, puts it first")
        add(self._resolver.promising(number), number, "by what was measured, most can be gained here")
        return list(chosen.values())

    def _refined(self, best: GateResult) -> SpaceProposal:
        """The neighbourhood of the best configuration, with the newest edit of a verdict that it does not satisfy yet.

        Edits of failures become preferences, so that configurations like failed ones come last.
        """
        failed = [rule for edit in self._failures if edit.kernel == best.kernel for rule in edit.add]
        wishes = [Preference(rule=rule.rule, because=rule.because) for rule in failed[-MAX_ITEMS:]]
        around = edited(near(best.kernel, best.config, NEAR), Edit(kernel=best.kernel, prefer=tuple(wishes)))
        for edit in reversed(self._edits):
            if edit.kernel == best.kernel and not holds_rules(edit.add, best.config):
                space = edited(around, edit)
                if self._fits(space):
                    return space
        return around

    def _fits(self, space: SpaceProposal) -> bool:
        return not isinstance(self._resolver.intersect(space), ProposalRefusal)


def best_of(results: Sequence[GateResult]) -> GateResult | None:
    """The fastest result so far; None where nothing was timed."""
    timed = [result for result in results if result.gate == "fast" and result.passed and result.seconds]
    return min(timed, key=lambda result: result.seconds or 0.0, default=None)


def one(kernel: str, config: Config, because: str) -> SpaceProposal:
    """A space of a single configuration."""
    values = tuple(Values(parameter=name, values=(value,)) for name, value in config.items())
    return SpaceProposal(kernel=kernel, values=values, because=because)


def near(kernel: str, config: Config, most: int) -> SpaceProposal:
    """The space of configurations that differ from `config` in at most `most` parameters."""
    because = f"at most {most} macro actions from the best so far"
    rule = Restriction(rule=near_rule(config, most), because=because)
    return SpaceProposal(kernel=kernel, rules=(rule,), because=because)


def edited(space: SpaceProposal, edit: Edit) -> SpaceProposal:
    """A space with a judge's edit applied."""
    replaced = {part.parameter for part in edit.values}
    return msgspec.structs.replace(
        space,
        values=(*(part for part in space.values if part.parameter not in replaced), *edit.values),
        rules=(*(rule for rule in space.rules if rule.rule not in edit.drop), *edit.add),
        preferences=(*space.preferences, *edit.prefer),
    )
