"""Solutions, however many: of one space or of several kernels' spaces as one list, in batches of columns.

Printed as they come, in any format; a closed pipe ends it early. Kernels have different parameters: rows of
several carry their kernel's name, and `ABSENT` where it lacks a parameter.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from constrint.answers.layout import pair_lines
from constrint.answers.question import Question
from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import printable, terminal_width
from constrint.cli.output import Output
from constrint.cli.running.run import Run
from constrint.model.values import literal
from constrint.solve import Limits

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

    def __init__(self, question: Question, backend: str, limits: Limits | None = None) -> None:
        """All solutions.

        Raises:
            InfeasibleError: When there is none.
            LimitReachedError: When a limit came before all were known.
        """
        spaces = question.spaces(backend, limits)
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

    def write(self, batches: Iterable[Columns], number: int, run: Run, output: Output) -> None:
        """Print solutions as they come, as long as the run may go on.

        Args:
            batches: The solutions.
            number: How many they are.
            run: Where it ends the rows early, stderr says so, and in JSON a last object whose one key is `stopped`.
            output: How they are printed.
        """
        table, wanted = Table(solution_columns(self.names), []), output.wanted.columns
        printed = _Counted(run.while_it_may(batches), number, run)

        def drawn(_: object) -> None:
            print_rows([column.key for column in table.named(wanted)] if wanted else self.names, printed)

        output.show(Page(table, draw=drawn, rows=lambda: _rows(printed)))
        if printed.num_rows < number:
            told = {"num_printed": printed.num_rows, "num_asked": number, "why": run.reason()}
            if output.format in ("json", "jsonl"):
                sys.stdout.write(msgspec.json.encode({"stopped": told}).decode() + "\n")
            sys.stdout.flush()
            run.progress.close()
            print(f"stopped after {printed.num_rows:,} of {number:,} rows: {run.reason()}", file=sys.stderr)
            run.leave()

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


class _Counted:
    """Batches, with how many rows they had so far, which the progress hears of where it does not stand between them."""

    def __init__(self, batches: Iterable[Columns], number: int, run: Run) -> None:
        self.num_rows = 0
        self._batches, self._number, self._run = batches, number, run

    def __iter__(self) -> Iterator[Columns]:
        for columns in self._batches:
            yield columns
            self.num_rows += len(next(iter(columns.values()))) if columns else 1
            if not sys.stdout.isatty():
                self._run.progress.say(f"{self.num_rows:,} of {self._number:,} rows", self.num_rows, self._number)


def solution_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """A column for each variable, and for the kernel."""
    return tuple(Column(name, is_text=name == "kernel", show=_written) for name in names)


def _draw(total: int, count: int, seed: int | None) -> list[int]:
    """Distinct numbers below `total`, drawn uniformly; `total` may exceed 64 bits."""
    source = random.Random(seed)
    if total <= sys.maxsize:
        return source.sample(range(total), count)
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn[source.randrange(total)] = None
    return list(drawn)


def _rows(batches: Iterable[Columns]) -> Iterator[list[Any]]:
    for columns in batches:
        yield from map(list, zip(*(column.tolist() for column in columns.values()), strict=True))


def print_rows(names: Iterable[str], batches: Iterable[Columns]) -> None:
    """Print a table with one line per solution; where the terminal is too narrow, `name=value` pairs.

    The table is printed as it comes: a later column may be wider than an earlier one.
    """
    widths = {name: len(name) for name in names}
    width = terminal_width()
    is_first = True
    for columns in batches:
        texts = {name: [_written(cell) for cell in columns[name].tolist()] for name in widths}
        widths = {name: max(widths[name], *map(len, texts[name])) for name in widths}
        if width is not None and sum(widths.values()) + 2 * (len(widths) - 1) > width:
            for row in zip(*texts.values(), strict=True):
                pairs = [f"{name}={value}" for name, value in zip(texts, row, strict=True) if value != "-"]
                sys.stdout.writelines(f"{line}\n" for line in pair_lines(pairs, width))
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
    return printable(cell) if isinstance(cell, str) else literal(cell)
