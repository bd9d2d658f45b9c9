"""Prints solutions, however many: aligned rows or JSON lines, in batches, so that a closed pipe ends it early."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from constrint.model import Problem
    from constrint.solve import SearchSpace

BATCH = 4096
Columns = Mapping[str, "NDArray[Any]"]


def rows_at(space: SearchSpace, indices: Sequence[int]) -> Iterator[Columns]:
    """Solutions with these indices, in batches of columns."""
    for start in range(0, len(indices), BATCH):
        yield space.take(indices[start : start + BATCH])


def all_rows(space: SearchSpace) -> Iterator[Columns]:
    """Every solution, in batches of columns."""
    for start in range(0, space.size, BATCH):
        yield space.take(range(start, min(start + BATCH, space.size)))


def listed_rows(names: Iterable[str], rows: Sequence[Mapping[str, int]]) -> Iterator[Columns]:
    """Solutions that are listed already, as one batch."""
    import numpy as np

    yield {name: np.array([row[name] for row in rows], dtype=object) for name in names}


def print_json_lines(batches: Iterable[Columns]) -> None:
    """Print one JSON object per solution and line."""
    import msgspec

    encode = msgspec.json.Encoder().encode_lines
    for columns in batches:
        lists = [column.tolist() for column in columns.values()]
        lines = [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
        sys.stdout.write(encode(lines).decode())


def print_rows(problem: Problem, batches: Iterable[Columns]) -> None:
    """Print a table with one line per solution; where the terminal is too narrow, `name=value` pairs."""
    import shutil

    widths = {name: len(name) for name in problem.variables}
    width, is_terminal = shutil.get_terminal_size().columns, sys.stdout.isatty()
    is_first = True
    for columns in batches:
        texts = {name: list(map(str, columns[name].tolist())) for name in widths}
        widths = {name: max(widths[name], *map(len, texts[name])) for name in widths}
        if is_terminal and sum(widths.values()) + 2 * (len(widths) - 1) > width:
            _print_pairs(texts, width)
            continue
        if is_first:
            sys.stdout.write("  ".join(name.rjust(widths[name]) for name in widths) + "\n")
            is_first = False
        aligned = [[text.rjust(widths[name]) for text in texts[name]] for name in widths]
        sys.stdout.write("".join("  ".join(row) + "\n" for row in zip(*aligned, strict=True)))


def _print_pairs(texts: Mapping[str, Sequence[str]], width: int) -> None:
    import textwrap

    for row in zip(*texts.values(), strict=True):
        text = " ".join(f"{name}={value}" for name, value in zip(texts, row, strict=True))
        sys.stdout.write(textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False) + "\n")
