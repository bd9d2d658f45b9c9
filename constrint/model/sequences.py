"""Named constraints over lists whose places count: inverse lists, circuits, tasks in time, automata."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from constrint.errors import UsageError
from constrint.model.constraint import AllOf, AnyOf, Comparison, Constraint, IsIn, all_of
from constrint.model.domain import Domain
from constrint.model.expr import Const, Expr, Truth, add, as_expr, mul
from constrint.model.logic import Element
from constrint.model.operations import as_int
from constrint.model.table import table_of
from constrint.model.words import Word, check_lengths, exprs_of, items, per_item

# Accepted sequences up to which an automaton is stated as a table, and the values in it.
_FEW_ROWS: Final = 2_000
_FEW_VALUES: Final = 20_000


def _places(exprs: Sequence[Expr]) -> Iterable[Constraint]:
    """Every expression is a place in the list, from 0."""
    return (IsIn(e, Domain.from_range(0, len(exprs) - 1)) for e in exprs)


class Inverse(Word):
    """Two lists, each with the places at which the other has a number: `g[f[i]] == i`, from 0."""

    __slots__ = ()
    word = "inverse"

    def apart(self) -> Iterable[Constraint]:
        """For every two places, one list has the number exactly if the other one has."""
        first, second = self.arguments
        for exprs in (first, second):
            yield from _places(exprs)
        for exprs in (first, second):
            yield from (Comparison(a, "!=", b) for a, b in itertools.combinations(exprs, 2))
        for (i, a), (j, b) in itertools.product(enumerate(first), enumerate(second)):
            there, back = Comparison(a, "==", Const(j)), Comparison(b, "==", Const(i))
            yield Comparison(Truth(there), "==", Truth(back))

    def decide(self, *values: Any) -> bool:
        """Looks every number up in the other list."""
        first, second = values
        return all(0 <= at < len(first) and second[at] == i for i, at in enumerate(first))


class Circuit(Word):
    """The numbers are the successors of the places 0, 1, 2, ... on one circle through all of them."""

    __slots__ = ()
    word = "circuit"

    def apart(self) -> Iterable[Constraint]:
        """A permutation in which the way from place 0 does not come back before it was everywhere."""
        (successors,) = self.arguments
        yield from _places(successors)
        yield from (Comparison(a, "!=", b) for a, b in itertools.combinations(successors, 2))
        if len(successors) > 1:
            yield from (Comparison(e, "!=", Const(i)) for i, e in enumerate(successors))
        at: Expr = successors[0] if successors else Const(0)
        for _ in range(len(successors) - 2):
            at = Element((at, *successors))
            yield Comparison(at, "!=", Const(0))

    def decide(self, *values: Any) -> bool:
        """Walks."""
        (successors,) = values
        at, seen = 0, set()
        while 0 <= at < len(successors) and at not in seen:
            seen.add(at)
            at = successors[at]
        return len(seen) == len(successors) and at == 0


def _not_negative(exprs: Iterable[Expr]) -> Iterable[Constraint]:
    return (Comparison(e, ">=", Const(0)) for e in exprs if not (isinstance(e, Const) and e.number >= 0))


class NoOverlap(Word):
    """Every two tasks are apart: one ends before the other begins; arguments: starts, durations (none negative)."""

    __slots__ = ()
    word = "no_overlap"

    def apart(self) -> Iterable[Constraint]:
        """An alternative for every two tasks."""
        starts, durations = self.arguments
        yield from _not_negative(durations)
        for (a, d), (b, e) in itertools.combinations(zip(starts, durations, strict=True), 2):
            yield AnyOf((Comparison(add(a, d), "<=", b), Comparison(add(b, e), "<=", a)))

    def decide(self, *values: Any) -> bool:
        """Compares every two tasks."""
        starts, durations = values
        tasks = list(zip(starts, durations, strict=True))
        return min(durations, default=0) >= 0 and all(
            a + d <= b or b + e <= a for (a, d), (b, e) in itertools.combinations(tasks, 2)
        )


class Cumulative(Word):
    """At no time the running tasks together take more than a capacity.

    Arguments: starts, durations, demands (neither negative), the capacity.
    """

    __slots__ = ()
    word = "cumulative"

    def apart(self) -> Iterable[Constraint]:
        """The load at the start of every task: the largest load occurs at one of these times."""
        starts, durations, demands, capacity = self.arguments
        yield from _not_negative((*durations, *demands))
        for here, now in enumerate(starts):
            load: list[Expr] = [Const(0)]
            for place, (start, duration, demand) in enumerate(zip(starts, durations, demands, strict=True)):
                if any(isinstance(e, Const) and e.number == 0 for e in (duration, demand)):
                    continue
                runs: Constraint
                if place == here:
                    runs = Comparison(duration, ">", Const(0))
                    is_sure = isinstance(duration, Const)
                else:
                    runs = all_of(Comparison(start, "<=", now), Comparison(now, "<", add(start, duration)))
                    is_sure = False
                load.append(demand if is_sure else mul(demand, Truth(runs)))
            yield Comparison(add(*load[len(load) > 1 :]), "<=", capacity)

    def decide(self, *values: Any) -> bool:
        """Adds up the load at the start of every task."""
        starts, durations, demands, capacity = values
        tasks = list(zip(starts, durations, demands, strict=True))
        return min((*durations, *demands), default=0) >= 0 and all(
            sum(r for s, d, r in tasks if s <= now < s + d) <= capacity for now in starts
        )


class Regular(Word):
    """An automaton accepts the list of values.

    Arguments: expressions, the first state, the accepting states, the transitions (state, value, next state).
    """

    __slots__ = ()
    word = "regular"

    def apart(self) -> Iterable[Constraint]:
        """A table of the accepted lists where these are few; else the state after each value, as one expression."""
        exprs, start, accepting, _ = self.arguments
        if not exprs:
            return (AllOf(()) if start in accepting else AnyOf(()),)
        layers = self._layers()
        if layers is None:
            return (AnyOf(()),)
        rows = self._rows(layers)
        if rows is not None:
            return (table_of(exprs, rows),)
        return self._chain(layers)

    def _layers(self) -> list[list[tuple[int, int, int]]] | None:
        """Per value the transitions that lie on an accepted list; None where there is none."""
        exprs, start, accepting, transitions = self.arguments
        before, layers = {start}, []
        for _ in exprs:
            layers.append([t for t in transitions if t[0] in before])
            before = {t[2] for t in layers[-1]}
        after = set(accepting)
        for place in reversed(range(len(layers))):
            layers[place] = [t for t in layers[place] if t[2] in after]
            after = {t[0] for t in layers[place]}
        return layers if after else None

    def _rows(self, layers: list[list[tuple[int, int, int]]]) -> list[tuple[int, ...]] | None:
        """The accepted lists; None where they are many."""
        start = self.arguments[1]
        counts = {start: 1}
        for layer in layers:
            following: dict[int, int] = {}
            for state, _, then in layer:
                following[then] = following.get(then, 0) + counts.get(state, 0)
            counts = following
        if sum(counts.values()) > min(_FEW_ROWS, _FEW_VALUES // len(layers)):
            return None
        rows: list[tuple[tuple[int, ...], int]] = [((), start)]
        for layer in layers:
            rows = [((*row, value), then) for row, at in rows for state, value, then in layer if state == at]
        return [row for row, _ in rows]

    def _chain(self, layers: list[list[tuple[int, int, int]]]) -> Iterable[Constraint]:
        """States are numbered per place, without a number of its own for what leads nowhere: that is the last one."""
        exprs, start, _, _ = self.arguments
        number = {start: 0}
        state: Expr = Const(0)
        for expr, layer in zip(exprs, layers, strict=True):
            values = sorted({value for _, value, _ in layer})
            yield IsIn(expr, Domain.from_values(values))
            following = {then: i for i, then in enumerate(sorted({then for _, _, then in layer}))}
            steps = {(number[at], value): following[then] for at, value, then in layer}
            place = _place_of(expr, values)
            rows = []
            for at in range(len(number) + 1):
                ends = [steps.get((at, value), len(following)) for value in values]
                rows.append(Const(ends[0]) if len(set(ends)) == 1 else Element((place, *map(Const, ends))))
            state = rows[0] if len(number) == 1 and isinstance(state, Const) else Element((state, *rows))
            number = following
        yield Comparison(state, "<", Const(len(number)))

    def decide(self, *values: Any) -> bool:
        """Runs the automaton."""
        symbols, state, accepting, transitions = values
        steps = {(at, value): then for at, value, then in transitions}
        for symbol in symbols:
            if (state, symbol) not in steps:
                return False
            state = steps[state, symbol]
        return state in accepting


def _place_of(expr: Expr, values: Sequence[int]) -> Expr:
    """The place of an expression's value among values, as an expression; any number for another value."""
    if values[-1] - values[0] == len(values) - 1:
        return expr if values[0] == 0 else add(expr, Const(-values[0]))
    return add(*(mul(Const(i), Truth(Comparison(expr, "==", Const(v)))) for i, v in enumerate(values) if i))


