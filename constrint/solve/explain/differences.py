"""Bounds on differences, x - y <= c: contradictory exactly where some of them form a cycle of negative length.

Narrowing walks round such a cycle once per step of the bounds, which on wide domains takes forever. What is not linear,
and every longer sum, counts as a variable of its own, so that `x * y <= 4` and `x * y >= 5` are a cycle too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from constrint.model import AllOf, Comparison, Const, Constraint, Domain, Expr, Operation, Var
from constrint.solve.explain.narrowing import Core
from constrint.solve.propagation.domains import Domains

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
    """What bounds on differences say about rules.

    Attributes:
        core: A contradiction; without domains, if there is one without. None where there is none to be seen.
        values: Where there is none, values of variables with which the differences hold.
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
        """What the domains say about every term."""
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
            found = _cycle(into)
            if found:
                return found
        zero = length.get(_ZERO, 0)
        self.values = {n: at - zero for n, at in length.items() if isinstance(n, str) and n != _ZERO}
        return []


def _collect(expr: Expr, factor: int, terms: _Terms) -> int:
    """Adds `factor` times an expression to the coefficients of terms; returns what is left as a number."""
    if isinstance(expr, Const):
        return factor * expr.number
    if isinstance(expr, Operation) and expr.op in ("add", "neg"):
        sign = -factor if expr.op == "neg" else factor
        return sum(_collect(arg, sign, terms) for arg in expr.args)
    if isinstance(expr, Operation) and expr.op == "mul":
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
