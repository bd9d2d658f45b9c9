"""Render facts, figures and Plotly's script into one HTML file that makes no network request.

The template escapes every text. Plotly's script and the figures are packed (`packed`), which makes a page of 2 MB of
one of 5, and so are, where there are several GPUs, the tables beside figures and the kernels; `page.js` unpacks them.
The page's policy allows only the two scripts whose hashes it names, so that injected code cannot run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from constrint.answers.facts import CandidateFacts, FigureFacts, GpuFacts, Report, Value
from constrint.answers.table import counted, pairs_text
from constrint.answers.terminal import LAID_OUT, printable
from constrint.errors import UsageError
from constrint.report.drawing import (
    MICRO,
    Cell,
    Drawing,
    FigureColumn,
    FigureFunctions,
    FigureTable,
    limits_text,
    load_figures,
    rate_text,
)

if TYPE_CHECKING:
    from jinja2 import Template

EXTRA = "needs the extra [report]: pip install 'constrint[report]'"
_READ_AS_TEXT = str.maketrans("<&", ",.")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")


def html_of(report: Report, date: str) -> str:
    """The whole page.

    Args:
        report: The facts.
        date: The day in the footer, the only part that the facts do not determine.

    Raises:
        UsageError: When Plotly or Jinja2 is not installed.
    """
    report = msgspec.convert(_printable(msgspec.to_builtins(report)), Report)
    plotly, script = _plotly_script(), _own("page.js")
    figures = load_figures()
    is_packed = len(report.gpus) > 1
    gpus = [_gpu(gpu, figures, at, is_packed=is_packed) for at, gpu in enumerate(report.gpus, 1)]
    _refer_to_the_first(gpus)
    together = [_figure(d, "all") for function in figures.of_report for d in function(report)]
    plots = {figure["name"]: figure["plot"] for each in gpus for figure in each["figures"] if figure["plot"]}
    plots |= {figure["name"]: figure["plot"] for figure in together if figure["plot"]}
    if is_packed:
        plots |= {f"{gpu['anchor']}-kernels": {"later": _part("kernels", gpu["kernels"])} for gpu in gpus}
    return _template().render(
        report=report,
        date=date,
        title=_title(report),
        gpus=gpus,
        together=together,
        is_packed=is_packed,
        style=_own("style.css"),
        plotly=_packed_plotly(),
        plots=packed(msgspec.json.encode(_shortened(plots))),
        script=script,
        policy=_policy(plotly, script),
    )


def html_of_drawings(title: str, drawings: Sequence[Drawing], command: str, date: str) -> str:
    """A page of figures alone.

    Args:
        title: The page's title.
        drawings: The figures.
        command: The command that makes the page again.
        date: The day in the footer.

    Raises:
        UsageError: When Plotly or Jinja2 is not installed.
    """
    from constrint import __version__

    plotly, script = _plotly_script(), _own("page.js")
    figures = [_figure(drawing, "all") for drawing in drawings]
    return _template("drawings.html.j2").render(
        title=printable(title, LAID_OUT),
        version=__version__,
        figures=figures,
        plots=packed(msgspec.json.encode(_shortened({one["name"]: one["plot"] for one in figures if one["plot"]}))),
        command=printable(command, LAID_OUT),
        date=date,
        style=_own("style.css"),
        plotly=_packed_plotly(),
        script=script,
        policy=_policy(plotly, script),
    )


def _printable(value: Any) -> Any:
    """The value with all texts in it printable, so that none is read in another direction, or by a terminal."""
    if isinstance(value, str):
        return printable(value, LAID_OUT)
    if isinstance(value, dict):
        return {_printable(key): _printable(inner) for key, inner in value.items()}
    return [*map(_printable, value)] if isinstance(value, list | tuple) else value


def _shortened(value: Any) -> Any:
    """A figure's data with numbers of seven digits, more than are seen: digits hardly pack."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    return [*map(_shortened, value)] if isinstance(value, list | tuple) else value


def _title(report: Report) -> str:
    names, first = ", ".join(gpu.gpu for gpu in report.gpus), report.gpus[0]
    if len(report.gpus) == 1:
        return first.title
    sizes = f"{pairs_text(first.sizes)} {first.dtype}" if _is_one_workload(report.gpus) else ""
    return " ".join(f"{report.operation} {sizes} on {names}".split())


def _is_one_workload(gpus: Sequence[GpuFacts]) -> bool:
    """Whether all GPUs are asked for the same sizes and type."""
    return all((gpu.sizes, gpu.dtype) == (gpus[0].sizes, gpus[0].dtype) for gpu in gpus)


def _gpu(gpu: GpuFacts, figures: FigureFunctions, at: int, *, is_packed: bool) -> dict[str, Any]:
    """The template's values of one GPU."""
    shown: dict[str, Any] = {
        "facts": gpu,
        "anchor": f"gpu-{at}",
        "figures": [
            _figure(drawing, f"gpu-{at}", is_packed=is_packed)
            for function in figures.of_gpu
            for drawing in function(gpu)
        ],
        "commands": commands(gpu) if not gpu.refusal else [],
        "refused": [kernel for kernel in gpu.kernels if kernel.refusal],
        "infeasible": [kernel for kernel in gpu.kernels if kernel.reason],
    }
    if gpu.candidates:
        table, same, copies = candidates_table(gpu)
        shown |= {"tiles": tiles(gpu), "table": table, "same": same, "copies": copies}
    return shown


