"""`--plot`: the roofline and the heat map in the terminal, for people alone."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from constrint.answers.terminal import SHADES, width_of
from tests.cli.conftest import Call
from tests.support.terminal import shown_by

GEMM = ("--gpu", "mi300x", "--kernel", "gemm.pointer")


def test_both_figures_stand_below_the_ranking(run: Call) -> None:
    code, out, err = run("solve", *GEMM, "--plot")
    figures = out[out.index("Roofline: ") :].splitlines()
    assert (code, err) == (0, "")
    assert out.index("best: ") < out.index("Roofline: ") < out.index("Heat map of gemm.pointer: ")
    assert max(map(len, figures)) <= 80
    assert "\x1b" not in out
    rows = [line for line in figures if line[7:8] == "|"]
    assert sum(row[8:].count("1") for row in rows) == 1  # the best candidate, below the roof
    at = next(row.index("1", 8) for row in rows if "1" in row[8:])
    assert any(row[at : at + 1] in "/-" for row in rows[: next(i for i, r in enumerate(rows) if "1" in r[8:])])
    assert "5.3 TB/s of DRAM" in out


def test_a_kernel_of_bytes_has_a_map_alone(run: Call) -> None:
    example = Path(__file__).parents[2] / "examples" / "softmax" / "softmax.py"
    code, out, _ = run("solve", "--gpu", "h200", "--kernel", f"{example}:SPEC", "--plot")
    assert code == 0
    assert "Roofline" not in out
    assert "Heat map of softmax" in out


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_gets_lines_that_fit(columns: int) -> None:
    code, text = shown_by("solve", *GEMM, "--plot", columns=columns)
    assert code == 0
    assert max(map(width_of, text[text.index("Roofline: ") :].splitlines())) <= columns


def test_colour_stands_in_a_terminal_alone_and_no_color_is_respected() -> None:
    with mock.patch("constrint.answers.terminal.is_styled", return_value=True), mock.patch.dict(os.environ):
        from constrint.answers.terminal import styled

        assert styled(SHADES[0], "x") == f"{SHADES[0]}x\x1b[0m"
    with mock.patch("sys.stdout.isatty", return_value=True), mock.patch.dict(os.environ, {"NO_COLOR": "1"}):
        assert styled(SHADES[0], "x") == "x"


def test_a_report_is_drawn_and_no_page_is_written(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("report", *GEMM, "--gpu", "h200", "--plot")
    assert code == 0
    assert out.count("Roofline: ") == out.count("Heat map of ") == 2
    assert not list(tmp_path.iterdir())
    code, out, _ = run("report", *GEMM, "--plot", "--out", "page.html")
    assert code == 0
    assert "page.html: " in out
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("solve", *GEMM, "--plot", "--json"), "--plot draws for people"),
        (("solve", *GEMM, "--plot", "--format", "csv"), "--plot draws for people"),
        (("solve", *GEMM, "--plot", "--all"), "--plot draws the ranking of a kernel"),
        (("report", *GEMM, "--plot", "--json"), "--plot draws for people"),
    ],
)
def test_programs_get_no_figures(run: Call, words: tuple[str, ...], told: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert told in err
