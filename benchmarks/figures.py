"""Write the tables of the README and of the page of figures from recorded results, and the README's picture.

    python -m benchmarks.figures            # print all tables
    python -m benchmarks.figures --write    # put them into README.md and docs/figures.md
    python -m benchmarks.figures --picture  # draw docs/report.png: `constrint report` in a headless Chromium

It needs no GPU. Results are the CSV files of `benchmarks/results/`, whose README names their programs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.elsewhere.written import fill
from benchmarks.harness.table import DISTURBED, read_rows, read_table
from benchmarks.models.__main__ import table_lines
from benchmarks.projects import read_rows as read_projects
from benchmarks.projects import table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PROJECTS = "projects.csv"
README, PAGE, PICTURE = ROOT / "README.md", ROOT / "docs" / "figures.md", ROOT / "docs" / "report.png"
#: GPUs that were measured, by their folder.
GPUS = {"h200": "H200", "h100": "H100"}
#: Kinds of `benchmarks.gemm.used`, as a user would say them.
KINDS = {
    "plain": "`matmul`, 16 bits",
    "bias": "bias",
    "relu": "bias, relu",
    "gelu": "bias, gelu",
    "silu": "bias, silu",
    "addmm": "alpha, beta c",
    "batch": "batches",
    "fp32": "fp32",
    "tf32": "tf32",
    "fp8": "fp8",
    "int8": "int8",
    "training": "forward and backward",
    "training_gelu": "the same with bias, gelu",
    "layer": "`constrint.nn.Linear`, forward and backward",
    "layer_gelu": "the same with gelu",
    "own": "epilogues of one's own",
    "gated": "gated pairs, silu",
}
#: Files of `benchmarks.gemm.used` in a GPU's folder: as it is shipped, and as on a GPU without tables.
USED, HIDDEN = "gemm_used.csv", "gemm_used_no_tables.csv"
#: The caller of torch's compiler beside epilogues of one's own, and how its row is called.
COMPILED = "compiled"
#: Kinds that the README's row of epilogues holds together.
TOGETHER = {
    "`matmul`, 16 bits": ("plain",),
    "with bias, activation, or `beta c`": ("bias", "relu", "gelu", "silu", "addmm"),
    "batches": ("batch",),
    "fp32, tf32": ("fp32", "tf32"),
    "fp8, int8": ("fp8", "int8"),
    "forward and backward": ("training", "training_gelu"),
}
#: Recurrent layers on an H200, and the columns of ratios beside cuDNN in the same dtype.
LAYERS = "h200/rnn_sweep_long.csv"
#: Blocks of transformers before and after the patch.
MODELS = "h200/models.csv"
DIRECTIONS = {"LSTM and GRU, forward": "same_forward", "the same, forward and backward": "same_both"}
SIXTEEN = ("bf16", "fp16")
#: Layers of the example cells on an H200, and the passes that are timed.
CELLS, WHICH = "h200/cells.csv", ("forward", "both")
#: GPUs of the README's table of predicted over published times, by their names in the page of figures.
PUBLISHED = ("A100-SXM4-80GB", "B200", "H100-SXM5", "L40S", "MI300X", "MI355X")
REPORT = ("report", "--gpu", "mi300x", "--kernel", "gemm", "--m", "4096", "--n", "4096", "--k", "4096")
#: Sequences of a layer where a table says nothing else.
USUAL_BATCH = 16
#: Size of the picture, in pixels.
WINDOW = (1280, 1500)


class Ratios(NamedTuple):
    """The other's time over ours, of some cases.

    Args:
        values: One for each case.
    """

    values: Sequence[float]

    @property
    def brief(self) -> str:
        """Geometric mean and worst."""
        if not self.values:
            return "not measured"
        return f"{statistics.geometric_mean(self.values):.2f} ({min(self.values):.2f})"

    @property
    def whole(self) -> str:
        """Geometric mean, 5th percentile, worst."""
        if not self.values:
            return "not measured"
        ordered = sorted(self.values)
        low = ordered[len(ordered) // 20]
        return f"{statistics.geometric_mean(ordered):.3f}, {low:.3f}, {ordered[0]:.3f}"


@cache
def used_rows(gpu: str, file: str = USED) -> list[dict[str, str]]:
    """All times of `benchmarks.gemm.used` on a GPU."""
    return read_rows(RESULTS / gpu / file)


def used(gpu: str, kinds: Sequence[str], how: str, *, file: str = USED, peer: str = "torch") -> Ratios:
    """Ratios of torch's time over that of `matmul`, by public calls; cases whose times were disturbed are left out.

    Args:
        gpu: The folder of results.
        kinds: Kinds of products.
        how: "cold", with an L2 that something else has used, or "loop", calls back to back.
        file: The file of times.
        peer: Whose time is compared: torch's, or that of torch's compiler.
    """
    rows = [row for row in used_rows(gpu, file) if row["how"] == how and row["kind"] in kinds and row["ratio"]]
    noisy = {
        (r["kind"], r["case"])
        for r in rows
        if r["who"] in ("ours", peer) and float(r["spread_us"]) > DISTURBED * float(r["median_us"])
    }
    # Ratios of a file are torch's time over that of the row.
    of_peer = {(r["kind"], r["case"]): float(r["ratio"]) for r in rows if r["who"] == peer}
    mine = ((r["kind"], r["case"], float(r["ratio"])) for r in rows if r["who"] == "ours")
    whole = [(kind, case, ratio) for kind, case, ratio in mine if (kind, case) not in noisy]
    return Ratios([ratio / of_peer[kind, case] for kind, case, ratio in whole if (kind, case) in of_peer])


def layers(column: str) -> Ratios:
    """Ratios of cuDNN's time over that of our layers, in the same 16-bit dtype."""
    rows = read_rows(RESULTS / LAYERS)
    mine = (r for r in rows if r["implementation"] == "rnn auto" and r["dtype"] in SIXTEEN and r[column])
    return Ratios([float(row[column]) for row in mine])