def _refer_to_the_first(gpus: Sequence[dict[str, Any]]) -> None:
    """Let a GPU's kernel with the same parameters as an earlier GPU's refer to that GPU instead of saying it again."""
    first: dict[bytes, dict[str, Any]] = {}
    for gpu in gpus:
        gpu["kernels"] = []
        for kernel in gpu["facts"].kernels:
            if kernel.params or kernel.summary:
                key = msgspec.json.encode((kernel.kernel, kernel.summary, kernel.params))
                before = first.setdefault(key, gpu)
                gpu["kernels"].append((kernel, None if before is gpu else before))


def _figure(drawing: Drawing, of: str, *, is_packed: bool = False) -> dict[str, Any]:
    """The template's values of a figure. A packed one has the table that says the same in its plot's data."""
    name = f"{of}-{_NOT_IN_A_NAME.sub('-', drawing.name.lower()).strip('-')}"
    if not drawing.data:
        return {"name": name, "drawing": drawing, "plot": None, "is_packed": False}
    plot: dict[str, Any] = {"data": list(drawing.data), "layout": {**drawing.layout, "height": drawing.height}}
    is_packed = is_packed and drawing.table is not None and not drawing.is_table_open
    if is_packed:
        plot["later"] = _part("table", drawing.table)
    return {"name": name, "drawing": drawing, "plot": plot, "is_packed": is_packed}


def packed(data: bytes) -> str:
    """Bytes as text for a script element, compressed, in which nothing is read as HTML.

    It is gzip in base 85, in the alphabet of Python's `base64.b85encode` with `,` for `<` and `.` for `&`.
    """
    return base64.b85encode(gzip.compress(data, mtime=0)).decode().translate(_READ_AS_TEXT)


@cache
def _packed_plotly() -> str:
    return packed(_plotly_script().encode())


@cache
def _own(name: str) -> str:
    """A file of the page, without comments, indentation and, in the style, blanks beside braces and semicolons."""
    text = files("constrint.report.page").joinpath(name).read_text(encoding="utf-8").strip()
    lines = (line for each in text.splitlines() if (line := each.strip()) and not line.startswith("//"))
    return re.sub(r"\s*([{};])\s*", r"\1", " ".join(lines)) if name.endswith(".css") else "\n".join(lines)


@cache
def _plotly_script() -> str:
    """The script that Plotly's package contains."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError(f"a report is drawn with Plotly, which is not installed; it {EXTRA}") from None
    # An end tag anywhere ends a script element; the hash covers the text that the browser reads.
    text: str = get_plotlyjs()
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _part(macro: str, value: Any) -> str:
    """The text that a macro of the page's parts makes of a value."""
    return str(getattr(_template("parts.html.j2").module, macro)(value))


@cache
def _template(name: str = "page.html.j2") -> Template:
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ImportError:
        raise UsageError(f"a report's page is made with Jinja2, which is not installed; it {EXTRA}") from None
    texts: Mapping[str, str] = {one: _own(one) for one in ("page.html.j2", "drawings.html.j2", "parts.html.j2")}
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)


def _policy(*scripts: str) -> str:
    """The content security policy: these scripts, and nothing from a network."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@dataclass(frozen=True)
class PageCommand:
    """A command to copy, with its purpose."""

    does: str
    text: str


def tiles(gpu: GpuFacts) -> list[tuple[str, str, str]]:
    """The answer in numbers: title, value and remark."""
    best = gpu.candidates[0]
    figures, terms = best.figures, gpu.terms
    shown = [
        (
            "time",
            f"{figures.seconds * MICRO:,.1f} us",
            "modelled" if best.compiled is None else "modelled, as compiled",
        ),
        ("rate", f"{rate_text(gpu.rate_of(best))} {gpu.rate_unit}", f"{figures.roofline_share:.0%} of the roofline"),
        ("bound by", figures.bound_by, ""),
    ]
    if figures.warps_per_sm is not None:
        resident = f"{figures.warps_per_sm} of {gpu.max_warps_per_sm} {terms.warps}"
        limit = limits_text(figures.limited_by, terms.smem)
        blocks = f"{counted(figures.blocks_per_sm or 0, 'block')} {terms.a_sm}, limited by {limit}"
        shown.append(("occupancy", resident, blocks))
    if best.measured is not None:
        of_model = figures.seconds / best.measured.median_s - 1
        shown.append(("measured", f"{best.measured.median_s * MICRO:,.1f} us", f"the model is off by {of_model:+.0%}"))
    shown.append(("valid", f"{gpu.num_valid:,}", f"of {counted(gpu.num_product, 'configuration')}"))
    return shown


def commands(gpu: GpuFacts) -> list[PageCommand]:
    """The next commands for a reader."""
    shown = []
    if gpu.candidates:
        shown.append(PageCommand("rank them again", shlex.join(("constrint", "solve", *gpu.arguments))))
        best = gpu.candidates[0]
        kernel = _without_kernel(gpu.arguments)
        settings = [word for name, value in best.config.items() for word in ("--set", f"{name}={value}")]
        words = ("--kernel", _named(gpu, best), *settings)
        shown.append(
            PageCommand("compile the best one (no GPU needed)", shlex.join(("constrint", "verify", *kernel, *words)))
        )
    shown.append(PageCommand("say what every rule removes", shlex.join(("constrint", "explain", *gpu.arguments))))
    return shown


def _named(gpu: GpuFacts, best: CandidateFacts) -> str:
    """The value of `--kernel` for an implementation: the file of a user's kernel, else the full name."""
    named = _value_of(gpu.arguments, "--kernel")
    return named if ":" in named else best.kernel


