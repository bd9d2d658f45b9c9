"""Tables of the README and of the page of figures are what `python -m benchmarks.figures` makes of the results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import GPUS, LAYERS, PICTURE, README, RESULTS, ROOT, TABLES, Ratios, layers, used
from benchmarks.harness.table import read_rows

GUIDES = ("gemm.md", "layers.md")
#: Lines of a guide, at most: tables of measurements are on the page of figures.
MOST_LINES = 120


def between(path: Path, name: str) -> list[str]:
    found = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end of {name} -->", path.read_text(encoding="utf-8"), re.S)
    assert found is not None, f"{path} has no place for {name}"
    return found[1].splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_a_page_shows_what_the_command_prints(name: str) -> None:
    path, lines = TABLES[name]
    assert between(path, name) == lines(), "python -m benchmarks.figures --write"


def test_the_command_prints_every_table() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.figures"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    for path, lines in TABLES.values():
        assert path.name in ran.stdout
        assert all(line in ran.stdout for line in lines())


def test_ratios_are_those_of_the_files() -> None:
    rows = read_rows(RESULTS / "h100" / "gemm_used.csv")
    mine = [float(r["ratio"]) for r in rows if (r["kind"], r["who"], r["how"]) == ("plain", "ours", "cold")]
    assert used("h100", ("plain",), "cold").values == mine
    assert Ratios([4.0, 1.0, 2.0]).brief == "2.00 (1.00)"
    assert Ratios([]).brief == "not measured"
    assert len(layers("same_forward").values) == len(layers("same_both").values) > 100
    assert {path.parent.name for path in RESULTS.glob("*/gemm_used.csv")} == set(GPUS)
    assert (RESULTS / LAYERS).is_file()


def test_guides_are_short_and_the_readme_shows_a_picture_that_there_is() -> None:
    for name in GUIDES:
        assert len((ROOT / "docs" / "guides" / name).read_text(encoding="utf-8").splitlines()) < MOST_LINES
    assert PICTURE.relative_to(ROOT).as_posix() in README.read_text(encoding="utf-8")
    assert PICTURE.read_bytes().startswith(b"\x89PNG")


def test_the_citation_names_the_version_free_facts_of_the_package() -> None:
    import yaml

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["license"] == "Apache-2.0"
    assert cited["title"].startswith("constrint")
    assert {"cff-version", "message", "authors", "type"} <= cited.keys()
