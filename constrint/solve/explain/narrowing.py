"""Narrowing that records which rule removed which values, so that a contradiction names its rules.

`Differences` covers bounds of the form x - y <= c, which contradict each other exactly on a negative cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from constrint.errors import LimitReachedError
from constrint.model import AllOf, Calculation, Comparison, Const, Constraint, Domain, Expr, Var
from constrint.model.columns import ExactColumn, test
from constrint.solve.intervals import Contradiction, Domains
from constrint.solve.propagation import normal, revise
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
        domains: The narrowed domains.
        core: The contradiction; None where narrowing finds none.
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
        """The narrowed domains."""
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
            fits = np.broadcast_to(np.asarray(test(rule, {name: ExactColumn(axis.values, axis.bounds)})), (len(axis),))
        except LimitReachedError:
            return  # A number too long to compute: the rule narrows nothing.
        if not fits.all():
            state.choose(name, axis.values[fits].tolist())

    def _traced(self, place: int) -> Core:
        """All rules and domains behind the narrowings that led to a contradiction."""
        rules, variables = {place}, set()
        visited: set[int] = set()
        stack = [(n, self._latest.get(n, -1)) for n in self._rules[place].variables]
        while stack:
            name, number = stack.pop()
            if number < 0:
                variables.add(name)
            elif number not in visited:
                visited.add(number)
                event = self._events[number]
                rules.add(event.rule)
                stack.extend(event.before.items())
        return Core(frozenset(rules), frozenset(variables))


#: A variable by its name, another term by its structure, or 0, so that a bound on one term is a difference too.
_Node = object
_ZERO = ""
_Terms = dict[_Node, tuple[int, Expr]]


@dataclass(frozen=True, slots=True)
class _Edge:
    """`above - below <= length`: because a rule says so, or the domains of some variables."""

    below: _Node
    above: _Node
    length: int
    rule: int = -1
    variables: frozenset[str] = frozenset()


class Differences:
    """Contradictions among bounds on differences.

    Attributes:
        core: The contradiction, one without domains if there is one; None where the differences agree.
        values: Without a contradiction, values that satisfy the differences.
    """

    def __init__(
        self, domains: Mapping[str, Domain], rules: Sequence[Constraint], check: Callable[[], None] = lambda: None
    ) -> None:
        self._check = check
        self._terms: dict[_Node, list[tuple[int, Expr]]] = {}
        self.values: dict[str, int] = {}
        edges = [edge for place, rule in enumerate(rules) for edge in self._edges(rule, place)]
        cycle = self._negative_cycle([e for e in edges if _ZERO not in (e.above, e.below) or e.above == e.below])
        cycle = cycle or self._negative_cycle(edges)
        cycle = cycle or self._negative_cycle([*edges, *self._bounds(domains)])
        self.core: Core | None = None
        if cycle:
            variables = frozenset[str]().union(*(e.variables for e in cycle))
            self.core = Core(frozenset(e.rule for e in cycle if e.rule >= 0), variables)

    def _edges(self, rule: Constraint, place: int) -> Iterator[_Edge]:
        if isinstance(rule, AllOf):
            for part in rule.parts:
                yield from self._edges(part, place)
        if not isinstance(rule, Comparison) or rule.op == "!=":
            return
        for sign in {"<=": (1,), "<": (1,), ">=": (-1,), ">": (-1,), "==": (1, -1)}[rule.op]:
            terms: _Terms = {}
            number = _collect(rule.left, sign, terms) + _collect(rule.right, -sign, terms)
            below, above, factor = self._ends({n: t for n, t in terms.items() if t[0]})
            yield _Edge(below, above, (-number - (rule.op in ("<", ">"))) // factor, place)

    def _ends(self, terms: _Terms) -> tuple[_Node, _Node, int]:
        """Writes a sum of terms as factor * (above - below)."""
        if not terms:
            return _ZERO, _ZERO, 1
        factor = math.gcd(*(c for c, _ in terms.values()))
        if len(terms) <= 2 and sum(c for c, _ in terms.values()) in ((0,) if len(terms) == 2 else (factor, -factor)):
            ends: dict[bool, _Node] = {c > 0: node for node, (c, _) in terms.items()}
            self._terms.update({node: [(1, expr)] for node, (_, expr) in terms.items()})
            return ends.get(False, _ZERO), ends.get(True, _ZERO), factor
        # The same sum, whatever its order and sign, is the same term.
        ordered = sorted(terms.items(), key=lambda item: repr(item[0]))
        sign = 1 if ordered[0][1][0] > 0 else -1
        node = tuple((sign * c // factor, key) for key, (c, _) in ordered)
        self._terms[node] = [(sign * c // factor, expr) for _, (c, expr) in ordered]
        return (_ZERO, node, factor) if sign > 0 else (node, _ZERO, factor)

    def _bounds(self, domains: Mapping[str, Domain]) -> Iterator[_Edge]:
        """Add the bounds that the domains imply for every term."""
        state = Domains(dict(domains))
        for node, parts in self._terms.items():
            known = [(c, state.bounds(expr)) for c, expr in parts]
            variables = frozenset[str]().union(*(expr.variables for _, expr in parts))
            upper = [c * bounds[c > 0] for c, bounds in known if bounds is not None]
            lower = [c * bounds[c < 0] for c, bounds in known if bounds is not None]
            if len(upper) == len(parts):
                yield _Edge(_ZERO, node, sum(upper), variables=variables)
                yield _Edge(node, _ZERO, -sum(lower), variables=variables)

    def _negative_cycle(self, edges: Sequence[_Edge]) -> list[_Edge]:
        """Bellman and Ford: the edges of a cycle of negative length; sets `values` where there is none."""
        length: dict[_Node, int] = {n: 0 for e in edges for n in (e.above, e.below)}
        into: dict[_Node, _Edge] = {}
        outgoing: dict[_Node, list[_Edge]] = {n: [] for n in length}
        for edge in edges:
            outgoing[edge.below].append(edge)
        active = dict.fromkeys(length)
        for _ in range(len(length) + 1):
            if not active:
                break
            self._check()
            now, active = active, {}
            for node in now:
                base = length[node]
                for edge in outgoing[node]:
                    if base + edge.length < length[edge.above]:
                        length[edge.above] = base + edge.length
                        into[edge.above] = edge
                        active[edge.above] = None
            cycle = _cycle(into)
            if cycle:
                return cycle
        zero = length.get(_ZERO, 0)
        self.values = {n: at - zero for n, at in length.items() if isinstance(n, str) and n != _ZERO}
        return []


def _collect(expr: Expr, factor: int, terms: _Terms) -> int:
    """Adds `factor` times an expression to the coefficients of terms; returns what is left as a number."""
    if isinstance(expr, Const):
        return factor * expr.number
    if isinstance(expr, Calculation) and expr.op in ("add", "neg"):
        sign = -factor if expr.op == "neg" else factor
        return sum(_collect(arg, sign, terms) for arg in expr.args)
    if isinstance(expr, Calculation) and expr.op == "mul":
        numbers = [a.number for a in expr.args if isinstance(a, Const)]
        others = [a for a in expr.args if not isinstance(a, Const)]
        if len(others) == 1:
            return _collect(others[0], factor * math.prod(numbers), terms)
    node = expr.name if isinstance(expr, Var) else expr.key()
    terms[node] = (terms[node][0] + factor if node in terms else factor, expr)
    return 0


def _cycle(into: Mapping[_Node, _Edge]) -> list[_Edge]:
    """A cycle among the edges by which nodes were reached last, which then has negative length."""
    done: set[_Node] = set()
    for start in into:
        path: dict[_Node, None] = {}
        node = start
        while node in into and node not in done and node not in path:
            path[node] = None
            node = into[node].below
        if node in path:
            edges = [into[node]]
            while edges[-1].below != node:
                edges.append(into[edges[-1].below])
            return edges
        done.update(path)
    return []
