"""Growth of counts is read from results by family and size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.solver import growth
from benchmarks.solver.classics import problems
from constrint.model import parse

TABLE = """case,backend,ms,min_ms,answer
a * b == c * d to 40,native,1.2,1,6704
a * b == c * d to 80,native,9,8,31616
"x^3 + y^3 = z^3 to 10^5",auto,1000,1000,limit
"""


def test_growth_is_printed_beside_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "search.csv"
    table.write_text(TABLE)
    assert growth.families(table) == {"a * b == c * d": [(40, 1.0, 6704), (80, 8.0, 31616)]}
    monkeypatch.setattr("sys.argv", ["growth", "--results", str(table)])
    growth.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert "8.00" in line
    assert "allowed  5.49 more" in line


def test_there_are_sixty_classics_and_all_are_read() -> None:
    named = dict(problems())
    assert len(named) == 60
    for text in named.values():
        assert parse(text).constraints
