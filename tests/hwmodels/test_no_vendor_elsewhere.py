"""Nothing outside the vendors' folders branches on who made a GPU: it asks for terms, traits, figures and structs."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "constrint"
#: A comparison of the vendor's name, and a test for a vendor's struct.
BRANCH = re.compile(r"\.vendor\s*(==|!=|\bin\b|\bnot in\b)|isinstance\([^)]*\b(NvidiaSm|AmdCu)\b")


def test_no_file_outside_the_vendors_branches_on_a_vendor() -> None:
    branches = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "vendors" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if BRANCH.search(line)
    ]
    assert branches == []


def test_the_search_would_see_one() -> None:
    assert BRANCH.search('if gpu.vendor == "amd":')
    assert BRANCH.search("return isinstance(gpu.sm, NvidiaSm)")
