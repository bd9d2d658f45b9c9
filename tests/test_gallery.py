"""The gallery of the site: five reports are made, each one page that loads nothing."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.needs import needs_triton

pytest.importorskip("mkdocs", reason="needs the tools of the site")
from docs.hooks import gallery


def test_the_page_leads_to_all_reports_by_their_commands() -> None:
    text = gallery.page()
    assert len(gallery.REPORTS) == 5
    for name, title, _, words in gallery.REPORTS:
        assert f"[{title}](gallery/{name}.html)" in text
        assert f"`constrint report {words}`" in text
        assert shlex.split(words)[0] == "--gpu"


@pytest.mark.slow
@needs_triton
def test_each_report_is_a_page_of_its_own() -> None:
    pages = dict(gallery.reports())
    assert list(pages) == [f"gallery/{name}.html" for name, *_ in gallery.REPORTS]
    for page in pages.values():
        assert page.startswith("<!doctype html>")
        assert not re.search(r"<(?:script|img|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//", page)
    assert "tile_m &gt;= 512" in pages["gallery/nothing.html"]
    assert "MI355X" in pages["gallery/three.html"]
    assert "attention" in pages["gallery/attention.html"]
