"""The pages of the documentation, which come with the package."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from constrint.errors import UsageError

#: The folders of the pages in a wheel and in a checkout.
FOLDERS = (Path(__file__).parents[1] / "docs", Path(__file__).parents[2] / "docs")


def pages() -> dict[str, Path]:
    """The pages by short names; the name of a page includes its folder if two files have the same name.

    Raises:
        UsageError: When the package has no pages.
    """
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    if folder is None:
        raise UsageError("the pages of the documentation are not installed; `constrint --help` lists the commands.")
    paths = sorted(folder.rglob("*.md"))
    counts = Counter(path.stem for path in paths)
    return {path.stem if counts[path.stem] == 1 else f"{path.parent.name}/{path.stem}": path for path in paths}


def title_of(path: Path) -> str:
    """The heading of a page."""
    with path.open(encoding="utf-8") as page:
        return page.readline().lstrip("# ").rstrip()
