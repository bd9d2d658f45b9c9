"""Files and pages that hold what was judged: the held-against file of the package, the pages of figures."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.elsewhere.data import QUANTISES, sources
from benchmarks.elsewhere.judge import CLASSES, SMALL, Judged, by_gpu_and_type, figures, groups
from constrint.kernels.gemm.measured import HELD_FILE

ROOT = Path(__file__).parents[2]
PAGE, FIGURES = ROOT / "docs" / "explanations" / "elsewhere.md", ROOT / "docs" / "figures.md"
PICTURE = PAGE.with_suffix(".png")
#: Significant digits of figures.
DIGITS = 3


def today() -> str:
    """The date that pages and files state."""
    return datetime.date.today().isoformat()


def write_held(rows: Sequence[Judged], date: str) -> None:
    """Write what the model's times were held against, by GPU, type and class of size."""
    of_all: dict[str, list[dict[str, Any]]] = {}
    for (gpu, dtype), of_type in by_gpu_and_type(rows).items():
        by_size = groups(of_type, lambda row: row.size)
        for size in CLASSES:
            of_class = figures(by_size.get(size, []))
            if of_class is None:
                continue
            shares = {name: float(f"{getattr(of_class, name):.{DIGITS}g}") for name in ("median", "low", "high")}
            of_all.setdefault(gpu, []).append(
                {"dtype": dtype, "size": size, "n": of_class.n, **shares, "source": source_of(by_size[size])}
            )
    lines = []
    for gpu, of_gpu in of_all.items():
        classes = ",\n  ".join(json.dumps(of_class) for of_class in of_gpu)
        lines.append(f"{json.dumps(gpu)}: [\n  {classes}]")
    head = f'{{"made_by": "python -m benchmarks.elsewhere --write", "date": "{date}", "gpus": {{\n'
    HELD_FILE.write_text(head + ",\n".join(lines) + "\n}}\n")


def source_of(rows: Iterable[Judged]) -> str:
    """Who published the times of some rows, the one with the most times first."""
    known, counts = sources(), dict[tuple[str, bool], int]()
    for row in rows:
        key = row.time.source, row.time.what == QUANTISES
        counts[key] = counts.get(key, 0) + 1
    texts = []
    for source, quantises in sorted(counts, key=lambda key: -counts[key]):
        by = known[source]["by"].partition(" (")[0]
        texts.append(f"{by}: another kernel, whose time may include quantising" if quantises else by)
    return "; ".join(texts)


def short_lines(rows: Sequence[Judged]) -> list[str]:
    """The table of `FIGURES`: a row per GPU, its types together but those whose times may include quantising."""
    rows = [row for row in rows if row.time.what != QUANTISES]
    lines = [f"Judged on {today()}: {len(rows):,} products.", ""]
    lines += ["| GPU | products | below 10 us | from 10 us | eight in ten from 10 us |", "|---|---|---|---|---|"]
    for gpu, of_gpu in groups(sorted(rows, key=lambda row: row.gpu), lambda row: row.gpu).items():
        small = figures([row for row in of_gpu if row.size == SMALL])
        rest = figures([row for row in of_gpu if row.size != SMALL])
        means = ["-" if each is None else f"{each.mean:.2f}" for each in (small, rest)]
        spread = "-" if rest is None else f"{rest.low:.2f} to {rest.high:.2f}"
        lines.append(f"| {gpu} | {len(of_gpu):,} | {' | '.join(means)} | {spread} |")
    return lines


def fill(path: Path, name: str, lines: Iterable[str]) -> None:
    """Replace the lines between `<!-- NAME -->` and `<!-- end of NAME -->` of a page.

    Raises:
        ValueError: When the page has no such marks.
    """
    text = path.read_text()
    marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
    parts = re.split("|".join(map(re.escape, marks)), text)
    if len(parts) != 3:
        raise ValueError(f"{path} has no place for {name}: {' and '.join(marks)}, once each.")
    path.write_text(f"{parts[0]}{marks[0]}\n\n{chr(10).join(lines)}\n\n{marks[1]}{parts[2]}")
