"""The order in which `constrint solve` prints solutions of a problem, and what it prints where there are too many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from constrint.solve import Limits


def written(folder: Path, text: str) -> Path:
    path = folder / "problem.constrint"
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(run: Any, *arguments: object) -> list[dict[str, Any]]:
    code, out, _ = run("solve", *arguments, "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_the_first_solutions_are_the_first_in_declared_order(run: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "var x in 0..20000; var y in 1..3; x == 20000 - 5000 * y")
    code, out, _ = run("solve", "--problem", path, "--top", 2, "--json")
    assert code == 0
    assert json.loads(out)["solutions"] == [{"x": 5000, "y": 3}, {"x": 10000, "y": 2}]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("var x in {-9223372036854775808, 5, 7}; maximise x", [7, 5, -(2**63)]),
        ("var x in {9223372036854775808, 5}; soft x < 6 weight 9223372036854775807", [5, 2**63]),
        ("var x in 0..3; minimise 6 // x", [3, 2, 1, 0]),
        ("var x in 1..3; soft x > 1 weight 9223372036854775807; soft x > 2 weight 9223372036854775807", [3, 2, 1]),
    ],
    ids=["least of 64 bits", "beyond 64 bits", "no value", "weights"],
)
def test_all_solutions_come_best_first_whatever_their_numbers(
    run: Any, tmp_path: Path, text: str, order: list[int]
) -> None:
    assert [row["x"] for row in rows_of(run, "--problem", written(tmp_path, text), "--all")] == order


def test_too_many_to_list_are_printed_as_they_are_found(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over after the third look at the clock, whatever the machine does."""
    path = written(tmp_path, "var a in 1..4000; var b in 1..4000; var c in 1..4000; a * b % (c + 1) != 7")
    looks: list[str] = []

    def reason(self: object) -> str:
        looks.append("")
        return "the time is over" if len(looks) > 5 else ""

    monkeypatch.setattr("constrint.cli.run.Run.reason", reason)
    monkeypatch.setattr("constrint.cli.run.Run.limits", lambda self, share=1.0: Limits(max_cells=1 << 20))
    code, out, err = run("solve", "--problem", path, "--all", "--max-seconds", 1, "--json")
    *rows, last = map(json.loads, out.splitlines())
    assert code == 1
    assert rows[0] == {"a": 1, "b": 1, "c": 1}
    assert last == {"stopped": {"num_printed": len(rows), "num_asked": None, "why": "the time is over"}}
    assert len(rows) > 100
    assert "as they are found" in err
