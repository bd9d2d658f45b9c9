"""Solutions, however many: of one space or of several kernels' spaces as one list, in batches of columns.

Printed as aligned rows or as JSON lines; a closed pipe ends it early. Kernels have different parameters: rows of
several carry their kernel's name, and `ABSENT` where it lacks a parameter.
"""

from __future__ import annotations

import random
import shutil
import sys
import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from constrint.cli.question import Question
from constrint.model.values import literal

BATCH = 4096
#: Stands where a kernel has no such parameter.
ABSENT: Final = msgspec.UNSET
Columns = Mapping[str, NDArray[Any]]


class Solutions:
    """The solutions of all spaces asked about, numbered through.

    Attributes:
        spaces: The spaces, each with its kernel's full name, empty for a file's.
        names: Titles of the columns: the parameters, behind `kernel` where rows have to name it.
    """

    def __init__(self, question: Question, backend: str) -> None:
        """All solutions.

        Raises:
            InfeasibleError: When there is none.
        """
        spaces = question.spaces(backend)
        names = dict.fromkeys(name for asked, _ in spaces for name in asked.problem.variables)
        self.spaces = [(asked.kernel, space) for asked, space in spaces]
        self.names = ("kernel", *names) if question.several else tuple(names)

    @property
    def size(self) -> int:
        """How many there are in all."""
        return sum(space.size for _, space in self.spaces)

    @property
    def product_size(self) -> int:
        """How many combinations of values there are in all."""
        return sum(space.product_size for _, space in self.spaces)

    def all(self) -> Iterator[Columns]:
        """Every solution, one space after the other."""
        for kernel, space in self.spaces:
            for start in range(0, space.size, BATCH):
                yield self._named(kernel, space.take(range(start, min(start + BATCH, space.size))))

    def sample(self, count: int, seed: int | None) -> Iterator[Columns]:
        """Distinct solutions, drawn uniformly from all of them."""
        only = self.spaces[0][1]
        indices = only.sample_indices(count, seed) if len(self.spaces) == 1 else _draw(self.size, count, seed)
        for start in range(0, count, BATCH):
            yield self._at(indices[start : start + BATCH])

    def write(self, batches: Iterable[Columns], *, as_json: bool) -> None:
        """Print solutions as JSON lines or as rows."""
        if as_json:
            print_json_lines(batches)
        else:
            print_rows(self.names, batches)

    def _named(self, kernel: str, columns: Columns) -> Columns:
        """One space's rows with all columns."""
        if self.names == tuple(columns):
            return columns
        length = len(next(iter(columns.values()))) if columns else 1
        absent = np.full(length, ABSENT, dtype=object)
        name = np.full(length, kernel, dtype=object)
        return {n: name if n == "kernel" else columns.get(n, absent) for n in self.names}

    def _at(self, indices: Sequence[int]) -> Columns:
        """Rows of several spaces, in the order of their indices."""
        ends = list(accumulate(space.size for _, space in self.spaces))
        owners = np.array([bisect_right(ends, index) for index in indices])
        rows = {name: np.full(len(indices), ABSENT, dtype=object) for name in self.names}
        for owner, (kernel, space) in enumerate(self.spaces):
            places = np.flatnonzero(owners == owner)
            if len(places):
                first = ends[owner] - space.size
                named = self._named(kernel, space.take([indices[int(place)] - first for place in places]))
                for name in self.names:
                    rows[name][places] = named[name]
        return rows


def _draw(total: int, count: int, seed: int | None) -> list[int]:
    """Distinct numbers below `total`, drawn uniformly; `total` may exceed 64 bits."""
    source = random.Random(seed)
    if total <= sys.maxsize:
        return source.sample(range(total), count)
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn[source.randrange(total)] = None
    return list(drawn)


def print_json_lines(batches: Iterable[Columns]) -> None:
    """Print one JSON object per solution and line, without what a kernel lacks."""
    encode = msgspec.json.Encoder().encode_lines
    for columns in batches:
        lists = [column.tolist() for column in columns.values()]
        lines = [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
        if any(ABSENT in cells for cells in lists):
            lines = [{name: cell for name, cell in line.items() if cell is not ABSENT} for line in lines]
        sys.stdout.write(encode(lines).decode())


def print_rows(names: Iterable[str], batches: Iterable[Columns]) -> None:
    """Print a table with one line per solution; where the terminal is too narrow, `name=value` pairs."""
    widths = {name: len(name) for name in names}
    width, is_terminal = shutil.get_terminal_size().columns, sys.stdout.isatty()
    is_first = True
    for columns in batches:
        texts = {
            name: ["-" if cell is ABSENT else _written(cell) for cell in columns[name].tolist()] for name in widths
        }
        widths = {name: max(widths[name], *map(len, texts[name])) for name in widths}
        if is_terminal and sum(widths.values()) + 2 * (len(widths) - 1) > width:
            _print_pairs(texts, width)
            continue
        if is_first:
            sys.stdout.write("  ".join(name.rjust(widths[name]) for name in widths) + "\n")
            is_first = False
        aligned = [[text.rjust(widths[name]) for text in texts[name]] for name in widths]
        sys.stdout.write("".join("  ".join(row) + "\n" for row in zip(*aligned, strict=True)))


def _written(cell: object) -> str:
    """A cell of a table; text without quotes, and a dash where a kernel has no such parameter."""
    if cell is ABSENT:
        return "-"
    return cell if isinstance(cell, str) else literal(cell)


def _print_pairs(texts: Mapping[str, Sequence[str]], width: int) -> None:
    for row in zip(*texts.values(), strict=True):
        text = " ".join(f"{name}={value}" for name, value in zip(texts, row, strict=True) if value != "-")
        sys.stdout.write(textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False) + "\n")
