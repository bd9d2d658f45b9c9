"""The options of every command that prints a table: `--format`, `--columns`, `--sort`; and files written whole.

A command takes an `output: Output`, which the decorator `printing` makes of its options, and shows a `Page`.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from constrint.answers.registry import PAGES
from constrint.answers.table import Column, Page, PageOptions, Shown, Table
from constrint.cli.completing import complete_columns
from constrint.cli.completion import complete_format
from constrint.cli.options import as_command
from constrint.errors import ConstrintError, UsageError

#: The format without an option.
TABLE = "table"
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON (`constrint docs json` describes it): short for --format json.")
]
Form = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="table, csv, json, jsonl or markdown (`constrint docs tables`).",
        autocompletion=complete_format,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME[,NAME]",
        help="Columns to print, by title or full name.",
        autocompletion=complete_columns,
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="[-]NAME[,NAME]",
        help="Order of the rows; -NAME: the largest first.",
        autocompletion=complete_columns,
    ),
]
Wide = Annotated[bool, typer.Option("--wide", help="Print every column, however wide the terminal.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="In CSV, no ' before text that a spreadsheet would compute, such as =A1.")
]
Legend = Annotated[bool, typer.Option("--legend", help="Say what every column means, and what figures rest on.")]


@dataclass(frozen=True)
class Output:
    """The options about a command's output.

    Args:
        format: Name of the output format.
        page_options: The options about the page.
        sort: Names of the columns that order the rows.
    """

    format: str = TABLE
    page_options: PageOptions = field(default_factory=PageOptions)
    sort: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The first option that changes the output; empty if none was given."""
        page = self.page_options
        page_values = {
            "--columns": page.columns,
            "--wide": page.is_wide,
            "--legend": page.has_legend,
        }
        named = {"--json": self.is_json, "--format": not self.is_table, "--sort": self.sort, **page_values}
        return next((option for option, value in named.items() if value), "")

    @property
    def is_table(self) -> bool:
        """Whether the output is a table for people."""
        return self.format == TABLE

    @property
    def is_json(self) -> bool:
        """Whether the output is one JSON document."""
        return self.format == "json"

    def check(self, columns: tuple[Column, ...]) -> None:
        """Check the named columns before a long command starts.

        Raises:
            UnknownNameError: When a column is unknown.
        """
        Table(columns, []).named([*self.page_options.columns, *(name.removeprefix("-") for name in self.sort)])

    def show(self, page: Page) -> None:
        """Print a page.

        Raises:
            UsageError: When a column is unknown, or the format or a streamed page does not take an option.
        """
        if page.rows is not None and self.sort:
            raise UsageError("--sort does not go with rows that are printed as they are found; sort the output.")
        if self.is_json and page.document is not None and self.page_options.columns:
            raise UsageError("--format json prints all of its document; --columns goes with the other formats.")
        page.table.named(self.page_options.columns)
        if self.sort:
            page = replace(page, table=page.table.sorted_by(self.sort))
        for piece in PAGES.named(self.format).write(Shown(page, self.page_options)):
            sys.stdout.write(piece)


def output_of(
    *, json: bool, format_: str | None, columns: str | None, sort: str | None, wide: bool, legend: bool, raw: bool
) -> Output:
    """The output that the options ask for.

    Raises:
        UsageError: When options contradict each other, or the format is unknown.
    """
    if json and format_ not in (None, "json"):
        raise UsageError(f"--json is --format json, and --format {format_} is given; leave one out.")
    if wide and columns is not None:
        raise UsageError("--wide prints every column and --columns some of them; leave one out.")
    form = "json" if json else TABLE if format_ is None else format_.lower()
    PAGES.named(form)
    return Output(form, PageOptions(_names(columns, "--columns"), wide, legend, raw), _names(sort, "--sort"))


def _names(text: str | None, option: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if not all(name.removeprefix("-") for name in names):
        raise UsageError(f"{option} takes names with commas between them, such as {option} kernel,predicted_s.")
    return names


#: The options by the names of the parameters of `output_of`.
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "format_": (Form, None),
    "columns": (Columns, None),
    "sort": (Sort, None),
    "wide": (Wide, False),
    "legend": (Legend, False),
    "raw": (Raw, False),
    "json": (Json, False),
}


def printing(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator that replaces a command's `Output` parameter by the options that state it."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, keyword, default=default, annotation=hint) for name, (hint, default) in _OPTIONS.items()
    ]
    own = inspect.signature(command, eval_str=True).parameters.values()
    (printed_by,) = (parameter.name for parameter in own if parameter.annotation is Output)
    shown = [parameter for one in own for parameter in (options if one.name == printed_by else [one])]

    def printed(*arguments: Any, **values: Any) -> None:
        output = output_of(**{name: values.pop(name, default) for name, (_, default) in _OPTIONS.items()})
        command(*arguments, **{printed_by: output}, **values)

    return as_command(command, printed, shown)


def refuse_existing(path: Path) -> None:
    """Raise UsageError if the file exists; a device or a pipe is written to as it is."""
    if path.is_file():
        raise UsageError(f"{path} exists; --force writes over it, or name another file with --output.")


def write_file(path: Path, pieces: Iterable[str], error: Callable[[str], ConstrintError] | None = None) -> None:
    """Write a file whole: an existing file stays until the new text is complete.

    Args:
        path: The file; a device or a pipe is written to directly.
        pieces: The text.
        error: Makes the exception of the reason why the file cannot be written.

    Raises:
        ConstrintError: When the file cannot be written; the exception of `error` if it is given.
    """
    name = ""
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="\n") as device:
                device.writelines(pieces)
            return
        target = path.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        os.chmod(name, 0o666 & ~_umask())  # a temporary file is readable for its owner alone
        os.replace(name, target)
    except OSError as failed:
        if error is not None:
            raise error(str(failed.strerror)) from None
        text = f"cannot write {path}: {failed.strerror}; name another file with --output."
        raise ConstrintError(text) from None
    finally:
        if name:
            with suppress(OSError):
                os.unlink(name)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
