"""The page as text, and its figures as Plotly reads them; the browser's tests see it drawn."""

from __future__ import annotations

import base64
import gzip
import random
import re
from functools import cache
from typing import Any

import msgspec
import pytest

from constrint.answers.question import Question, StatedProblem
from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.report import Means, Report, gather, html_of
from constrint.report.drawing import Drawing, escaped, load_figures
from constrint.report.page import render
from constrint.report.page.render import packed
from constrint.select.rank import requests

DATE = "2026-01-02"
_AS_PACKED = str.maketrans(",.", "<&")


def asked(gpu_name: str, kernel: str) -> Question:
    gpu, operation = load_gpu(gpu_name), load_kernel(kernel)
    workload = operation.default_workload(gpu)
    able, refusals = requests(operation, gpu, workload)
    problems = tuple(StatedProblem(str(workload), request.problem, (), request) for request in able)
    return Question(str(workload), problems, operation, refusals, arguments=("--gpu", gpu_name), gpu=gpu)


@cache
def two_gpus() -> Report:
    return gather([asked("h200", "gemm.pointer"), asked("mi300x", "gemm.pointer")], Means(top=4), "constrint report")


def drawings() -> list[Drawing]:
    figures, report = load_figures(), two_gpus()
    of_gpus = [drawing for gpu in report.gpus for function in figures.of_gpu for drawing in function(gpu)]
    return of_gpus + [drawing for function in figures.of_report for drawing in function(report)]


def with_colours(value: Any) -> Any:
    """A figure with a colour in the place of the style's variables."""
    if isinstance(value, str):
        return "#123456" if value.startswith("--") else value
    if isinstance(value, dict):
        return {name: with_colours(part) for name, part in value.items()}
    return [with_colours(part) for part in value] if isinstance(value, list | tuple) else value


def test_figures_have_no_property_that_plotly_does_not_know() -> None:
    figure = pytest.importorskip("plotly.graph_objects", reason="needs the extra [report]").Figure
    names = [drawing.name for drawing in drawings()]
    assert {name.partition("-")[0] for name in names} == {
        "roofline", "heat", "removed", "occupancy", "parts", "checked", "gpus", "banks",
    }  # fmt: skip
    for drawing in drawings():
        figure(with_colours(list(drawing.data)), with_colours(dict(drawing.layout)))


def test_every_figure_says_what_it_shows_and_has_a_table() -> None:
    for drawing in drawings():
        assert drawing.says
        assert drawing.alt
        if drawing.data:
            assert drawing.table is not None
            assert all(len(row) == len(drawing.table.columns) for row in drawing.table.rows)


def test_series_are_told_apart_without_colour() -> None:
    for drawing in drawings():
        bars = [trace for trace in drawing.data if trace["type"] == "bar"]
        patterns = [trace["marker"].get("pattern", {}) for trace in bars]
        fills = [(pattern.get("shape"), pattern.get("size")) for pattern in patterns]
        lines = [trace["line"]["dash"] for trace in drawing.data if trace.get("mode") == "lines"]
        symbols = [trace["marker"]["symbol"] for trace in drawing.data if "markers" in trace.get("mode", "")]
        for told in (fills, lines, symbols):
            assert len(set(told)) == len(told), drawing.name


def test_the_same_facts_make_the_same_page_but_for_its_date() -> None:
    one, again, later = html_of(two_gpus(), DATE), html_of(two_gpus(), DATE), html_of(two_gpus(), "2027-01-01")
    assert one == again
    assert one.replace(DATE, "2027-01-01") == later
    assert one.count(DATE) == 1


def test_page_is_one_file_with_a_language_a_title_and_a_policy_that_names_its_scripts() -> None:
    page = html_of(two_gpus(), DATE)
    own = page[: page.index('<script type="text/plain"')]
    assert '<html lang="en">' in own
    assert "<title>gemm.pointer m=4096 n=4096 k=4096 bf16 on H200-SXM, MI300X - constrint</title>" in own
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in own
    assert re.findall(r'(?:href="(?!#|data:,)|src=|url\()[^"]*"', own) == []
    assert page.count("<script>") == 1


def test_a_usual_page_of_four_gpus_has_less_than_2_mb() -> None:
    four = [asked(name, "gemm") for name in ("h200", "mi300x", "a100", "7900xtx")]
    page = html_of(gather(four, Means(), "constrint report"), DATE)
    assert len(page.encode()) < 2e6


def test_what_is_packed_on_a_page_of_several_gpus_is_all_there() -> None:
    report = two_gpus()
    page, drawn = html_of(report, DATE), packed_figures(html_of(report, DATE))
    places = re.findall(r'data-later="([^"]+)"', page)
    tables = [one for one in drawings() if one.data and one.table is not None and not one.is_table_open]
    assert len(places) == len(set(places)) == len(tables) + len(report.gpus)
    later = "".join(drawn[name]["later"] for name in places)
    assert later.count("<tr") == sum(len(one.table.rows) + 1 for one in tables if one.table is not None)
    # Kernels that are the same for both GPUs are said once; every parameter is said at all.
    assert all(f"<code>{p.name}</code>" in later for gpu in report.gpus for k in gpu.kernels for p in k.params)
    assert "data-later=" not in html_of(msgspec.structs.replace(report, gpus=report.gpus[:1]), DATE)


def packed_figures(page: str) -> dict[str, Any]:
    """The data of a page's figures, as `page.js` unpacks them."""
    found = re.search(r'<script type="text/plain" id="plots">([^<]*)<', page)
    assert found is not None
    data: dict[str, Any] = msgspec.json.decode(gzip.decompress(base64.b85decode(found[1].translate(_AS_PACKED))))
    return data


@pytest.mark.parametrize("number", range(6))
def test_what_is_packed_cannot_end_its_element_and_comes_back(number: int) -> None:
    data = random.Random(number).randbytes(1000 + number)
    text = packed(data)
    assert not set("<&\\/") & set(text)
    assert gzip.decompress(base64.b85decode(text.replace(",", "<").replace(".", "&"))) == data


def test_texts_are_literal_to_plotly() -> None:
    assert escaped("<a href='x'>&amp;</a>") == "&lt;a href='x'&gt;&amp;amp;&lt;/a&gt;"


@pytest.mark.parametrize(("name", "function"), [("plotly.offline", "_plotly_script"), ("jinja2", "_template")])
def test_what_is_missing_is_named_with_its_extra(name: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UsageError, match=r"constrint\[report\]"):
        getattr(render, function).__wrapped__()
