"""Named constraints over lists: cardinalities, order, inverse, circuit, schedules, automata.

Each is stored with its arguments, so that it is written as it was stated and back-ends may use a form of their own. It
is decided by its definition (`holds`), and stated in simpler constraints without further variables (`parts`) for every
engine that knows no better. All of them are false where an argument has no value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from constrint.errors import LimitReachedError, UndefinedValueError, UsageError
from constrint.model.constraint import (
    OPERATORS,
    AllOf,
    AnyOf,
    Comparison,
    Constraint,
    IsIn,
    all_of,
    any_of,
    as_condition,
)
from constrint.model.domain import Domain
from constrint.model.expr import Const, Expr, Node, Truth, add, as_expr, check_shape, is_total, mul
from constrint.model.intmath import as_int
from constrint.model.logic import Element, count, listed_items
from constrint.model.table import table_of

#: Constraints into which one word may be taken apart.
MAX_PARTS: Final = 200_000
# Accepted sequences up to which an automaton is stated as a table, and the values in it.
_FEW_ROWS: Final = 2_000
_FEW_VALUES: Final = 20_000
_SHOWN: Final = 80

#: An expression, a condition, a number of an automaton, or a tuple of these.
Argument = Any


def mapped(argument: Argument, change: Callable[[Any], Any]) -> Argument:
    """An argument with all its expressions and conditions changed."""
    if isinstance(argument, tuple):
        return tuple(mapped(one, change) for one in argument)
    return change(argument) if isinstance(argument, Node) else argument


def _nodes(argument: Argument) -> Iterable[Any]:
    if isinstance(argument, tuple):
        for one in argument:
            yield from _nodes(one)
    elif isinstance(argument, Node):
        yield argument


class Word(AllOf):
    """A constraint with a name of its own, over its arguments.

    Attributes:
        arguments: Its arguments in order, lists as tuples.
    """

    __slots__ = ("_made", "_terms", "arguments")
    #: Its name in the text language.
    word: ClassVar[str]

    def __init__(self, *arguments: Argument) -> None:
        self.arguments = arguments
        self._made: tuple[Constraint, ...] | None = None
        self._terms = tuple(_nodes(arguments))
        self.because, self.name, self.kind, self._key = "", "", "", None
        self.measure(self._terms)
        self._operands = self._terms

    @property
    def parts(self) -> tuple[Constraint, ...]:  # type: ignore[override]
        """Constraints on the same variables which hold together exactly where this one does.

        Raises:
            LimitReachedError: Where these would be too many, or too deep.
        """
        if self._made is None:
            try:
                made = tuple(itertools.islice(itertools.chain(self._have_values(), self.apart()), MAX_PARTS + 1))
            except UsageError:
                made = ()
                too_large = True
            else:
                too_large = len(made) > MAX_PARTS
            if too_large:
                raise LimitReachedError(
                    f"this `{self.word}` over {len(self._terms):,} items is too large to be taken apart into simpler "
                    "rules; CP-SAT decides it as it stands (pip install 'constrint[solvers]', backend cpsat)."
                )
            self._made = made
        return self._made

    def _have_values(self) -> Iterable[Constraint]:
        return (Comparison(e, "==", e) for e in self._terms if isinstance(e, Expr) and not is_total(e))

    def apart(self) -> Iterable[Constraint]:
        """The constraints of `parts`, where all arguments have values."""
        raise NotImplementedError

    def decide(self, *values: Any) -> bool:
        """Decide by definition, from the arguments' values."""
        raise NotImplementedError

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """Evaluates the arguments, and decides by definition."""
        try:
            return self.decide(*self.valued(assignment))
        except UndefinedValueError:
            return False

    def valued(self, assignment: Mapping[str, int]) -> tuple[Any, ...]:
        """The arguments' values: numbers, and truth values for conditions."""
        values: tuple[Any, ...] = mapped(
            self.arguments, lambda n: n.value(assignment) if isinstance(n, Expr) else n.holds(assignment)
        )
        return values

    def broken(self, assignment: Mapping[str, int]) -> str:
        """Says, with the numbers, that an assignment breaks it."""
        try:
            values = self.valued(assignment)
        except UndefinedValueError:
            return f"{self.word} has an argument without a value"
        text = ", ".join(str(list(v) if isinstance(v, tuple) else v) for v in values)
        return f"{self.word}({text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}) is false"

    @property
    def written(self) -> tuple[Argument, ...]:
        """The arguments as they are written: a last list of any length without brackets."""
        return self.arguments

    def changed(self, change: Callable[[Any], Any]) -> Word:
        """The same word over changed expressions and conditions."""
        return type(self)(*mapped(self.arguments, change))

    def labelled(self, because: str = "", name: str = "", kind: str = "") -> Any:
        """The same constraint with a reason, a name and a kind."""
        twin = type(self).__new__(type(self))
        for slot in ("_key", "_made", "_operands", "_terms", "_variables", "arguments", "depth", "size"):
            object.__setattr__(twin, slot, getattr(self, slot))
        twin.because, twin.name, twin.kind = because, name, kind
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.arguments, self.because, self.name, self.kind)

    def key(self) -> tuple[Any, ...]:
        """Structure: the word and its arguments."""
        if self._key is None:
            self._key = (self.word, mapped(self.arguments, lambda node: node.key()))
        return self._key