def result_lines() -> list[str]:
    """The README's table: public calls beside torch and cuDNN."""
    lines = [f"| public calls | beside | {' | '.join(GPUS.values())} |"]
    lines.append("|---|---|---|---|")
    for name, kinds in TOGETHER.items():
        found = " | ".join(used(gpu, kinds, "cold").brief for gpu in GPUS)
        lines.append(f"| {name} | torch | {found} |")
    for name, what in (("blocks of models, `constrint.patch`", "forward"), ("the same, a training step", "step")):
        found = " | ".join(Ratios(list(models(gpu, what).values())).brief for gpu in GPUS)
        lines.append(f"| {name} | torch, eager | {found} |")
    for name, column in DIRECTIONS.items():
        lines.append(f"| {name} | cuDNN | {layers(column).brief} | not measured |")
    return lines


def models(gpu: str, what: str, how: str = "eager") -> dict[str, float]:
    """Ratios of torch's time over that of the patched model, by model; empty where none was measured.

    Args:
        gpu: The folder of results.
        what: "forward" or "step", a training step.
        how: "eager" or "compile".
    """
    file = RESULTS / gpu / "models.csv"
    rows = read_rows(file) if file.is_file() else []
    return {r["model"]: float(r["ratio"]) for r in rows if (r["what"], r["how"]) == (what, how) and r["ratio"]}


