"""How results are printed: a table that fits 80 columns on a terminal, plain text in a pipe, JSON on request."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

#: Width that pipes get: no line of ours is longer, so nothing is wrapped or cut.
PIPE_WIDTH = 400


def print_json(value: Any) -> None:
    """Print one JSON document with sorted, indented keys as given."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Print a table; columns named in `left` are text and left-aligned, the others are numbers.

    Args:
        headers: Column titles.
        rows: Cells; None prints as `-`.
        left: Titles of the text columns.
        whole: Titles of the text columns that are never broken over lines.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    is_terminal = sys.stdout.isatty()
    # The lines of the box stand between columns, too; a table that is never broken does without further spaces.
    is_tight = set(left) <= set(whole) and _width(headers, texts, gap=2) > _terminal_width()
    table = Table(
        box=box.SIMPLE_HEAD if is_terminal else None,
        pad_edge=False,
        padding=(0, 0 if is_tight else 1, 0, 0) if is_terminal else (0, 2, 0, 0),
        show_edge=False,
        header_style="bold",
    )
    for header in headers:
        if header in left:
            table.add_column(header, justify="left", overflow="fold", no_wrap=header in whole)
        else:
            table.add_column(header, justify="right", no_wrap=True)
    for row in texts:
        table.add_row(*map(Text, row))
    out = console()
    with out.capture() as captured:
        out.print(table)
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def fitting(
    headers: Sequence[str], rows: Sequence[Sequence[object]], spare: Sequence[str]
) -> tuple[list[str], list[list[object]], list[str]]:
    """Leave out columns until a table fits the terminal; a pipe gets all of them.

    Args:
        headers: Column titles.
        rows: Cells.
        spare: Titles of the columns that may be left out, the first ones first.

    Returns:
        The titles and cells that are left, and the titles left out.
    """
    kept: list[Sequence[object]] = [headers, *rows]
    hidden: list[str] = []
    for title in spare:
        if _width(kept[0], kept[1:], gap=1) <= _terminal_width():
            break
        at = kept[0].index(title)
        kept = [[*row[:at], *row[at + 1 :]] for row in kept]
        hidden.append(title)
    return [str(header) for header in kept[0]], [list(row) for row in kept[1:]], hidden[::-1]


def _width(headers: Sequence[object], rows: Sequence[Sequence[object]], gap: int) -> int:
    """Width of a table with so many spaces between columns."""
    columns = zip(headers, *rows, strict=True)
    return sum(max(len("-" if cell is None else str(cell)) for cell in column) + gap for column in columns) - gap


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


def console() -> Any:
    """A rich console on stdout: as wide as the terminal, or wide enough to wrap nothing in a pipe."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False, markup=False)
    return Console(highlight=False, markup=False, width=PIPE_WIDTH, color_system=None)


def say(text: str = "") -> None:
    """Print a line of the result."""
    sys.stdout.write(text + "\n")


def wrap(text: str, indent: str = "") -> str:
    """Wrap prose to the terminal; leave it alone in a pipe."""
    if not sys.stdout.isatty():
        return indent + text
    width = max(40, _terminal_width())
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)