def _restored(kind: type[Word], arguments: tuple[Argument, ...], because: str, name: str, sort: str) -> Word:
    """A word that was pickled or copied."""
    word: Word = kind(*arguments).labelled(because, name, sort)
    return word


class AllDifferent(Word):
    """No two of the expressions have the same value, and each has one: `!=` between every two of them.

    It is true for fewer than two expressions.
    """

    __slots__ = ()
    word = "all_different"

    def __init__(self, exprs: tuple[Expr, ...]) -> None:
        check_shape(1, sum(e.size for e in exprs) * max(1, len(exprs) - 1) + len(exprs))
        super().__init__(exprs)

    @property
    def written(self) -> tuple[Argument, ...]:
        """The expressions, one by one."""
        return self.exprs

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions."""
        listed: tuple[Expr, ...] = self.arguments[0]
        return listed

    def _have_values(self) -> Iterable[Constraint]:
        return ()

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """No value occurs twice."""
        return len(self.exprs) < 2 or super().holds(assignment)

    def apart(self) -> Iterable[Constraint]:
        """`!=` between every two."""
        return (Comparison(a, "!=", b) for a, b in itertools.combinations(self.exprs, 2))

    def decide(self, *values: Any) -> bool:
        """No value occurs twice."""
        return len(set(values[0])) == len(values[0])

    def broken(self, assignment: Mapping[str, int]) -> str:
        """Names the equal values."""
        try:
            (values,) = self.valued(assignment)
        except UndefinedValueError:
            return super().broken(assignment)
        return "; ".join(f"{a} != {b} is false" for a, b in itertools.combinations(values, 2) if a == b)


class _Cardinality(Word):
    """A comparison of the number of conditions that hold with a number; arguments: the number, the conditions."""

    __slots__ = ()
    sign: ClassVar[str]

    @property
    def written(self) -> tuple[Argument, ...]:
        """The number, then the conditions one by one."""
        return (self.arguments[0], *self.arguments[1])

    def apart(self) -> Iterable[Constraint]:
        """The comparison."""
        number, conditions = self.arguments
        return (Comparison(count(*conditions), self.sign, number),)

    def decide(self, *values: Any) -> bool:
        """Counts."""
        return bool(OPERATORS[self.sign](sum(values[1]), values[0]))

    def broken(self, assignment: Mapping[str, int]) -> str:
        """Says how many hold."""
        try:
            number, held = self.valued(assignment)
        except UndefinedValueError:
            return super().broken(assignment)
        return f"{sum(held)} of {len(held)} conditions hold, not {self.word.replace('_', ' ')} {number}"


class Exactly(_Cardinality):
    """A number of conditions hold."""

    __slots__ = ()
    word, sign = "exactly", "=="


class AtLeast(_Cardinality):
    """At least a number of conditions hold."""

    __slots__ = ()
    word, sign = "at_least", ">="


class AtMost(_Cardinality):
    """At most a number of conditions hold."""

    __slots__ = ()
    word, sign = "at_most", "<="


class GlobalCardinality(Word):
    """Each value occurs a number of times among the expressions; arguments: expressions, values, numbers."""

    __slots__ = ()
    word = "global_cardinality"

    def apart(self) -> Iterable[Constraint]:
        """A count for every value, and that all counts together are at most the number of expressions."""
        exprs, values, numbers = self.arguments
        for value, number in zip(values, numbers, strict=True):
            yield Comparison(count(*(Comparison(e, "==", value) for e in exprs)), "==", number)
        if len(numbers) > 1 and any(not isinstance(number, Const) for number in numbers):
            yield Comparison(add(*numbers), "<=", Const(len(exprs)))

    def decide(self, *values: Any) -> bool:
        """Counts."""
        exprs, wanted, numbers = values
        return all(exprs.count(value) == number for value, number in zip(wanted, numbers, strict=True))


class _Lexicographic(Word):
    """The first place at which two lists differ has the smaller number in the first list."""

    __slots__ = ()

    def apart(self) -> Iterable[Constraint]:
        """Per place: the lists differ before, or the first has no larger number there."""
        first, second = self.arguments
        before: list[Constraint] = []
        for a, b in zip(first, second, strict=True):
            yield any_of(*before, Comparison(a, "<=", b))
            before.append(Comparison(a, "!=", b))
        if isinstance(self, LexLess):
            yield AnyOf(tuple(before))


class LexLess(_Lexicographic):
    """The first list comes before the second one in lexicographic order."""

    __slots__ = ()
    word = "lex_less"

    def decide(self, *values: Any) -> bool:
        """Compares the lists."""
        return bool(values[0] < values[1])


class LexLessEqual(_Lexicographic):
    """The first list comes before the second one in lexicographic order, or is equal to it."""

    __slots__ = ()
    word = "lex_less_equal"

    def decide(self, *values: Any) -> bool:
        """Compares the lists."""
        return bool(values[0] <= values[1])


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
    """Of any two tasks one ends before the other begins; arguments: starts, durations (none negative)."""

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


# Functions that build the words, with checked arguments


def items(value: object, word: str) -> tuple[Any, ...]:
    """The items of a list that a word takes."""
    if not isinstance(value, Iterable) or isinstance(value, (Node, str, bytes, Mapping)):
        raise UsageError(f"{word} takes a list here, got {value!r} ({type(value).__name__}).")
    return tuple(value)


def _exprs(value: object, word: str) -> tuple[Expr, ...]:
    return tuple(as_expr(one) for one in items(value, word))


def _same_length(word: str, *lists: Sequence[object]) -> None:
    if len({len(one) for one in lists}) > 1:
        raise UsageError(f"{word} takes lists of one length, got {', '.join(str(len(one)) for one in lists)} items.")


def _per_task(value: object, number: int, word: str) -> tuple[Expr, ...]:
    """A number per task; a single one counts for all of them."""
    if isinstance(value, Node) or not isinstance(value, Iterable):
        return (as_expr(value),) * number
    return _exprs(value, word)


def all_different(*exprs: object) -> Constraint:
    """Build the constraint that no two expressions are equal: `all_different(x, y, z)` or `all_different(row)`.

    It is true for fewer than two expressions, and false where some expression has no value.
    """
    return AllDifferent(tuple(as_expr(e) for e in listed_items(exprs)))


def _cardinality(kind: type[_Cardinality], number: object, conditions: tuple[object, ...]) -> Constraint:
    return kind(as_expr(number), tuple(as_condition(c, kind.word) for c in listed_items(conditions)))


def exactly(number: object, *conditions: object) -> Constraint:
    """Build the constraint that `number` of the conditions hold: `exactly(2, x > 1, y > 1, z > 1)`, or of one list."""
    return _cardinality(Exactly, number, conditions)


def at_least(number: object, *conditions: object) -> Constraint:
    """Build the constraint that at least `number` of the conditions hold."""
    return _cardinality(AtLeast, number, conditions)


def at_most(number: object, *conditions: object) -> Constraint:
    """Build the constraint that at most `number` of the conditions hold."""
    return _cardinality(AtMost, number, conditions)


def global_cardinality(exprs: Iterable[object], values: Iterable[object], numbers: object) -> Constraint:
    """Build the constraint that each value occurs a number of times among the expressions; others may occur.

    Args:
        exprs: The expressions.
        values: Integers.
        numbers: How often each of them occurs: numbers or expressions.
    """
    listed = tuple(Const(as_int(v, "a value of global_cardinality")) for v in items(values, "global_cardinality"))
    if len({v.number for v in listed}) < len(listed):
        raise UsageError("global_cardinality takes each value once.")
    wanted = _per_task(numbers, len(listed), "global_cardinality")
    _same_length("global_cardinality", listed, wanted)
    return GlobalCardinality(_exprs(exprs, "global_cardinality"), listed, wanted)


def lex_less(first: Iterable[object], second: Iterable[object]) -> Constraint:
    """Build the constraint that a list comes before another one of its length in lexicographic order."""
    return _in_order(LexLess, first, second)


def lex_less_equal(first: Iterable[object], second: Iterable[object]) -> Constraint:
    """Build the constraint that a list comes before another one in lexicographic order, or equals it."""
    return _in_order(LexLessEqual, first, second)


def _in_order(kind: type[_Lexicographic], first: object, second: object) -> Constraint:
    lists = _exprs(first, kind.word), _exprs(second, kind.word)
    _same_length(kind.word, *lists)
    return kind(*lists)


def inverse(first: Iterable[object], second: Iterable[object]) -> Constraint:
    """Build the constraint that two lists are inverse to each other, `second[first[i]] == i`, places from 0."""
    lists = _exprs(first, "inverse"), _exprs(second, "inverse")
    _same_length("inverse", *lists)
    return Inverse(*lists)


def circuit(successors: Iterable[object]) -> Constraint:
    """Build the constraint that the list gives every place (from 0) its successor on one circle through all places."""
    return Circuit(_exprs(successors, "circuit"))


def no_overlap(starts: Iterable[object], durations: object) -> Constraint:
    """Build the constraint that no two tasks run at the same time.

    Args:
        starts: When each task begins.
        durations: How long each takes, or one duration for all; false for a negative one.
    """
    begin = _exprs(starts, "no_overlap")
    last = _per_task(durations, len(begin), "no_overlap")
    _same_length("no_overlap", begin, last)
    return NoOverlap(begin, last)


def cumulative(starts: Iterable[object], durations: object, demands: object, capacity: object) -> Constraint:
    """Build the constraint that running tasks never take more than the capacity together.

    Args:
        starts: When each task begins.
        durations: How long each takes, or one duration for all.
        demands: What each takes while it runs, or one demand for all; like durations not negative.
        capacity: A number or an expression.
    """
    begin = _exprs(starts, "cumulative")
    last, take = (_per_task(value, len(begin), "cumulative") for value in (durations, demands))
    _same_length("cumulative", begin, last, take)
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
    return Regular(_exprs(exprs, "regular"), as_int(start, "the first state of regular"), ends, tuple(rows))
