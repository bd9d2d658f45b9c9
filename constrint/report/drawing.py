"""What a figure consists of: Plotly's data and layout, the same as a table, and what both say in words.

Colours are names of the page's CSS variables (`--c1`), which the page puts in when it draws and again when the theme
changes. Plotly reads a little HTML in its texts, so every text of others goes through `escaped`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from constrint.answers.facts import GpuFacts, Report

#: Colours of series, markers and fill patterns: a series is told apart by any one of them alone.
COLOURS = tuple(f"--c{number}" for number in range(1, 9))
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x", "hexagon")
PATTERNS = ("", "/", "x", "-", "\\", "|", "+", ".")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MICRO = 1e6
Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        title: Its title, with the unit.
        places: Digits behind the point of a number.
        is_text: Whether it holds texts.
        is_code: Whether these are code, such as a configuration.
        meaning: What the title stands for, in a phrase.
    """

    title: str
    places: int = 0
    is_text: bool = False
    is_code: bool = False
    meaning: str = ""

    def shown(self, cell: Cell) -> str:
        """A cell as text."""
        if cell is None:
            return "-"
        if isinstance(cell, str):
            return cell
        return f"{cell:,.{self.places}f}" if isinstance(cell, float) else f"{cell:,}"


@dataclass(frozen=True)
class Table:
    """A table with a caption; rows have a cell for each column, and the marked ones are drawn as excluded."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marked: frozenset[int] = frozenset()
    is_sortable: bool = True


@dataclass(frozen=True)
class Drawing:
    """One figure.

    Args:
        name: A name that is an identifier within a page, `roofline`.
        title: Its heading.
        says: What it says, in a sentence or two that stand above it.
        alt: What is to be seen, for who does not see it.
        data: Plotly's traces.
        layout: Plotly's layout.
        height: Pixels.
        table: The same as a table.
        note: What has to be known to read it.
        is_open: Whether it is shown at once, or when someone asks for it.
        is_table_open: Whether its table is.
        short: Its heading where there is little room; the title if empty.
    """

    name: str
    title: str
    says: str
    alt: str
    data: Sequence[Mapping[str, Any]] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 380
    table: Table | None = None
    note: str = ""
    is_open: bool = True
    is_table_open: bool = False
    short: str = ""


def escaped(text: object) -> str:
    """A text as Plotly shows it literally: it reads tags and entities."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def lines(*texts: str) -> str:
    """Escaped texts as lines of a hover label; long ones are broken."""
    return "<br>".join(part for text in texts for part in _broken(text))


def _broken(text: str, width: int = 60) -> Iterable[str]:
    import textwrap

    return [escaped(part) for part in textwrap.wrap(text, width)] or [""]


def config_text(config: Mapping[str, object]) -> str:
    """`tile_m=128 num_warps=4`."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with a title, in the page's colours."""
    of_title = {"text": escaped(title), "standoff": 8}
    return {"title": of_title, "automargin": True, "gridcolor": "--grid", "zerolinecolor": "--grid", **options}


def filled(at: int) -> dict[str, Any]:
    """The fill of a series' bars: a colour and a pattern over it, either of which tells it apart."""
    return filled_with(COLOURS[at % len(COLOURS)], PATTERNS[at % len(PATTERNS)])


def filled_with(colour: str, pattern: str) -> dict[str, Any]:
    """A fill of a colour with a pattern over it; no pattern where it is empty."""
    over = {"shape": pattern, "fillmode": "overlay", "fgcolor": "--paper", "fgopacity": 1, "size": 7, "solidity": 0.25}
    return {"color": colour, "pattern": over, "line": {"color": "--paper", "width": 0.5}}


def limits_text(limited_by: str, smem: str) -> str:
    """What limits an SM's blocks in the vendor's words: `registers+smem` is "registers and LDS"."""
    return " and ".join(smem if name == "smem" else name for name in limited_by.split("+"))


def percent(share: float) -> str:
    """A share in percent, with as many digits as tell it from nothing."""
    if share <= 0.0 or share >= 0.01:
        return f"{share:.0%}" if share >= 0.1 or share <= 0.0 else f"{share:.1%}"
    return f"{100.0 * share:.2g}%"


def rate_text(rate: float) -> str:
    """A rate with at least two digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def counted(number: int, what: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def microseconds(seconds: float) -> str:
    """A time as it is said: three digits and more."""
    return f"{seconds * MICRO:,.1f} us"


OfGpu = Callable[[GpuFacts], Iterable[Drawing]]
OfReport = Callable[[Report], Iterable[Drawing]]


@dataclass(frozen=True)
class Figures:
    """The functions that draw, in the order of the page.

    Args:
        of_gpu: Those that draw one GPU.
        of_report: Those that draw all of them together.
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


def load_figures() -> Figures:
    """Every figure that there is a file of."""
    folder = import_module("constrint.report.figures")
    for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        import_module(module.name)
    of_gpu = [function for _, (_, function) in sorted(_OF_GPU.items(), key=lambda item: (item[1][0], item[0]))]
    of_report = [function for _, (_, function) in sorted(_OF_REPORT.items(), key=lambda item: (item[1][0], item[0]))]
    return Figures(tuple(of_gpu), tuple(of_report))
