"""A domain: the finite set of integers a variable may take, as a range or as listed values.

A range is never expanded: its size, its members and its bounds are computed, so a 64-bit range costs nothing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from constrint.errors import UsageError
from constrint.model.intmath import as_int

POSITIVE_UPPER: Final = 2**63 - 1
#: Longer lists of values are refused: state a range instead.
MAX_LISTED: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Domain:
    """A finite set of integers: either `lower..upper step step`, or `listed` values in the order given.

    Attributes:
        lower: Smallest member.
        upper: Largest member.
        step: Distance between members of a range; 1 for listed values.
        listed: The values in the order in which they were given, or None for a range.
        because: Why the variable is limited so; "" when nobody said.
        declared: False for a name that was used without a declaration (a positive integer).

    Raises:
        UsageError: Where these are no such set; `from_range` and `from_values` take any bounds and any list.
    """

    lower: int
    upper: int
    step: int = 1
    listed: tuple[int, ...] | None = None
    because: str = ""
    declared: bool = True

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "step"):
            object.__setattr__(self, name, as_int(getattr(self, name), f"{name} of a domain"))
        shown = f"Domain({self.lower}, {self.upper}, {self.step})"
        if self.step < 1:
            raise UsageError(f"{shown}: the step must be at least 1, got {self.step}.")
        if self.upper < self.lower:
            raise UsageError(f"{shown} is empty; the lower bound must not exceed the upper one.")
        if self.listed is not None:
            listed = tuple(as_int(v, "a value of a domain") for v in self.listed)
            object.__setattr__(self, "listed", listed)
            bounds = (min(listed), max(listed)) if listed else None
            if bounds != (self.lower, self.upper) or self.step != 1 or len(set(listed)) != len(listed):
                raise UsageError(
                    f"{shown}: listed values must be distinct, with the smallest as lower bound, the largest as upper "
                    "bound and step 1; Domain.from_values(...) makes such a domain."
                )
        elif (self.upper - self.lower) % self.step:
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
        for name, value in zip(Domain.__slots__, (lower, upper, step, listed, because, declared), strict=True):
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
        first = itertools.islice(values, MAX_LISTED + 1)
        listed = tuple(dict.fromkeys(as_int(v, what) for v in first))
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
        """Returns the domain of a name that nobody declared: 1 .. 2^63 - 1."""
        return Domain(1, POSITIVE_UPPER, declared=False)

    @property
    def size(self) -> int:
        """Number of members, exact even beyond 64 bits."""
        if self.listed is not None:
            return len(self.listed)
        return (self.upper - self.lower) // self.step + 1

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
            return "{" + ", ".join(map(str, self.listed)) + "}"
        return f"{self.lower}..{self.upper}" + (f" step {self.step}" if self.step != 1 else "")
