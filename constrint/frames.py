"""Results as data frames of pandas and polars, and as tables in HTML for notebooks.

Both libraries are optional; a method imports its library when it is called.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from constrint.errors import UsageError

_CAPTION: Final = "text-align: left; white-space: nowrap; padding: 0.3em 0.6em"
_NUMBER: Final = "text-align: right; padding: 0.1em 0.6em"
_TEXT: Final = "text-align: left; padding: 0.1em 0.6em"


def library(name: str, method: str, instead: str = "") -> Any:
    """A data frame library.

    Args:
        name: The name of the library and of its package.
        method: The method that needs it.
        instead: A sentence about a method without it.

    Raises:
        UsageError: When it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        way_out = f"{method}() needs {name}, which is not installed: pip install {name}. {instead}"
        raise UsageError(way_out.rstrip()) from None


def pandas_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """A `pandas.DataFrame` of columns of Python's own values; None is a missing value, and integers stay integers."""
    pandas = library("pandas", "to_pandas")
    series = {
        name: pandas.Series(list(values), dtype="Int64" if _is_holed(values) else None)
        for name, values in columns.items()
    }
    return pandas.DataFrame(series)


def polars_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """A `polars.DataFrame` of the same columns; None is null."""
    polars = library("polars", "to_polars")
    return polars.DataFrame({name: list(values) for name, values in columns.items()}, strict=False)


def columns_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows by column: every name that some row has, in the order in which they appear; None where a row has none."""
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    return {name: [row.get(name) for row in listed] for name in names}


def _is_holed(values: Sequence[Any]) -> bool:
    """Whether some are integers and the others missing: pandas would make floating-point numbers of them."""
    kinds = {type(value) for value in values}
    return kinds == {int, type(None)}


def html_table(
    caption: str, headers: Sequence[str], rows: Iterable[Sequence[object]], *, more: str = "", left: int = 0
) -> str:
    """A small table for notebooks; every text in it is escaped.

    Args:
        caption: The line above the table.
        headers: Titles of the columns; the first column names the rows.
        rows: Cells; None prints as a dash.
        more: The line below the table about rows that are left out.
        left: Number of columns behind the first that are text, aligned to the left.
    """
    body = ["".join(_row(cells, left)) for cells in rows]
    shown = ""
    if body:
        head = "".join(f'<th style="{_style(at, left)}">{_cell(title)}</th>' for at, title in enumerate(headers))
        if more:
            body.append(f'<tr><td colspan="{len(headers)}" style="{_TEXT}">{html.escape(more)}</td></tr>')
        shown = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<table><caption style="{_CAPTION}">{html.escape(caption)}</caption>{shown}</table>'


def _row(cells: Sequence[object], left: int) -> Iterable[str]:
    yield "<tr>"
    for at, cell in enumerate(cells):
        tag = "th" if at == 0 else "td"
        yield f'<{tag} style="{_style(at, left)}">{_cell(cell)}</{tag}>'
    yield "</tr>"


def _style(at: int, left: int) -> str:
    return _TEXT if 1 <= at <= left else _NUMBER


def _cell(value: object) -> str:
    return "-" if value is None else html.escape(str(value))
