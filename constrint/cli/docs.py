"""`constrint docs`: the documentation, which comes with the package, in the terminal."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import say
from constrint.cli.completion import complete_page
from constrint.cli.output import Output, printing
from constrint.cli.pages import pages, title_of
from constrint.errors import UnknownNameError, UsageError

SCHEMA = "constrint.docs/1"
#: Marks of the tests in the first line of an example, which are removed for readers.
MARKS = re.compile(r"^(```\w+[^\n{]*?) *\{[^}\n]*\}$", flags=re.MULTILINE)
COLUMNS = (
    Column("name", "page", is_text=True, importance=100),
    Column("title", is_text=True, importance=90, wraps=True),
)


@printing
def docs(
    output: Output,
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAGE]", help="The page to print; all are listed without.", autocompletion=complete_page
        ),
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="Print the manual page of the whole command, for man.")] = False,
) -> None:
    """List the pages of the documentation, or print one."""
    if man:
        _print_man_page(name)
        return
    files = pages()
    if name is None:
        rows = [[page_name, title_of(path)] for page_name, path in files.items()]
        items = [{"name": page_name, "title": title} for page_name, title in rows]
        table = Table(COLUMNS, rows, items=items)
        below = ("`constrint docs PAGE` prints a page.",)
        output.show(Page(table, lambda items: {"schema": SCHEMA, "pages": list(items)}, below=below))
        return
    if name not in files:
        raise UnknownNameError("page", name, files)
    text = MARKS.sub(r"\1", files[name].read_text(encoding="utf-8"))
    if not sys.stdout.isatty():
        say(text.rstrip())
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _print_man_page(name: str | None) -> None:
    from constrint import __version__
    from constrint.cli.app import application
    from constrint.cli.man import man_page

    if name is not None:
        raise UsageError("--man prints one page about the whole command; leave the page's name out.")
    app, _ = application(())
    sys.stdout.write(man_page(typer.main.get_command(app), __version__))