def published_lines() -> list[str]:
    """The README's table of predicted over published times: rows of the table that `benchmarks.elsewhere` writes."""
    rows = dict(re.findall(r"^\| ([\w-]+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    lines = [
        "| predicted / published time | products | mean, of 10 us and more | eight in ten of these |",
        "|---|---|---|---|",
    ]
    for name in PUBLISHED:
        number, _, mean, spread = rows[name].split(" | ")
        lines.append(f"| {name} | {number} | {mean} | {spread} |")
    return lines


def model_lines() -> list[str]:
    """The README's table of models before and after `constrint.patch`, on an H200."""
    return table_lines(read_rows(RESULTS / MODELS))


def used_lines() -> list[str]:
    """All kinds of products, on all GPUs, with a cold L2 and in a loop."""
    lines = []
    for gpu, name in GPUS.items():
        lines += _used_of(gpu, name, USED)
        if (RESULTS / gpu / HIDDEN).is_file():
            lines += _used_of(gpu, f"{name} as a GPU without tables (`--no-tables`)", HIDDEN)
    return lines[:-1]


def _used_of(gpu: str, name: str, file: str) -> list[str]:
    """The table of one file, and a line before it; kinds without a case are left out."""
    note, _, rows = read_table(RESULTS / gpu / file)
    cases = len({(row[0], row[1]) for row in rows})
    tools = ", ".join(re.findall(r"(?:torch|triton) [\w.+]+", note))
    lines = [f"{name}, {cases} drawn cases, {tools}:", "", "| kind | cases | cold L2 | calls in a loop |"]
    lines.append("|---|---|---|---|")
    named = [(words, kind, "torch") for kind, words in KINDS.items()]
    for words, kind, peer in (*named, (f"{KINDS['own']}, beside torch.compile", "own", COMPILED)):
        cold, loop = (used(gpu, (kind,), how, file=file, peer=peer) for how in ("cold", "loop"))
        if cold.values or loop.values:
            lines.append(f"| {words} | {len(cold.values)} | {cold.whole} | {loop.whole} |")
    return [*lines, ""]


def layer_lines() -> list[str]:
    """Milliseconds of layers with 1,024 steps on an H200, forward / forward and backward."""
    names = {
        "cuda": ("rnn cuda", "bf16"), "cuda, fp16": ("rnn cuda", "fp16"), "triton": ("rnn triton", "bf16"),
        "alternating": ("rnn alternating", "bf16"), "cuDNN": ("torch.nn", "bf16"), "cuDNN, fp16": ("torch.nn", "fp16"),
    }  # fmt: skip
    rows = read_rows(RESULTS / "h200" / "rnn_sweep.csv")
    found: dict[tuple[str, str, str, str, str, str], dict[tuple[str, str], str]] = {}
    for row in rows:
        key = row["cell"], row["heads"], row["head_dim"], row["batch"], row["time"], row["layers"]
        if row["forward_ms"] and row["both_ms"] and row["time"] == "1024" and row["layers"] == "1":
            text = f"{float(row['forward_ms']):.2f} / {float(row['both_ms']):.2f}"
            found.setdefault(key, {})[row["implementation"], row["dtype"]] = text
    lines = [f"| layer | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for key in sorted(found, key=_order_of_layer):
        cells = [found[key].get(column, "") for column in names.values()]
        if any(cells):
            cell, heads, units, batch, *_ = key
            what = f"{heads} heads of {units}" if heads != "1" else f"{int(units):,}"
            more = "" if batch == "16" else f", {batch} sequence{'s' if batch != '1' else ''}"
            lines.append(f"| {cell.upper()}, {what}{more} | {' | '.join(cells)} |")
    return lines


def cell_lines() -> list[str]:
    """Milliseconds of layers of the example cells on an H200, by `auto` and by a loop as one would write it."""
    found: dict[tuple[str, str, str, str], dict[tuple[str, str], str]] = {}
    for row in read_rows(RESULTS / CELLS):
        if row["median_ms"]:
            key = row["cell"], row["units"], row["batch"], row["time"]
            found.setdefault(key, {})[row["who"], row["which"]] = row["median_ms"]
    sizes = sorted({key[1:] for key in found}, key=lambda size: int(size[0]))
    names = [f"{units} units, {batch} sequences, {time} steps" for units, batch, time in sizes]
    lines = [f"| cell | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for cell in dict.fromkeys(key[0] for key in found):
        texts = []
        for size in sizes:
            times = found.get((cell, *size), {})
            pairs = [(float(times["auto", w]), float(times["plain", w])) for w in WHICH if ("auto", w) in times]
            texts.append("; ".join(f"{ours:.2f} ({loop / ours:.0f})" for ours, loop in pairs))
        lines.append(f"| `{cell}` | {' | '.join(texts)} |")
    return lines


def _order_of_layer(key: tuple[str, str, str, str, str, str]) -> tuple[Any, ...]:
    """LSTMs first, in several heads first, by units and sequences."""
    cell, heads, units, batch, *_ = key
    return cell != "lstm", heads == "1", int(batch) != USUAL_BATCH, int(units), int(batch)


def project_lines() -> list[str]:
    """The page's table of other projects' tests with our layers."""
    return list(table(read_projects(RESULTS / PROJECTS)))


#: What is written where.
TABLES: dict[str, tuple[Path, Callable[[], list[str]]]] = {
    "results": (README, result_lines),
    "models": (README, model_lines),
    "published": (README, published_lines),
    "used": (PAGE, used_lines),
    "layers": (PAGE, layer_lines),
    "cells": (PAGE, cell_lines),
    "projects": (PAGE, project_lines),
}


def draw_picture() -> None:
    """A report, as a browser of 1,280 pixels shows its first screens.

    Raises:
        SystemExit: Without Chromium.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("needs Chromium: apt install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "constrint", *REPORT, "--out", str(page)], check=True)
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000")
        shot = f"--window-size={WINDOW[0]},{WINDOW[1]}", f"--screenshot={PICTURE}"
        subprocess.run([browser, *flags, *shot, page.as_uri()], check=True, capture_output=True)


def main() -> None:
    """Print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    if args.picture:
        draw_picture()
        return
    for name, (path, lines) in TABLES.items():
        if args.write:
            fill(path, name, lines())
        else:
            print(f"{path.relative_to(ROOT)}, {name}:", *lines(), "", sep="\n")


if __name__ == "__main__":
    main()