def _value_of(arguments: tuple[str, ...], option: str) -> str:
    return dict(pairwise(arguments)).get(option, "")


def _without_kernel(arguments: tuple[str, ...]) -> list[str]:
    """The arguments without the kernel and the user's rules, which the best configuration replaces."""
    left: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("--kernel", "--set", "--where", "--dialect"):
            next(words, None)
        else:
            left.append(word)
    return left


def candidates_table(gpu: GpuFacts) -> tuple[FigureTable, dict[str, Value], list[str]]:
    """The table of candidates, the parameters with one value in all rows, and the configuration of each row."""
    names = list(dict.fromkeys(name for c in gpu.candidates for name in c.config))
    values = {name: {repr(c.config.get(name)) for c in gpu.candidates} for name in names}
    varying = [name for name in names if len(values[name]) > 1]
    same = {name: gpu.candidates[0].config[name] for name in names if name not in varying}
    kernels = {c.kernel for c in gpu.candidates}
    columns = [FigureColumn("#", meaning="place in the ranking"), *_time_columns(gpu)]
    columns += [FigureColumn("kernel", is_text=True)] if len(kernels) > 1 else []
    columns += [FigureColumn(name, is_text=_is_text(gpu, name), meaning=_meaning(gpu, name)) for name in varying]
    columns += _block_columns(gpu)
    rows = tuple(_row(gpu, candidate, len(kernels) > 1, varying) for candidate in gpu.candidates)
    copies = [pairs_text(c.config) or c.kernel for c in gpu.candidates]
    caption = f"The best {counted(len(gpu.candidates), 'configuration')}, by modelled time"
    return FigureTable(caption, tuple(columns), rows), same, copies


def _is_text(gpu: GpuFacts, name: str) -> bool:
    return any(type(c.config.get(name, 0)) not in (int, float) for c in gpu.candidates)


def _meaning(gpu: GpuFacts, name: str) -> str:
    return next((p.meaning for kernel in gpu.kernels for p in kernel.params if p.name == name), "")


def _time_columns(gpu: GpuFacts) -> list[FigureColumn]:
    return [
        FigureColumn("us", places=1, meaning="modelled time in microseconds"),
        FigureColumn(gpu.rate_unit, places=1, meaning="rate that follows from the time"),
        FigureColumn("roof %", places=0, meaning="share of the roofline"),
        FigureColumn("bound", is_text=True, meaning="what binds the time"),
    ]


def _block_columns(gpu: GpuFacts) -> list[FigureColumn]:
    terms = gpu.terms
    return [
        FigureColumn(terms.smem if len(terms.smem) < 6 else "smem", meaning=f"bytes of {terms.smem} a block"),
        FigureColumn("regs", meaning="registers a thread"),
        FigureColumn("spill %", places=0, meaning="the chance that registers go to memory"),
        FigureColumn("blocks", meaning=f"blocks resident {terms.a_sm}"),
        FigureColumn(terms.warps, meaning=f"resident {terms.a_sm}"),
        FigureColumn("limit", is_text=True, meaning="what limits the blocks"),
        FigureColumn("variants", meaning="configurations that the model cannot tell apart"),
    ]


def _row(gpu: GpuFacts, candidate: CandidateFacts, is_named: bool, varying: list[str]) -> tuple[Cell, ...]:
    figures: FigureFacts = candidate.figures
    values: list[Any] = [candidate.config.get(name) for name in varying]
    is_kernel = figures.blocks_per_sm is not None
    return (
        candidate.place,
        figures.seconds * MICRO,
        gpu.rate_of(candidate),
        100.0 * figures.roofline_share,
        figures.bound_by,
        *([candidate.kernel] if is_named else []),
        *(value if value is None or type(value) in (int, float, str) else str(value) for value in values),
        figures.smem_bytes,
        figures.registers_per_thread,
        100.0 * figures.spill_chance if is_kernel else None,
        figures.blocks_per_sm,
        figures.warps_per_sm,
        limits_text(figures.limited_by, gpu.terms.smem) or None,
        candidate.num_variants,
    )
