"""Arrays and words of the text language on the command line: all optima, implicit variables, why-not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from constrint.solve.explain import together
from tests.support.clock import PATIENCE_S


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is shown within some tenths of a second says how busy the machine is."""
    monkeypatch.setattr(together, "_SECONDS", PATIENCE_S)


def written(folder: Path, text: str) -> Path:
    path = folder / "problem.constrint"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_optima_are_printed(run: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "var x[3] in 0..5\nsum(x) == 7\nmaximise x[0] * x[1]")
    code, out, err = run("solve", "--problem", path, "--all-optima", "--json")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"x_0": 3, "x_1": 4, "x_2": 0},
        {"x_0": 4, "x_1": 3, "x_2": 0},
    ]
    assert "2 solutions of 216 combinations" in err


def test_all_optima_go_with_a_file(run: Any, tmp_path: Path) -> None:
    code, _, err = run("solve", "--gpu", "h200", "--all-optima")
    assert code == 2
    assert "--all-optima goes with --problem FILE" in err
    code, _, err = run("solve", "--problem", written(tmp_path, "var x in 0..1\nx > 1"), "--all-optima")
    assert code == 1
    assert "has no solution" in err


def test_implicit_variables_take_any_name(run: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "var tile in 1..4\nTile * tile == 4")
    code, _, err = run("count", "--problem", path)
    assert code == 2
    assert "`Tile` is not declared; did you mean `tile`?" in err
    assert "--implicit-variables" in err
    code, out, _ = run("count", "--problem", path, "--implicit-variables", "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["num_valid"] == 3
    code, _, err = run("count", "--gpu", "h200", "--implicit-variables")
    assert code == 2
    assert "--implicit-variables goes with --problem FILE" in err


def test_why_not_names_the_fewest_changes(run: Any, tmp_path: Path) -> None:
    path = written(
        tmp_path, "var x[3] in 0..9\nx[0] + x[1] >= 15\nall_different(x)\ntrip: exactly(1, i in 0..2) (x[i] > 8)"
    )
    code, out, _ = run("why-not", "--problem", path, "x_0=1", "x_1=1", "x_2=3")
    assert code == 0
    assert "1 != 1 is false" in out
    assert "0 of 3 conditions hold, not exactly 1" in out
    assert "no single change is enough; fits if x_0 = 6 and x_1 = 9" in " ".join(out.split())


def test_explain_names_the_fewest_rules_that_change(run: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "var x in 0..9; var y in 0..9\nx <= 2; x >= 5\ny <= 2; y >= 4")
    code, _, err = run("explain", "--problem", path)
    assert code == 1
    text = " ".join(err.split())
    assert "instead of" in text
    assert " and " in text.partition("Nearest ways out:")[2]
