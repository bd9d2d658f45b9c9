"""The formats of a printed page: a table for people, CSV, JSON, JSON lines and Markdown.

The table fits the terminal. The other formats are for programs: full column names, numbers with all digits, and text
in which no terminal finds a control character.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from constrint.answers.layout import draw, lay_out, legend, notes_below
from constrint.answers.registry import PageFormat
from constrint.answers.table import PageOptions, Shown, Table, batched, plain_text
from constrint.answers.terminal import LAID_OUT, command_text, json_line, json_text, printable, terminal_width, wrap

#: Characters with a meaning in Markdown; an underscore only where a word begins or ends.
_MARKS = re.compile(r"[\\|`*\[\]<>~&]|(?<!\w)_|_(?!\w)")
#: The beginning of a text that a spreadsheet computes, or whose first character it drops, and numbers, which it reads.
_COMPUTED = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NEGATIVE = re.compile(r"-(\d+(\.\d+)?([eE][+-]?\d+)?|inf)")


def write_table(shown: Shown) -> Iterator[str]:
    """The page as text: the lines above, the table with its notes, the lines below."""
    page, options = shown.page, shown.options
    for line in page.above:
        yield wrap(line) + "\n"
    if page.draw is not None:
        page.draw(partial(_print, options=options, main=page.table))
    elif page.table.rows:
        yield "\n" if page.above else ""
        yield from _drawn(page.table, options, page.answer)
        yield "" if page.answer else "\n"
    for line in (*page.below, *(page.legend if options.has_legend else ())):
        yield wrap(line) + "\n"
    for before, words in page.hints:
        yield command_text(words, f"{before} ") + "\n"
    if options.has_legend:
        yield "\n" + wrap("columns, with the names that --columns and --sort take:") + "\n"
        for line in legend(page.table.columns):
            yield wrap(line, "  ") + "\n"


def _drawn(table: Table, options: PageOptions, answer: Sequence[str] = ()) -> Iterator[str]:
    width = terminal_width()
    layout = lay_out(table, width, is_wide=options.is_wide, chosen=options.columns)
    for line in draw(table, layout, width):
        yield line + "\n"
    notes = notes_below(table, layout)
    yield "\n" if answer or notes else ""
    yield from (wrap(line, has_lines=True) + "\n" for line in answer)
    yield from (wrap(line) + "\n" for line in notes)


def _print(table: Table, *, options: PageOptions, main: Table) -> None:
    """Print one table of a page with several; `--columns` applies to the main table."""
    heeded = options if table.columns == main.columns else PageOptions(is_wide=options.is_wide)
    sys.stdout.write("".join(_drawn(table, heeded)))


def write_csv(shown: Shown) -> Iterator[str]:
    """Comma-separated values (RFC 4180): a line of names, then a line per row; a missing value is empty.

    Text that a spreadsheet would compute begins with `'`, unless `--raw` is given.
    """
    is_raw = shown.options.is_raw
    yield csv_lines([[column.key for column in shown.columns]], is_raw=is_raw)
    for rows in batched(shown.values()):
        yield csv_lines((map(plain_text, row) for row in rows), is_raw=is_raw)


def csv_lines(rows: Iterable[Iterable[Any]], *, is_raw: bool = False) -> str:
    """Rows as lines of comma-separated values.

    Args:
        rows: The cells of each row; text is made printable, other values are written by `str`.
        is_raw: Whether a text that a spreadsheet would compute goes without the `'` that makes it text there.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_csv_cell(value, is_raw) for value in row] for row in rows)
    return text.getvalue()


def _csv_cell(value: Any, is_raw: bool) -> Any:
    if not isinstance(value, str):
        return value
    cell = printable(value, LAID_OUT)
    return f"'{cell}" if not is_raw and _COMPUTED.match(cell) and not _NEGATIVE.fullmatch(cell) else cell


def write_json(shown: Shown) -> Iterator[str]:
    """The command's JSON document (`constrint docs json`); JSON lines if the page streams its rows."""
    if shown.page.document is None:
        yield from write_jsonl(shown)
    else:
        yield json_text(shown.page.document(shown.page.table.items))


def write_jsonl(shown: Shown) -> Iterator[str]:
    """A JSON object per row; a missing value is null, or is left out of streamed rows."""
    names = [column.key for column in shown.columns]
    for rows in batched(shown.values()):
        lines = [dict(zip(names, row, strict=True)) for row in rows]
        if shown.page.rows is not None and any(msgspec.UNSET in row for row in rows):
            lines = [{name: value for name, value in line.items() if value is not msgspec.UNSET} for line in lines]
        yield "".join(f"{json_line(line)}\n" for line in lines)


def write_markdown(shown: Shown) -> Iterator[str]:
    """A Markdown table as GitHub shows it: names, alignment, rows."""
    columns = shown.columns
    yield _markdown_line([_escaped(column.key) for column in columns])
    yield _markdown_line([":---" if column.is_text else "---:" for column in columns])
    for rows in batched(shown.values()):
        yield "".join(_markdown_line([_escaped(plain_text(value)) for value in row]) for row in rows)


def _markdown_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _escaped(text: str) -> str:
    """Text in one line that Markdown shows unchanged."""
    return _MARKS.sub(r"\\\g<0>", text).replace("\n", "<br>").replace("\t", " ")


TABLE = PageFormat("a table that fits the terminal, or plain text in a pipe", write_table)
CSV = PageFormat("comma-separated values", write_csv)
JSON = PageFormat("one JSON document (`constrint docs json`)", write_json)
JSONL = PageFormat("one JSON object a line", write_jsonl)
MARKDOWN = PageFormat("a Markdown table", write_markdown)
