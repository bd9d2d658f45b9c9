"""Commands on problems whose values are no integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
var scale in {0.5, 1.5, 2}
var layout in {"row", "column", none}
var cached in {true, false}
var `step` in {16, 32}
scale * `step` + 0.5 <= 32.5
layout == "row" or scale in {1.5, 2}
cached -> `step` == 32 and layout != none
maximise `step`
"""
SPACE = {
    "params": {"scale": [0.5, 1.5, 2], "layout": ["row", "column", None], "cached": [True, False], "step": [16, 32]},
    "restrictions": "scale * step <= 32 and (layout == 'row' or scale ** 0.5 > 1)",
}


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "values.constrint"
    path.write_text(PROBLEM)
    return path


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "values.json"
    path.write_text(json.dumps(SPACE))
    return path


def test_solutions_hold_values(run: Any, problem: Path, space: Path) -> None:
    code, out, _ = run("solve", "--problem", problem, "--all", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(lines) == 9
    assert lines[0] == {"scale": 0.5, "layout": "row", "cached": True, "step": 32}
    assert {"scale": 2, "layout": None, "cached": False, "step": 16} in lines
    code, out, _ = run("count", "--space", space)
    assert (code, out.split(": ")[1].strip()) == (0, "16 of 36 combinations")
    code, out, _ = run("solve", "--space", space, "--json", "--top", "1")
    assert json.loads(out)["solutions"] == [{"scale": 0.5, "layout": "row", "cached": True, "step": 16}]
    _, out, _ = run("sample", "--problem", problem, "--count", "9", "--seed", "1")
    assert any(line.split() == ["2", "none", "false", "16"] for line in out.splitlines())


def test_values_are_given_on_the_command_line(run: Any, problem: Path, space: Path) -> None:
    _, out, _ = run("count", "--problem", problem, "--set", "scale=0.5", "--set", "cached=true")
    assert ": 1 of" in out
    _, out, _ = run("count", "--problem", problem, "--set", "layout=row,none", "--where", "scale < 1.75")
    assert ": 5 of" in out
    code, out, _ = run("explain", "--problem", problem)
    assert code == 0
    assert "0.5 1.5 2" in out
    code, out, err = run("explain", "--problem", problem, "--set", "cached=true", "--where", "layout == none")
    assert "cannot hold together" in out + err
    _, out, _ = run("why-not", "--space", space, "scale=2", "layout=column", "cached=false", "step=32")
    assert "fits if step <= 16" in out
    code, _, err = run("count", "--problem", problem, "--set", "layout=diagonal")
    assert code == 2
    assert "diagonal: it takes" in err
