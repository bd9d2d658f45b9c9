"""Named constraints over lists: the base of all of them, all different, cardinalities, lexicographic order.

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
    any_of,
    as_condition,
)
from constrint.model.expr import Const, Expr, Node, add, as_expr, check_shape, is_total
from constrint.model.logic import count, listed_items
from constrint.model.operations import as_int

#: Constraints into which one word may be taken apart.
MAX_PARTS: Final = 200_000
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
        equal = [f"{a} != {b} is false" for a, b in itertools.combinations(values, 2) if a == b]
        return "; ".join(dict.fromkeys(equal))


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


# Functions that build the words, with checked arguments


def items(value: object, word: str) -> tuple[Any, ...]:
    """The items of a list that a word takes."""
    if not isinstance(value, Iterable) or isinstance(value, (Node, str, bytes, Mapping)):
        raise UsageError(f"{word} takes a list here, got {value!r} ({type(value).__name__}).")
    return tuple(value)


def exprs_of(value: object, word: str) -> tuple[Expr, ...]:
    """The items of a list as expressions."""
    return tuple(as_expr(one) for one in items(value, word))


def check_lengths(word: str, *lists: Sequence[object]) -> None:
    """Refuses lists of different lengths."""
    if len({len(one) for one in lists}) > 1:
        raise UsageError(f"{word} takes lists of one length, got {', '.join(str(len(one)) for one in lists)} items.")


def per_item(value: object, number: int, word: str) -> tuple[Expr, ...]:
    """A number per item; a single one counts for all of them."""
    if isinstance(value, Node) or not isinstance(value, Iterable):
        return (as_expr(value),) * number
    return exprs_of(value, word)


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
    wanted = per_item(numbers, len(listed), "global_cardinality")
    check_lengths("global_cardinality", listed, wanted)
    return GlobalCardinality(exprs_of(exprs, "global_cardinality"), listed, wanted)


def lex_less(first: Iterable[object], second: Iterable[object]) -> Constraint:
    """Build the constraint that a list comes before another one of its length in lexicographic order."""
    return _in_order(LexLess, first, second)


def lex_less_equal(first: Iterable[object], second: Iterable[object]) -> Constraint:
    """Build the constraint that a list comes before another one in lexicographic order, or equals it."""
    return _in_order(LexLessEqual, first, second)


def _in_order(kind: type[_Lexicographic], first: object, second: object) -> Constraint:
    lists = exprs_of(first, kind.word), exprs_of(second, kind.word)
    check_lengths(kind.word, *lists)
    return kind(*lists)
