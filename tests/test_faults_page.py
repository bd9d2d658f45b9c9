"""The page of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanations" / "faults.md"
NAMED = re.compile(r"`((?:[a-z_]+/)*test_[a-z_]+\.py)`(?:: ((?:`test_[a-z0-9_]+`(?:, )?)+))?")


def test_every_test_of_the_page_exists() -> None:
    found = 0
    for path, names in NAMED.findall(PAGE.read_text()):
        text = (ROOT / "tests" / path).read_text()
        for name in re.findall(r"`(test_[a-z0-9_]+)`", names):
            assert f"def {name}(" in text, (path, name)
            found += 1
    assert found > 50


def test_every_row_names_a_commit() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    faults = [row for row in rows if not row.startswith("| fault |")]
    assert len(faults) > 30
    for row in faults:
        assert re.search(r"\| ([0-9a-f]{8}(, )?)+ \|$", row), row