def inverse(first: Iterable[object], second: Iterable[object]) -> Constraint:
    """Build the constraint that two lists are inverse to each other, `second[first[i]] == i`, places from 0."""
    lists = exprs_of(first, "inverse"), exprs_of(second, "inverse")
    check_lengths("inverse", *lists)
    return Inverse(*lists)


def circuit(successors: Iterable[object]) -> Constraint:
    """Build the constraint that the list gives every place (from 0) its successor on one circle through all places."""
    return Circuit(exprs_of(successors, "circuit"))


def no_overlap(starts: Iterable[object], durations: object) -> Constraint:
    """Build the constraint that no two tasks run at the same time.

    Args:
        starts: When each task begins.
        durations: How long each takes, or one duration for all; false for a negative one.
    """
    begin = exprs_of(starts, "no_overlap")
    last = per_item(durations, len(begin), "no_overlap")
    check_lengths("no_overlap", begin, last)
    return NoOverlap(begin, last)


def cumulative(starts: Iterable[object], durations: object, demands: object, capacity: object) -> Constraint:
    """Build the constraint that running tasks never take more than the capacity together.

    Args:
        starts: When each task begins.
        durations: How long each takes, or one duration for all.
        demands: What each takes while it runs, or one demand for all; like durations not negative.
        capacity: A number or an expression.
    """
    begin = exprs_of(starts, "cumulative")
    last, take = (per_item(value, len(begin), "cumulative") for value in (durations, demands))
    check_lengths("cumulative", begin, last, take)
    return Cumulative(begin, last, take, as_expr(capacity))


def regular(
    exprs: Iterable[object], start: object, accepting: Iterable[object], transitions: Iterable[Iterable[object]]
) -> Constraint:
    """Build the constraint that an automaton, which reads the values one by one, ends in an accepting state.

    Args:
        exprs: The expressions that it reads.
        start: Its first state, an integer.
        accepting: The states in which it may end.
        transitions: Rows (state, value, next state), at most one for a state and a value. A value without a row
            ends it.
    """
    rows = [tuple(as_int(n, "a transition of regular") for n in items(t, "regular")) for t in transitions]
    if any(len(row) != 3 for row in rows):
        raise UsageError("a transition of regular is (state, value, next state).")
    rows = sorted(set(rows))
    if len({row[:2] for row in rows}) < len(rows):
        raise UsageError("regular takes at most one transition for a state and a value.")
    ends = tuple(sorted({as_int(one, "a state of regular") for one in items(accepting, "regular")}))
    return Regular(exprs_of(exprs, "regular"), as_int(start, "the first state of regular"), ends, tuple(rows))
