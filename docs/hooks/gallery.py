"""The gallery: five reports, made while the site is built, and the page that leads to them.

Each is what `constrint report` writes, without the builder's own measurements, and dated by SOURCE_DATE_EPOCH where it
is set.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parents[2]
#: Name, title, what to look at, and the words behind `constrint report`.
REPORTS = (
    (
        "product",
        "A product on an MI300X",
        "which rule removes most, and how far the best tile is below the roofline",
        "--gpu mi300x",
    ),
    (
        "layer",
        "An LSTM layer on an H200",
        "a layer that is bound by latency: occupancy and the parts of its time",
        "--gpu h200 --kernel lstm",
    ),
    (
        "three",
        "One product in fp8 on three GPUs",
        "the same tile on an H200, a B200 and an MI355X, side by side",
        "--gpu h200 --gpu b200 --gpu mi355x --m 8192 --n 8192 --k 8192 --dtype fp8",
    ),
    (
        "attention",
        "A kernel of one's own: attention",
        "a Triton kernel from a file, with the registers that it states",
        "--gpu mi300x --kernel examples/attention/attention.py:SPEC --length 8192",
    ),
    (
        "nothing",
        "Where nothing fits",
        "the rules that cannot hold together, with their numbers, and the nearest ways out",
        "--gpu t4 --kernel gemm.pointer --dtype fp16 --where 'tile_m >= 512'",
    ),
)


def page() -> str:
    """The page that leads to the reports."""
    rows = "\n".join(
        f"| [{title}](gallery/{name}.html) | {look} | `constrint report {words}` |"
        for name, title, look, words in REPORTS
    )
    return (
        "# Gallery\n\nFive reports, each one file without a network, as `constrint report` writes it. They are made "
        "when this site is built, on a machine without a GPU: what they state is modelled, not measured, unless a "
        "published measurement is named.\n\n"
        f"| report | look at | made by |\n|---|---|---|\n{rows}\n\n"
        "[A report](guides/report.md) says what is on each page.\n"
    )


def reports() -> Iterator[tuple[str, str]]:
    """The path of each report on the site, and its text.

    Raises:
        PluginError: When a report is not written.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CONSTRINT_STORE": f"{folder}/none.sqlite"}
        for name, _, _, words in REPORTS:
            place = Path(folder) / f"{name}.html"
            command = [sys.executable, "-m", "constrint", "report", *shlex.split(words), "--out", str(place)]
            ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            if not place.is_file():
                raise PluginError(f"the gallery's report {name} is not written: {ended.stderr.strip()}")
            yield f"gallery/{name}.html", place.read_text(encoding="utf-8")
