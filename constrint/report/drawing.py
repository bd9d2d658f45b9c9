"""Figures of a report: Plotly's data and layout, the same as a table, both in words; and the registry of figures.

Colours are names of the page's CSS variables (`--c1`), which the page resolves when it draws and when themes change.
Plotly reads some HTML in texts, so every foreign text goes through `escaped`. A figure is a file of
`constrint.report.figures` that registers its function; `load_figures` imports every file of that folder.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from constrint.answers.facts import GpuFacts, Report

#: Colours, markers and fill patterns; each alone distinguishes the series.
COLOURS = tuple(f"--c{number}" for number in range(1, 9))
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x", "hexagon")
PATTERNS = ("", "/", "x", "-", "\\", "|", "+", ".")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MICRO = 1e6
Cell = str | int | float | None


@dataclass(frozen=True)
class FigureColumn:
    """A column of a table.

    Args:
        title: The title, with the unit.
        places: Digits behind the point.
        is_text: Whether cells are texts.
        is_code: Whether the texts are code, such as a configuration.
        meaning: The meaning of the title in a phrase.
    """

    title: str
    places: int = 0
    is_text: bool = False
    is_code: bool = False
    meaning: str = ""

    def shown(self, cell: Cell) -> str:
        """The text of a cell."""
        if cell is None:
            return "-"
        if isinstance(cell, str):
            return cell
        return f"{cell:,.{self.places}f}" if isinstance(cell, float) else f"{cell:,}"

    def exact(self, cell: Cell) -> str:
        """The number by which a cell sorts, in seven digits; empty where the cell's text says as much."""
        if not isinstance(cell, float):
            return ""
        exact = f"{cell:.7g}"
        return "" if float(self.shown(cell).replace(",", "")) == float(exact) else exact


@dataclass(frozen=True)
class FigureTable:
    """A table with a caption; marked rows are drawn as excluded."""

    caption: str
    columns: tuple[FigureColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marked: frozenset[int] = frozenset()
    is_sortable: bool = True


@dataclass(frozen=True)
class Drawing:
    """One figure.

    Args:
        name: The identifier within a page: `roofline`.
        title: The heading.
        says: The message of the figure, in a sentence or two above it.
        alt: The description for readers who do not see it.
        data: Plotly's traces.
        layout: Plotly's layout.
        height: Height in pixels.
        table: The same data as a table.
        note: A remark on how to read the figure.
        is_open: Whether the figure is shown at once.
        is_table_open: Whether the table is shown at once.
        short: The heading in little room; the title if empty.
    """

    name: str
    title: str
    says: str
    alt: str
    data: Sequence[Mapping[str, Any]] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 380
    table: FigureTable | None = None
    note: str = ""
    is_open: bool = True
    is_table_open: bool = False
    short: str = ""


def escaped(text: object) -> str:
    """A text that Plotly shows literally, although it reads tags and entities."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def lines(*texts: str) -> str:
    """Escaped texts as lines of a hover label; long lines are broken."""
    return "<br>".join(part for text in texts for part in _broken(text))


def _broken(text: str, width: int = 60) -> Iterable[str]:
    import textwrap

    return [escaped(part) for part in textwrap.wrap(text, width)] or [""]


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with a title, in the page's colours."""
    of_title = {"text": escaped(title), "standoff": 8}
    return {"title": of_title, "automargin": True, "gridcolor": "--grid", "zerolinecolor": "--grid", **options}


def filled(at: int) -> dict[str, Any]:
    """The fill of a series' bars: a colour and a pattern, each of which distinguishes it."""
    colour = COLOURS[at % len(COLOURS)]
    if at < len(PATTERNS):
        return filled_with(colour, PATTERNS[at])
    return filled_with(colour, PATTERNS[1 + (at - len(PATTERNS)) % (len(PATTERNS) - 1)], size=16)


def filled_with(colour: str, pattern: str, size: int = 7) -> dict[str, Any]:
    """A fill with a colour and a pattern of some pixels' size; an empty pattern leaves the colour alone."""
    over = {"shape": pattern, "fillmode": "overlay", "fgcolor": "--paper", "fgopacity": 1, "size": size}
    over["solidity"] = 0.25
    return {"color": colour, "pattern": over, "line": {"color": "--paper", "width": 0.5}}


def limits_text(limited_by: str, smem: str) -> str:
    """The limits of an SM's blocks in the vendor's words: `registers+smem` is "registers and LDS"."""
    return " and ".join(smem if name == "smem" else name for name in limited_by.split("+"))


def percent(share: float) -> str:
    """A share in percent, with enough digits to differ from 0."""
    if share <= 0.0 or share >= 0.01:
        return f"{share:.0%}" if share >= 0.1 or share <= 0.0 else f"{share:.1%}"
    return f"{100.0 * share:.2g}%"


def rate_text(rate: float) -> str:
    """A rate with at least two digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def microseconds(seconds: float) -> str:
    """A time in microseconds: `12.3 us`."""
    return f"{seconds * MICRO:,.1f} us"


OfGpu = Callable[[GpuFacts], Iterable[Drawing]]
OfReport = Callable[[Report], Iterable[Drawing]]


@dataclass(frozen=True)
class FigureFunctions:
    """The functions that draw, in the order of the page.

    Args:
        of_gpu: Functions that draw one GPU.
        of_report: Functions that draw all GPUs together.
    """

    of_gpu: tuple[OfGpu, ...]
    of_report: tuple[OfReport, ...]


_OF_GPU: dict[str, tuple[int, OfGpu]] = {}
_OF_REPORT: dict[str, tuple[int, OfReport]] = {}


def draws_gpu(order: int) -> Callable[[OfGpu], OfGpu]:
    """Register a function that draws one GPU; smaller orders come first."""

    def register(function: OfGpu) -> OfGpu:
        _OF_GPU[function.__module__] = (order, function)
        return function

    return register


def draws_report(order: int) -> Callable[[OfReport], OfReport]:
    """Register a function that draws all GPUs together."""

    def register(function: OfReport) -> OfReport:
        _OF_REPORT[function.__module__] = (order, function)
        return function

    return register


def load_figures() -> FigureFunctions:
    """Import all files of `constrint.report.figures`; their registered functions."""
    folder = import_module("constrint.report.figures")
    for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        import_module(module.name)
    of_gpu = [function for _, (_, function) in sorted(_OF_GPU.items(), key=lambda item: (item[1][0], item[0]))]
    of_report = [function for _, (_, function) in sorted(_OF_REPORT.items(), key=lambda item: (item[1][0], item[0]))]
    return FigureFunctions(tuple(of_gpu), tuple(of_report))
