"""Puts facts, figures and Plotly's script into one HTML file that makes no network request.

Every text is escaped by the template; JSON has no `<`, `>` or `&` in it. The page's policy allows no source but the two
scripts whose hashes it names, so that nothing that slips in can run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from constrint.answers.facts import GpuFacts, Report
from constrint.errors import UsageError
from constrint.report.drawing import Drawing
from constrint.report.page.summary import candidates_table, commands, tiles
from constrint.report.registry import Figures, load_figures

if TYPE_CHECKING:
    from jinja2 import Template

EXTRA = "needs the extra [report]: pip install 'constrint[report]'"
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")


def html_of(report: Report, date: str) -> str:
    """The whole page.

    Args:
        report: The facts.
        date: The day that is written into it: the only part that the facts do not decide.

    Raises:
        UsageError: When Plotly or Jinja2 is not installed.
    """
    plotly, script = _plotly_script(), _own("page.js")
    figures = load_figures()
    gpus = [_gpu(gpu, figures, at) for at, gpu in enumerate(report.gpus, 1)]
    together = [_figure(d, "all") for function in figures.of_report for d in function(report)]
    return _template().render(
        report=report,
        date=date,
        title=_title(report),
        gpus=gpus,
        together=together,
        style=_own("style.css"),
        plotly=plotly,
        script=script,
        policy=_policy(plotly, script),
    )


def _title(report: Report) -> str:
    names = ", ".join(gpu.gpu for gpu in report.gpus)
    return report.gpus[0].title if len(report.gpus) == 1 else f"{report.operation} on {names}"


def _gpu(gpu: GpuFacts, figures: Figures, at: int) -> dict[str, Any]:
    """One GPU as the template shows it."""
    shown: dict[str, Any] = {
        "facts": gpu,
        "anchor": f"gpu-{at}",
        "figures": [_figure(drawing, f"gpu-{at}") for function in figures.of_gpu for drawing in function(gpu)],
        "commands": commands(gpu) if not gpu.refusal else [],
        "refused": [kernel for kernel in gpu.kernels if kernel.refusal],
        "infeasible": [kernel for kernel in gpu.kernels if kernel.reason],
    }
    if gpu.candidates:
        table, same, copies = candidates_table(gpu)
        shown |= {"tiles": tiles(gpu), "table": table, "same": same, "copies": copies}
    return shown


def _figure(drawing: Drawing, of: str) -> dict[str, Any]:
    """A figure as the template shows it."""
    name = f"{of}-{_NOT_IN_A_NAME.sub('-', drawing.name.lower()).strip('-')}"
    plot = {"data": list(drawing.data), "layout": {**drawing.layout, "height": drawing.height}}
    return {"name": name, "drawing": drawing, "json": json_in_html(plot) if drawing.data else ""}


def json_in_html(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it is read as HTML."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _own(name: str) -> str:
    return files("constrint.report.page").joinpath(name).read_text(encoding="utf-8").strip()


@cache
def _plotly_script() -> str:
    """Plotly's script as its package carries it: the only bundle that it has."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError(f"a report is drawn with Plotly, which is not installed; it {EXTRA}") from None
    # A script element ends at its end tag, wherever that stands; a hash is of what the browser reads.
    text: str = get_plotlyjs()
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _template() -> Template:
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ImportError:
        raise UsageError(f"a report's page is made with Jinja2, which is not installed; it {EXTRA}") from None
    texts: Mapping[str, str] = {name: _own(name) for name in ("page.html.j2", "parts.html.j2")}
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2")


def _policy(*scripts: str) -> str:
    """What a browser may load: these scripts and nothing from a network."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
