"""Domains of variables: finite sets of integers, and the codes that stand for other values.

The solver sees integers alone. A variable with floats, bools or text as values is `Coded`: its domain holds indices
into the list of its values.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from constrint.errors import UsageError
from constrint.model import operations
from constrint.model.expr import Var, check_name
from constrint.model.operations import MAX_WRITTEN_BITS, as_int

POSITIVE_UPPER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Domain:
    """A finite set of integers, which may be codes of other values.

    It is either `lower..upper step step`, or `listed` values in the order given.

    Attributes:
        lower: Smallest member.
        upper: Largest member.
        step: Distance between members of a range; 1 for listed values.
        listed: The values in the order in which they were given, or None for a range.
        because: The reason for these values; "" where none is stated.
        declared: False for a name that was used without a declaration (a positive integer).
        labels: The values that the integers in `listed` stand for, in the same order; None where they stand for
            themselves.
        scale: An integer is its value times this; 0 where integers only number the values.

    Raises:
        UsageError: Where the arguments are inconsistent; `from_range` and `from_values` normalise any bounds and lists.
    """

    lower: int
    upper: int
    step: int = 1
    listed: tuple[int, ...] | None = None
    because: str = ""
    declared: bool = True
    labels: tuple[Any, ...] | None = None
    scale: int = 1

    @staticmethod
    def of(values: Iterable[object], because: str = "", what: str = "a value") -> Domain:
        """Build a domain of any hashable values; their order is kept, equal ones count once."""
        if isinstance(values, range):
            return Domain.from_values(values, because, what)
        labels = distinct(values, what)
        if all(type(label) is int for label in labels):
            return Domain.from_values(labels, because, what)
        codes, scale = coded(labels)
        if max(map(int.bit_length, codes)) > MAX_WRITTEN_BITS:
            raise UsageError(f"{what} takes numbers of {MAX_WRITTEN_BITS} bits at most over a common denominator.")
        return Domain(min(codes), max(codes), 1, codes, because, labels=labels, scale=scale)

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "step"):
            object.__setattr__(self, name, as_int(getattr(self, name), f"{name} of a domain"))
        shown = f"Domain({self.lower}, {self.upper}, {self.step})"
        if self.step < 1:
            raise UsageError(f"{shown}: the step must be at least 1, got {self.step}.")
        if self.upper < self.lower:
            raise UsageError(f"{shown} is empty; the lower bound must not exceed the upper one.")
        if self.listed is not None:
            listed = tuple(as_int(value, "a value of a domain") for value in self.listed)
            object.__setattr__(self, "listed", listed)
            bounds = (min(listed), max(listed)) if listed else None
            if bounds != (self.lower, self.upper) or self.step != 1 or len(set(listed)) != len(listed):
                raise UsageError(
                    f"{shown}: listed values must be distinct, with the smallest as lower bound, the largest as upper "
                    "bound and step 1; Domain.from_values(...) makes such a domain."
                )
        if self.labels is not None and (self.listed is None or len(self.labels) != len(self.listed)):
            raise UsageError(f"{shown}: labels need as many listed integers; Domain.of(...) makes such a domain.")
        if self.listed is None and (self.upper - self.lower) % self.step:
            raise UsageError(
                f"{shown}: the upper bound must be a member, {self.upper - (self.upper - self.lower) % self.step} for "
                "example; Domain.from_range(...) takes any bound."
            )

    @staticmethod
    def _checked(
        lower: int, upper: int, step: int, listed: tuple[int, ...] | None, because: str = "", declared: bool = True
    ) -> Domain:
        """Build a domain from consistent arguments without validation, which would cost a pass over the values."""
        domain = object.__new__(Domain)
        content = (lower, upper, step, listed, because, declared, None, 1)
        for name, value in zip(Domain.__slots__, content, strict=True):
            object.__setattr__(domain, name, value)
        return domain

    @staticmethod
    def from_members(values: tuple[int, ...]) -> Domain:
        """Build the domain of distinct members of another one, in this order, without validation."""
        return Domain._checked(min(values), max(values), 1, values)

    @staticmethod
    def from_values(values: Iterable[object], because: str = "", what: str = "a value") -> Domain:
        """Builds a domain from listed values; their order is kept, repeated ones count once."""
        if isinstance(values, range) and values.step > 0 and values:
            return Domain.from_range(values[0], values[-1], values.step, because)
        if isinstance(values, (str, bytes)):
            raise UsageError(f"{what} must come from a list of integers, got the text {values!r}.")
        first = itertools.islice(values, MAX_LISTED + 1)
        listed = tuple(dict.fromkeys(as_int(value, what) for value in first))
        if len(listed) > MAX_LISTED:
            raise UsageError(f"more than {MAX_LISTED} values are listed for {what}; state a range instead.")
        if not listed:
            raise UsageError(f"the list of values for {what} is empty; give at least one integer.")
        return Domain._checked(min(listed), max(listed), 1, listed, because)

    @staticmethod
    def from_range(lower: object, upper: object, step: object = 1, because: str = "", what: str = "a range") -> Domain:
        """Builds the domain lower, lower + step, ... up to at most `upper`."""
        low = as_int(lower, f"the lower bound of {what}")
        high = as_int(upper, f"the upper bound of {what}")
        by = as_int(step, f"the step of {what}")
        if by < 1:
            raise UsageError(f"the step of {what} must be at least 1, got {by}.")
        if high < low:
            raise UsageError(f"{what} {low}..{high} is empty; the lower bound must not exceed the upper one.")
        return Domain._checked(low, low + (high - low) // by * by, by, None, because)

    @staticmethod
    def positive() -> Domain:
        """Returns the domain of an undeclared name: 1 .. 2^63 - 1."""
        return Domain(1, POSITIVE_UPPER, declared=False)

    @property
    def size(self) -> int:
        """Number of members, exact even beyond 64 bits."""
        if self.listed is not None:
            return len(self.listed)
        return (self.upper - self.lower) // self.step + 1

    def at(self, place: int) -> int:
        """The member at a place in the order of preference."""
        return self.lower + place * self.step if self.listed is None else self.listed[place]

    def value_of(self, code: int) -> Any:
        """The value that an integer stands for; the integer itself where the domain does not list it."""
        if self.labels is None or self.listed is None or code not in self.listed:
            return code
        return self.labels[self.listed.index(code)]

    def code_of(self, value: object) -> int | None:
        """The integer that stands for a value; None for no value of the domain.

        Raises:
            UsageError: For a value that no variable can have: not-a-number, or an unhashable object.
        """
        if self.labels is None or self.listed is None:
            number = as_int(value, "a value of the variable")
            return number if number in self else None
        wanted = plain(value, "a value of the variable")
        for code, label in zip(self.listed, self.labels, strict=True):
            if label == wanted:
                return code
        return None

    @property
    def is_condition(self) -> bool:
        """Says whether the values are True and False."""
        return self.labels is not None and all(isinstance(label, bool) for label in self.labels)

    def __len__(self) -> int:
        if self.size > sys.maxsize:
            raise OverflowError(f"the domain has {self.size} members, too many for len(); use domain.size")
        return self.size

    def __bool__(self) -> bool:
        return True

    def __contains__(self, value: object) -> bool:
        number = as_int(value, "a member of a domain")
        if self.listed is not None:
            return number in self.listed
        return self.lower <= number <= self.upper and (number - self.lower) % self.step == 0

    def __iter__(self) -> Iterator[int]:
        return iter(self.listed if self.listed is not None else range(self.lower, self.upper + 1, self.step))

    @property
    def values(self) -> tuple[int, ...] | range:
        """The members in ascending order; a range stays a range."""
        if self.listed is not None:
            return tuple(sorted(self.listed))
        return range(self.lower, self.upper + 1, self.step)

    def __str__(self) -> str:
        if self.listed is not None:
            return "{" + ", ".join(map(literal, self.labels or self.listed)) + "}"
        return f"{self.lower}..{self.upper}" + (f" step {self.step}" if self.step != 1 else "")


#: Longer lists of values are refused: state a range instead.
MAX_LISTED: Final = 1 << 24


def plain(value: Any, what: str) -> Any:
    """Convert a numpy scalar to the Python bool, int, float or text that it holds; return other values unchanged.

    Raises:
        UsageError: For a value that cannot be hashed, and for not-a-number, which equals nothing.
    """
    if type(value) in (int, bool, float, str):
        result = value
    elif hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        result = value.item()
    else:
        result = value
    try:
        hash(result)
    except TypeError:
        raise UsageError(
            f"{what} must be a value that can be hashed, got {_shown(value)} ({type(value).__name__}). "
            "Write a tuple instead of a list or an array."
        ) from None
    if _is_nan(result):
        raise UsageError(f"{what} cannot be {value!r}: it equals no value, not even itself. Leave it out.")
    return result


def _is_nan(value: object) -> bool:
    """Whether a value is not-a-number: only such a value differs from itself."""
    return (isinstance(value, (float, complex)) or type(value).__name__ == "Decimal") and bool(value != value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def distinct(values: Iterable[object], what: str) -> tuple[Any, ...]:
    """Plain values in the order given, each once; equal ones such as 1, 1.0 and True count as the first of them."""
    if isinstance(values, (str, bytes)):
        raise UsageError(f"{what} must come from a list of values, got the text {values!r}.")
    if not isinstance(values, Iterable):
        raise UsageError(f"{what} must come from a list of values, got {_shown(values)} ({type(values).__name__}).")
    try:
        listed = list(itertools.islice(values, MAX_LISTED + 1))
    except TypeError:
        raise UsageError(f"{what} must come from a list of values, got {_shown(values)}.") from None
    if len(listed) > MAX_LISTED:
        raise UsageError(f"more than {MAX_LISTED} values are listed for {what}; state a range instead.")
    try:
        unique = tuple(dict.fromkeys(plain(value, what) for value in listed))
    except TypeError:
        raise UsageError(f"{what} takes values that Python can compare for equality, got {_shown(listed)}.") from None
    if not unique:
        raise UsageError(f"the list of values for {what} is empty; give at least one value.")
    return unique


def is_number(value: object) -> bool:
    """Whether a value can be used in arithmetic: an integer, a bool, a finite float or a fraction."""
    return isinstance(value, (int, Fraction)) or (isinstance(value, float) and math.isfinite(value))


def coded(values: tuple[Any, ...]) -> tuple[tuple[int, ...], int]:
    """The codes of distinct values, and the scale: code = value * scale, or 0 where codes only number the values."""
    if not all(map(is_number, values)):
        return tuple(range(len(values))), 0
    exact = [Fraction(value) for value in values]
    scale = math.lcm(*(number.denominator for number in exact))
    return tuple(int(number * scale) for number in exact), scale


def literal(value: object) -> str:
    """Write a value in the text language, or by `repr` where that language has no literal for it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    return quoted(value) if isinstance(value, str) else repr(value)


