"""The formats of results by name: printed pages, exported rankings and spaces, and tuning records.

Each kind has one `Registry`: formats of this package, formats that a program registers, and formats that installed
packages offer as entry points. Only the module of the requested format is imported. The formats of printed pages are
here: a table that fits the terminal, for people; CSV, JSON, JSON lines and Markdown for programs, with full column
names, numbers with all digits, and text in which no terminal finds a control character.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from constrint import plugins
from constrint.answers.layout import draw, lay_out, legend, notes_below
from constrint.answers.table import PageOptions, Shown, Table, batched, plain_text
from constrint.answers.terminal import LAID_OUT, command_text, json_line, json_text, printable, terminal_width, wrap
from constrint.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.answers.exported import Export
    from constrint.answers.formats.records import Source
    from constrint.tune.store.record import TuningRecord

FormatT = TypeVar("FormatT")
#: Results that an export format can write: ranked configurations with modelled times, or a space with its rules.
Kind = Literal["ranking", "space"]


@dataclass(frozen=True)
class PageFormat:
    """A format of `--format`: how a command's page is printed.

    Args:
        summary: One line of help.
        write: Yields the page as pieces of text; each piece is printed at once.
    """

    summary: str
    write: Callable[[Shown], Iterable[str]]


@dataclass(frozen=True)
class Format:
    """A format of `solve --export`: how a ranking or a space becomes a file.

    Args:
        name: The name that `--export` takes.
        summary: One line of help.
        write: Returns the text of the file. Raises `UsageError` for results that the format cannot hold.
        takes: The kinds of results that it writes. With both kinds, the best configurations of a kernel are written as
            a ranking.
    """

    name: str
    summary: str
    write: Callable[[Export], str]
    takes: tuple[Kind, ...] = ("ranking", "space")


@dataclass(frozen=True)
class RecordFormat:
    """A format of `records export` and `records import`.

    Args:
        name: The name that `--format` takes.
        summary: One line of help.
        write: Yields records as pieces of text; None if the format is only read. Raises `UsageError` for records that
            the format cannot hold.
        read: Returns the records of a file, all or none; None if the format is only written. Raises `UsageError` with
            the file, the line and the rule.
    """

    name: str
    summary: str
    write: Callable[[Iterable[TuningRecord]], Iterator[str]] | None = None
    read: Callable[[Source], list[TuningRecord]] | None = None


class Registry(Generic[FormatT]):
    """The formats of one kind by name."""

    def __init__(self, what: str, kind: type[FormatT], built_in: Mapping[str, str], group: str = "") -> None:
        """Declare the formats of this package.

        Args:
            what: The kind as error messages call it: `export format`.
            kind: The class of the formats.
            built_in: The place of each format of this package, `module:ATTRIBUTE`, by the format's name.
            group: The entry-point group of installed packages; empty if packages cannot offer this kind.
        """
        self._what, self._kind, self._built_in, self._group = what, kind, built_in, group
        self._added: dict[str, FormatT] = {}

    @property
    def built_in(self) -> tuple[str, ...]:
        """Names of the formats of this package."""
        return tuple(self._built_in)

    def names(self) -> tuple[str, ...]:
        """Names of all formats, those of installed packages last."""
        return tuple(dict.fromkeys((*self._built_in, *self._added, *self._offered())))

    def add(self, name: str, added: FormatT) -> None:
        """Add a format to this process; it replaces a format of the same name."""
        self._added[name] = added

    def named(self, name: str) -> FormatT:
        """The format with this name.

        Raises:
            UnknownNameError: When no format has the name; lists the known ones.
            ConstrintError: When the package that offers it cannot be imported.
            UsageError: When the package offers something else under the name.
        """
        if name in self._added:
            return self._added[name]
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            built_in: FormatT = getattr(import_module(f"constrint.answers.{module}"), attribute)
            return built_in
        points = self._offered()
        if name not in points:
            raise UnknownNameError(self._what, name, self.names())
        return self._checked(points[name], plugins.load(points[name]))

    def _offered(self) -> dict[str, Any]:
        """The entry points of installed packages by name."""
        return {point.name: point for point in plugins.offered(self._group)} if self._group else {}

    def _checked(self, point: Any, offered: Any) -> FormatT:
        if not isinstance(offered, self._kind) or getattr(offered, "name", point.name) != point.name:
            raise UsageError(
                f"entry point {point.name!r} of the group {self._group} must name a constrint.answers."
                f"{self._kind.__name__} of that name, got {offered!r}. Repair or remove the package that offers it."
            )
        checked: FormatT = offered
        return checked


PAGES = Registry(
    "format",
    PageFormat,
    {name: f"registry:{name.upper()}" for name in ("csv", "json", "jsonl", "markdown", "table")},
    "constrint.formats",
)
EXPORTS = Registry(
    "export format",
    Format,
    {
        "triton": "formats.triton:FORMAT",
        "json": "formats.json:FORMAT",
        "csv": "formats.csv:FORMAT",
        "c-header": "formats.c_header:FORMAT",
        "kernel-tuner": "formats.kernel_tuner:FORMAT",
        "cutlass-like": "formats.cutlass_like:FORMAT",
    },
    "constrint.exports",
)
RECORDS = Registry(
    "format",
    RecordFormat,
    {
        "jsonl": "formats.jsonl:RECORDS",
        "kernel-tuner": "formats.kernel_tuner:RECORDS",
        "t1": "formats.t1:RECORDS",
        "t4": "formats.t4:RECORDS",
        "inductor": "formats.inductor:RECORDS",
        "triton-config": "formats.triton:RECORDS",
        "c-header": "formats.c_header:RECORDS",
    },
)


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
