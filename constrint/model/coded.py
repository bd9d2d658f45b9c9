"""Variables that stand for the integers which code other values; `values` says how values are coded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.errors import UsageError
from constrint.model import intmath
from constrint.model.expr import Var, check_name


class Coded(Var):
    """A variable whose values are not all plain integers; it stands for the integer that codes the value.

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
        return intmath.as_int(value, f"a value of {self.name!r}")

    def key(self) -> tuple[Any, ...]:
        """Returns ("var", name), and the scale unless it is 1."""
        return ("var", self.name) if self.scale == 1 else ("var", self.name, self.scale)

    __hash__ = Var.__hash__
