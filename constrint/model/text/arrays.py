"""Arrays, lists and loops of the text language: `x[i, j]`, `[a, b]`, `[x[i] for i in 1..n]`, `(i in 1..n where ...)`.

A loop reads its body once for every value of its variables, which are numbers there; so everything is spelled out when
the text was read, and a problem stores plain variables and rules.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.logic import element
from constrint.model.text.lexer import Token
from constrint.model.text.members import Each, Listed, MemberReader, TextArray, Value, kind_of

#: Times that the bodies of all loops of a text may be read, and items of one array.
MAX_STEPS: Final = 200_000
MAX_ITEMS: Final = 100_000
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}


class ArrayReader(MemberReader):
    """Reads lists, indices and loops.

    Attributes:
        loops: The loops' variables and their present numbers.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.loops: dict[str, int] = {}
        self._steps = 0

    @abstractmethod
    def anything(self) -> Value:
        """Reads a number, a condition, a list or another value."""

    @abstractmethod
    def constraint(self) -> c.Constraint:
        """Reads a constraint."""

    def closing(self, at: int) -> int:
        """The place of the bracket that closes the one at a place; of the end of the text where none does."""
        depth = 0
        for place in range(at, len(self.tokens)):
            token = self.tokens[place]
            if token.kind == "sign" and token.value in _OPENING:
                depth += 1
            elif token.kind == "sign" and token.value in (")", "]", "}"):
                depth -= 1
                if not depth:
                    return place
        return len(self.tokens) - 1

    def begins_loop(self, over_lines: bool) -> bool:
        """Whether the bracket that comes next has a loop's variables: another one with the body follows it."""
        after = self.closing(self.at) + 1
        while over_lines and after < len(self.tokens) and self.tokens[after].kind == "newline":
            after += 1
        following = self.tokens[min(after, len(self.tokens) - 1)]
        return following.kind == "sign" and following.value == "("

    def looped(self, numbered: bool) -> list[tuple[Value, Token]]:
        """Reads `(i in 1..n, j in i..n where ...) (body)`: the body's values; `numbered`, after a number of its own."""
        opening = self.next()
        body = self.closing(self.at - 1) + 1
        self.brackets += 1
        before: list[tuple[Value, Token]] = []
        if numbered:
            before.append((self.expression(), opening))
            self.expect(",", "between the number and the loop's variables")
        start = self.at
        self.brackets -= 1
        while self.tokens[body].kind == "newline":
            body += 1
        self.brackets += 1
        values, labels = [], []
        for _ in self._rounds(start, ")"):
            here = ",".join(str(number) for number in self.loops.values())
            self.at = body + 1
            value = self.anything()
            self.expect(")", "after what the loop repeats")
            parts = zip(value.parts, value.labels, strict=True) if isinstance(value, Each) else [(value, here)]
            for part, label in parts:
                values.append(part)
                labels.append(label)
        self.at = self.closing(body) + 1
        self.brackets -= 1
        return [*before, (Each(tuple(values), tuple(labels)), opening)]

    def _rounds(self, at: int, end: str) -> Iterator[None]:
        """Sets the variables of a loop to one combination of their values after the other."""
        self.at = at
        names: list[str] = []
        while not names or self.accept(","):
            token = self.next()
            if token.kind not in ("word", "name") or (token.kind == "word" and token.value in e.RESERVED):
                raise self.error(f"expected a loop's variable, as in (i in 1..3), found {self.describe(token)}", token)
            names.append(token.value)
        self.expect("in", "after the variable of a loop: (i in 1..3)")
        members = self.members()
        place = self.token
        if not isinstance(members, Domain) and any(type(value) is not int for value in members):
            raise self.error("a loop runs over integers", place)
        sign = self.next()
        after = self.at
        if (sign.kind, sign.value) not in (("sign", ","), ("sign", end), ("word", "where"), ("word", "if")):
            raise self.error(f"expected `,`, `where` or `{end}` in a loop, found {self.describe(sign)}", sign)
        outer = {name: self.loops[name] for name in names if name in self.loops}
        for combination in itertools.product(members, repeat=len(names)):
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise self.error(f"the loops of this text have more than {MAX_STEPS:,} rounds", sign)
            self.loops.update(zip(names, combination, strict=True))
            if sign.value == ",":
                yield from self._rounds(after, end)
            elif sign.value == end or self._chosen(after, end):
                yield
        for name in names:
            self.loops.pop(name, None)
        self.loops.update(outer)

    def _chosen(self, at: int, end: str) -> bool:
        """Reads and decides what stands after `where`."""
        self.at = at
        token = self.token
        condition = self.constraint()
        self.expect(end, "after the condition of a loop")
        if condition.variables:
            raise self.error(
                f"the condition of a loop is about fixed numbers; {min(condition.variables)} is a variable", token
            )
        return condition.holds({})

    def listed(self) -> TextArray:
        """Reads `[a, b, c]`, `[[a, b], [c, d]]` or `[body for i in 1..n where ...]`; the opening bracket was read."""
        opening = self.at - 1
        end = self.closing(opening)
        depth, loop = 0, 0
        for place in range(opening, end):
            token = self.tokens[place]
            depth += token.kind == "sign" and token.value in _OPENING
            depth -= token.kind == "sign" and token.value in (")", "]", "}")
            if depth == 1 and token.kind == "word" and token.value == "for":
                loop = place
                break
        self.brackets += 1
        values: list[Value] = []
        if loop:
            for _ in self._rounds(loop + 1, "]"):
                self.at = opening + 1
                values.append(self.anything())
                self.expect("for", "after what is listed")
            self.at = end + 1
        else:
            while not self.accept("]"):
                if values:
                    self.expect(",", "or `]` between the items of a list")
                values.append(self.anything())
                self._limit(len(values), self.token)
        self.brackets -= 1
        return array_of(values)

    def _limit(self, number: int, token: Token) -> None:
        if number > MAX_ITEMS:
            raise self.error(f"an array has at most {MAX_ITEMS:,} items", token)

    def indexed(self, value: Any, start: Token) -> Any:
        """Reads the indices after an array, as far as there are any."""
        while isinstance(value, TextArray) and self.token.kind == "sign" and self.token.value == "[":
            self.next()
            self.brackets += 1
            indices: list[Any] = []
            while not indices or self.accept(","):
                indices.append(self._index())
            self.expect("]", "after the indices")
            self.brackets -= 1
            if len(indices) > len(value.sizes):
                raise self.error(f"this array has {len(value.sizes)} dimension(s), not {len(indices)}", start)
            value = self._chosen_items(value, indices, start)
        return value

    def _index(self) -> Any:
        """Reads an index: an expression; a range of places as a pair, with None for its ends."""
        if self.accept(".."):
            return None, None
        first = self.expression()
        if not self.accept(".."):
            return first
        last = self.expression()
        if first.variables or last.variables:
            raise self.error("the ends of a range of indices are fixed numbers", self.token)
        return first.value({}), last.value({})

    def _chosen_items(self, array: TextArray, indices: Sequence[Any], start: Token) -> Any:
        lower, size = array.lowers[0], array.sizes[0]
        index, *rest = indices
        step = math.prod(array.sizes[1:])
        rows = [array.items[at * step : (at + 1) * step] for at in range(size)]
        below = [
            self._chosen_items(TextArray(array.lowers[1:], array.sizes[1:], row), rest, start)
            if rest
            else TextArray(array.lowers[1:], array.sizes[1:], row)
            if len(array.sizes) > 1
            else row[0]
            for row in rows
        ]
        if isinstance(index, tuple):
            first, last = lower if index[0] is None else index[0], lower + size - 1 if index[1] is None else index[1]
            for end in (first, last) if first <= last else ():
                self._inside(end, lower, size, start)
            return array_of(below[first - lower : last + 1 - lower], first)
        if not index.variables:
            number = index.value({})
            self._inside(number, lower, size, start)
            return below[number - lower]
        if any(isinstance(one, TextArray) for one in below):
            return self._row(index, lower, below, start)
        numbers = [self.as_number(one, start) for one in below]
        if not all(isinstance(one, e.Expr) for one in numbers):
            raise self.error("an array that is indexed by a variable holds integers or conditions", start)
        chosen = element(index - lower if lower else index, numbers)
        are_conditions = all(isinstance(one, c.Constraint) or getattr(one, "is_condition", False) for one in below)
        return c.Comparison(chosen, "==", e.Const(1)) if are_conditions else chosen

    def _row(self, index: e.Expr, lower: int, rows: Sequence[Any], start: Token) -> TextArray:
        """The row at an index that is a variable: an element per column."""
        columns = zip(*(row.items for row in rows), strict=True)
        at = index - lower if lower else index
        items = []
        for column in columns:
            numbers = [self.as_number(one, start) for one in column]
            if not all(isinstance(one, e.Expr) for one in numbers):
                raise self.error("an array that is indexed by a variable holds integers or conditions", start)
            items.append(element(at, numbers))
        return TextArray(rows[0].lowers, rows[0].sizes, tuple(items))

    def _inside(self, number: int, lower: int, size: int, start: Token) -> None:
        if not lower <= number < lower + size:
            has = f"has the indices {lower}..{lower + size - 1}" if size else "is empty"
            raise self.error(f"there is no item {number}: the array {has}", start)

    def dimensions(self) -> tuple[list[int], list[int]]:
        """Reads the sizes of a new array, `[9, 1..3]`: the lower index and the size of each dimension."""
        opening = self.expect("[", "before the sizes")
        self.brackets += 1
        lowers: list[int] = []
        sizes: list[int] = []
        while not sizes or self.accept(","):
            first = self.number()
            last = self.number() if self.accept("..") else None
            lowers.append(0 if last is None else first)
            sizes.append(first if last is None else last - first + 1)
        self.expect("]", "after the sizes")
        self.brackets -= 1
        if min(sizes) < 0:
            raise self.error("an array has no negative size", opening)
        self._limit(math.prod(sizes), opening)
        return lowers, sizes

    def flat(self, values: Sequence[tuple[Value, Token]]) -> list[tuple[Any, Token]]:
        """Arguments with the items of arrays and loops in their places."""
        found: list[tuple[Any, Token]] = []
        for value, token in values:
            parts = (
                value.items if isinstance(value, TextArray) else value.parts if isinstance(value, Each) else (value,)
            )
            for part in parts:
                if isinstance(part, (TextArray, Each)):
                    found += self.flat([(part, token)])
                else:
                    found.append((part, token))
        return found

    def plain(self, value: Any, token: Token) -> Any:
        """A list or a number as an argument of a word: tuples of expressions, conditions and numbers."""
        if isinstance(value, (TextArray, Each)):
            parts = value.items if isinstance(value, TextArray) else value.parts
            return tuple(self.plain(part, token) for part in parts)
        if isinstance(value, Listed):
            return tuple(self.plain(part, token) for part in value.parts)
        number = self.as_number(value, token)
        if not isinstance(number, e.Expr):
            raise self.error(f"{kind_of(value)}, and integers are expected here", token)
        return number


def array_of(values: Sequence[Any], lower: int = 0) -> TextArray:
    """A list of values as an array; lists of one size become another dimension."""
    shapes = {(one.lowers, one.sizes) if isinstance(one, TextArray) else None for one in values}
    if len(shapes) == 1 and values and isinstance(values[0], TextArray):
        first = values[0]
        items = tuple(item for one in values for item in one.items)
        return TextArray((lower, *first.lowers), (len(values), *first.sizes), items)
    return TextArray((lower,), (len(values),), tuple(values))
