"""A domain: the finite set of integers a variable may take, as a range or as listed values.

A range is never expanded: its size, its members and its bounds are computed, so a 64-bit range costs nothing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from constrint.errors import UsageError
from constrint.model import values as v
from constrint.model.intmath import MAX_WRITTEN_BITS, as_int

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
        because: Why the variable is limited so; "" when nobody said.
        declared: False for a name that was used without a declaration (a positive integer).
        labels: The values that the integers in `listed` stand for, in the same order; None where they stand for
            themselves.
        scale: An integer is its value times this; 0 where integers only number the values.

    Raises:
        UsageError: Where these are no such set; `from_range` and `from_values` take any bounds and any list.
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
        """Builds a domain of any values that can be hashed; their order is kept, equal ones count once."""
        if isinstance(values, range):
            return Domain.from_values(values, because, what)
        labels = v.distinct(values, what)
        if all(type(label) is int for label in labels):
            return Domain.from_values(labels, because, what)
        codes, scale = v.coded(labels)
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
        """A domain of which all this is known already; looking at it again would cost a pass over its values."""
        made = object.__new__(Domain)
        content = (lower, upper, step, listed, because, declared, None, 1)
        for name, value in zip(Domain.__slots__, content, strict=True):
            object.__setattr__(made, name, value)
        return made

    @staticmethod
    def from_members(values: tuple[int, ...]) -> Domain:
        """The domain of some distinct members of another one, in this order; they are not looked at again."""
        return Domain._checked(min(values), max(values), 1, values)

    @staticmethod
    def from_values(values: Iterable[object], because: str = "", what: str = "a value") -> Domain:
        """Builds a domain from listed values; their order is kept, repeated ones count once."""
        if isinstance(values, range) and values.step > 0 and values:
            return Domain.from_range(values[0], values[-1], values.step, because)
        if isinstance(values, (str, bytes)):
            raise UsageError(f"{what} must come from a list of integers, got the text {values!r}.")
        first = itertools.islice(values, v.MAX_LISTED + 1)
        listed = tuple(dict.fromkeys(as_int(value, what) for value in first))
        if len(listed) > v.MAX_LISTED:
            raise UsageError(f"more than {v.MAX_LISTED} values are listed for {what}; state a range instead.")
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
        """Returns the domain of a name that nobody declared: 1 .. 2^63 - 1."""
        return Domain(1, POSITIVE_UPPER, declared=False)

    @property
    def size(self) -> int:
        """Number of members, exact even beyond 64 bits."""
        if self.listed is not None:
            return len(self.listed)
        return (self.upper - self.lower) // self.step + 1

    def value_of(self, code: int) -> Any:
        """The value that an integer stands for; the integer itself where the domain does not list it."""
        if self.labels is None or self.listed is None or code not in self.listed:
            return code
        return self.labels[self.listed.index(code)]

    def code_of(self, value: object) -> int | None:
        """The integer that stands for a value; None for no value of the domain.

        Raises:
            UsageError: For a value that is none of any variable: not-a-number, or what cannot be hashed.
        """
        if self.labels is None or self.listed is None:
            number = as_int(value, "a value of the variable")
            return number if number in self else None
        wanted = v.plain(value, "a value of the variable")
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
            return "{" + ", ".join(map(v.literal, self.labels or self.listed)) + "}"
        return f"{self.lower}..{self.upper}" + (f" step {self.step}" if self.step != 1 else "")
