"""`constrint docs`: the pages in the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import Call

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_has_a_name_of_its_own(run: Call) -> None:
    code, out, _ = run("docs", "--json")
    listed = {page["name"]: page["title"] for page in json.loads(out)["pages"]}
    assert code == 0
    assert len(listed) == len(list((ROOT / "docs").rglob("*.md")))
    assert listed["solver"] == "The solver"


def test_a_page_is_printed_without_what_tests_read(run: Call) -> None:
    code, out, _ = run("docs", "install")
    assert code == 0
    assert out.startswith("# Install\n")
    assert "```sh\npip install constrint\n```" in out


def test_a_page_that_is_not_there(run: Call) -> None:
    code, out, err = run("docs", "jsn")
    assert (code, out) == (2, "")
    assert "json" in err


def test_texts_of_the_command_name_pages_that_there_are(run: Call) -> None:
    names = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    for file in (ROOT / "constrint").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"`constrint docs ([a-z_]+)`", text)) <= names, file
        for page in re.findall(r"\bdocs/(?:\w+/)*(\w+)\.md", text):
            assert page in names, file
