"""The pages that list or count the GPUs are what the command prints today."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.attacks import called
from constrint.hwmodels import list_gpus

ROOT = Path(__file__).parents[2]


def test_the_table_of_the_gpus_is_what_the_command_prints() -> None:
    table = [line for line in (ROOT / "docs" / "reference" / "gpus.md").read_text().splitlines() if line[:1] == "|"]
    columns = ",".join(re.findall(r"[a-z0-9_]+", table[0]))
    code, out, err = called("gpus", "--group", "--format", "markdown", "--columns", columns)
    assert (code, err) == (0, "")
    assert table == out.splitlines(), "write the command's output into docs/reference/gpus.md"


def test_the_readme_counts_the_gpus() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"models {len(list_gpus())} NVIDIA and AMD GPUs" in text
