"""Narrowing that remembers which rule removed what, so that a contradiction names the rules behind it.

Sound, not complete: where it finds no contradiction there may still be no solution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from constrint.errors import LimitReachedError
from constrint.model import Constraint, Domain
from constrint.model.columns import Column, test
from constrint.solve.propagation.domains import Contradiction, Domains
from constrint.solve.propagation.propagate import normal, revise
from constrint.solve.space.axes import axis_from_domain

# Bounds of cyclic rules on huge ranges can creep one step at a time; narrowing less is still sound. In few rules that
# may go on for longer.
_MOST_SWEEPS: Final = 60
_MOST_REVISIONS: Final = 2000
# Rules over one variable are decided value by value on domains up to this size.
_LISTED: Final = 4096


@dataclass(frozen=True, slots=True)
class Core:
    """Rules, by their place, and variables whose domains together are contradictory."""

    rules: frozenset[int]
    variables: frozenset[str]


@dataclass(slots=True)
class _Event:
    """One narrowing: the rule, and per variable that it reads the narrowing before."""

    rule: int
    before: dict[str, int]


class Narrowing:
    """Narrows domains by rules until nothing changes.

    Attributes:
        domains: What is left of the domains.
        core: A contradiction that was found; None where there is none to be seen.
    """

    def __init__(
        self, domains: Mapping[str, Domain], rules: Sequence[Constraint], check: Callable[[], None] = lambda: None
    ) -> None:
        self._state = Domains(dict(domains))
        self._rules = [normal(rule) for rule in rules]
        self._events: list[_Event] = []
        # Per variable its latest narrowing; where there is none, its own domain stands.
        self._latest: dict[str, int] = {}
        self.core: Core | None = None
        self._run(check)

    @property
    def domains(self) -> dict[str, Domain]:
        """What is left of the domains."""
        return self._state.of

    def _run(self, check: Callable[[], None]) -> None:
        watching: dict[str, list[int]] = {}
        for place, rule in enumerate(self._rules):
            for name in rule.variables:
                watching.setdefault(name, []).append(place)
        waiting = set(range(len(self._rules)))
        # Sweeps go back and forth: bounds travel along a chain of rules in either direction.
        revisions = 0
        for sweep in range(_MOST_SWEEPS):
            if not waiting or (sweep > 10 and revisions > _MOST_REVISIONS):
                return
            revisions += len(waiting)
            now, waiting = sorted(waiting, reverse=sweep % 2 == 1), set()
            ahead = set(now)
            for done, place in enumerate(now):
                if done % 16 == 0:
                    check()
                ahead.discard(place)
                changed = self._revised(place)
                if self.core is not None:
                    return
                for name in changed:
                    waiting.update(other for other in watching[name] if other not in ahead)

    def _revised(self, place: int) -> frozenset[str]:
        """Narrows by one rule; the variables that it narrowed."""
        state, rule = self._state, self._rules[place]
        state.changed = set()
        try:
            revise(state, rule)
            self._decide(rule)
        except Contradiction:
            self.core = self._traced(place)
        changed = frozenset(state.changed)
        if changed:
            event = _Event(place, {n: self._latest.get(n, -1) for n in rule.variables})
            self._events.append(event)
            self._latest.update(dict.fromkeys(changed, len(self._events) - 1))
        return changed

    def _decide(self, rule: Constraint) -> None:
        """Decides a rule of at most one open variable on that variable's values."""
        state = self._state
        open_names = [n for n in rule.variables if state.of[n].size > 1]
        if len(open_names) > 1 or (open_names and len(rule.variables) > 1):
            return
        try:
            if not open_names:
                if not rule.holds({n: state.of[n].lower for n in rule.variables}):
                    raise Contradiction(str(rule))
                return
            (name,) = open_names
            if state.of[name].size > _LISTED:
                return
            axis = axis_from_domain(state.of[name])
            fits = np.broadcast_to(np.asarray(test(rule, {name: Column(axis.values, axis.bounds)})), (len(axis),))
        except LimitReachedError:
            return  # A number too long to compute: the rule narrows nothing.
        if not fits.all():
            state.choose(name, axis.values[fits].tolist())

    def _traced(self, place: int) -> Core:
        """Everything that the narrowings behind a contradiction rest on."""
        rules, variables = {place}, set()
        seen: set[int] = set()
        stack = [(n, self._latest.get(n, -1)) for n in self._rules[place].variables]
        while stack:
            name, number = stack.pop()
            if number < 0:
                variables.add(name)
            elif number not in seen:
                seen.add(number)
                event = self._events[number]
                rules.add(event.rule)
                stack.extend(event.before.items())
        return Core(frozenset(rules), frozenset(variables))
