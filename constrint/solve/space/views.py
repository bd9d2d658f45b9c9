"""A space as a line of text and as an HTML table of its first solutions, and the indices that a subscript means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from constrint.errors import UsageError
from constrint.frames import html_table
from constrint.model.intmath import as_int, shown
from constrint.solve.space.row_keys import check_listing

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace

_SHOWN_ROWS: Final = 10
_SHOWN_NAMES: Final = 6


def written(number: int) -> str:
    """A number of solutions; a large one rounded down to three digits."""
    if number < 10**15 or number.bit_length() > 1 << 13:
        return shown(number)
    digits = str(number)
    return f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}"


def summary(space: SearchSpace) -> str:
    """The space in one line: its name, its size, its variables."""
    names = ", ".join(space.names[:_SHOWN_NAMES]) + (", ..." if len(space.names) > _SHOWN_NAMES else "")
    return f"<{_sizes(space, written)} over {names or 'no variables'}>"


def _sizes(space: SearchSpace, number: Callable[[int], str]) -> str:
    name = f" {space.problem.name!r}" if space.problem.name else ""
    return f"SearchSpace{name}: {number(space.size)} of {number(space.product_size)} configs"


def _in_groups(number: int) -> str:
    """A number with its digits in groups of three."""
    return f"{number:,}" if number < 10**15 else written(number)


def as_html(space: SearchSpace) -> str:
    """The first solutions as a table; every text in it is escaped."""
    number = min(space.size, _SHOWN_ROWS)
    rows = [[index, *(str(config[n]) for n in space.names)] for index, config in enumerate(space[:number])]
    more = f"... {_in_groups(space.size - number)} more" if space.size > number else ""
    return html_table(_sizes(space, _in_groups), ["", *space.names], rows, more=more)


def indices_of(wanted: object, size: int) -> list[int] | range | None:
    """The indices that a subscript means, counted from 0; None where it is a single one.

    Raises:
        UsageError: When it is neither a number, a slice nor a list of numbers.
        IndexError: When an index of a list is outside the space.
        LimitReachedError: When a slice has too many solutions to list.
    """
    if isinstance(wanted, slice):
        for part in (wanted.start, wanted.stop, wanted.step):
            if part is not None:
                as_int(part, "a bound of a slice")
        if wanted.step == 0:
            raise UsageError("the step of a slice must not be 0.")
        chosen = range(size)[wanted]
        # len() of a long range overflows.
        check_listing(max(0, -((chosen.start - chosen.stop) // chosen.step)))
        return chosen
    if isinstance(wanted, np.ndarray) and wanted.ndim == 1:
        if wanted.dtype == bool:
            raise UsageError("a space takes indices, not a mask; numpy.flatnonzero(mask) gives the indices.")
        wanted = wanted.tolist()
    if not isinstance(wanted, Sequence) or isinstance(wanted, (str, bytes)):
        return None
    indices = [as_int(i, "an index") for i in wanted]
    for index in indices:
        if not -size <= index < size:
            raise IndexError(f"index {index} is outside the space of {size} solutions")
    return [i + size if i < 0 else i for i in indices]
