"""Documents link to files and headings that there are, and name every extra."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/results/**/*.md", "constrint/hwmodels/data/*.md")
    for path in ROOT.glob(pattern)
)
#: Pages that are made while the site is built: each is a folder, or a file without its suffix.
GENERATED = (
    "docs/gallery",
    "docs/reference/api/",
    "docs/reference/cli",
    "docs/reference/kernels",
    "docs/reference/parameters",
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"^ *```.*?^ *```|`[^`\n]*`(?!\])", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", prose):
        path = (document.parent / target).resolve() if target else document
        if str(path.relative_to(ROOT)).startswith(GENERATED):
            continue
        assert path.exists(), target
        if heading and path.suffix == ".md":
            assert heading in headings_of(path), f"{target}#{heading}"


def test_the_install_page_names_every_extra() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^\[project\.optional-dependencies\]\n(.*?)\n\n", project, flags=re.MULTILINE | re.DOTALL)
    page = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    for extra in re.findall(r"^([a-z]+) = ", extras, flags=re.MULTILINE):
        assert f"constrint[{extra}]" in page, extra


@cache
def headings_of(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}