def is_literal(value: object) -> bool:
    """Says whether the text language can write a value."""
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def quoted(text: str, quote: str = '"') -> str:
    """Writes text between quotes; control characters and the quote itself are escaped."""
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    if quote != '"':
        body = body.replace(quote, f"\\u{ord(quote):04x}")
    return quote + "".join(ch if ch.isprintable() else json.dumps(ch)[1:-1] for ch in body) + quote


class Coded(Var):
    """A variable whose values are not all plain integers; as an expression it is the code of the value.

    Attributes:
        name: The variable's name.
        scale: The code is the value times this; 0 where codes only number the values.
        labels: The values in the order of their codes, where these number them.
        is_condition: Whether the values are True and False.
    """

    __slots__ = ("is_condition", "labels", "scale")
    scale: int
    labels: tuple[Any, ...]

    def __new__(cls, name: str, scale: int = 1, is_condition: bool = False, labels: tuple[Any, ...] = ()) -> Coded:
        """Returns a variable for the codes of a domain."""
        check_name(name, "a variable's name")
        self = object.__new__(cls)
        self.name, self.depth, self.size, self.named, self._variables = name, 1, 1, False, frozenset((name,))
        self.scale, self.is_condition, self.labels = scale, is_condition, labels
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Coded, (self.name, self.scale, self.is_condition, self.labels)

    def value(self, assignment: Mapping[str, int]) -> int:
        """Looks the code up.

        Raises:
            UsageError: For a value instead of its code.
        """
        code = assignment.get(self.name, 0)
        if isinstance(code, bool) and self.is_condition:
            return int(code)
        if self.scale != 1 and not hasattr(code, "__index__"):
            raise UsageError(
                f"expressions are evaluated for the integers that code values, got {code!r} for {self.name!r}; "
                "why_not(problem, config) and space.contains(config) take values."
            )
        return super().value(assignment)

    def code_of(self, value: object) -> int:
        """The integer that stands for True, False or a number in a table."""
        if isinstance(value, bool) and self.is_condition:
            return int(value)
        return operations.as_int(value, f"a value of {self.name!r}")

    def key(self) -> tuple[Any, ...]:
        """Returns ("var", name), and the scale unless it is 1."""
        return ("var", self.name) if self.scale == 1 else ("var", self.name, self.scale)

    __hash__ = Var.__hash__
