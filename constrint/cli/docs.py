"""`constrint docs`: the documentation, which comes with the package, in the terminal."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import say
from constrint.cli.completion import complete_page
from constrint.cli.output import Output, printing
from constrint.errors import UnknownNameError, UsageError

SCHEMA = "constrint.docs/1"
#: The folders of the pages in a wheel and in a checkout.
FOLDERS = (Path(__file__).parents[1] / "docs", Path(__file__).parents[2] / "docs")
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
) -> None:
    """List the pages of the documentation, or print one."""
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


def pages() -> dict[str, Path]:
    """The pages by short names; the name of a page includes its folder if two files have the same name.

    Raises:
        UsageError: When the package has no pages.
    """
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    if folder is None:
        raise UsageError("the pages of the documentation are not installed; `constrint --help` lists the commands.")
    paths = sorted(folder.rglob("*.md"))
    counts = Counter(path.stem for path in paths)
    return {path.stem if counts[path.stem] == 1 else f"{path.parent.name}/{path.stem}": path for path in paths}


def title_of(path: Path) -> str:
    """The heading of a page."""
    with path.open(encoding="utf-8") as page:
        return page.readline().lstrip("# ").rstrip()
