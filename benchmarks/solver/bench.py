"""Time the solver against its peers on the published search spaces.

    python -m benchmarks.solver.bench --repeat 7 --out benchmarks/results/solver
    python -m benchmarks.solver.bench --show benchmarks/results/solver/spaces.csv

Every measurement is a fresh process; process CPU time, medians. The peers (kernel_tuner, python-constraint2, pyatf,
ortools, numpy) are installed from PyPI into a virtual environment of their own, which is made if it is missing
(`--no-install` skips that); a peer that is absent is left out with a printed reason.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, environment, print_ratios

ROOT = Path(__file__).resolve().parents[2]
#: The second folder has spaces that are too large for the tests.
SPACES = (ROOT / "tests" / "data" / "spaces", ROOT / "benchmarks" / "solver" / "spaces")
MODULES = {
    "kernel_tuner": "kernel_tuner",
    "python-constraint2": "constraint",
    "pyatf flat": "pyatf",
    "pyatf tree": "pyatf",
    "cp-sat": "ortools",
}
PEERS = ("kernel_tuner", "python-constraint2", "pyatf", "ortools", "numpy")
NAMES = {peer.replace("_", "-").lower() for peer in PEERS}
MEASURES = {
    "columns": ("constrint", "numpy brute", "kernel_tuner", "python-constraint2", "pyatf flat", "cp-sat"),
    "count": ("constrint", "pyatf tree"),
    "factored": ("constrint",),
    "first": ("constrint", "cp-sat"),
    "best": ("constrint", "cp-sat"),
}
COLUMNS = ("space", "configs", "measure", "tool", "note", "median_ms", "min_ms", "repeats", "peak_mib", "bytes")
#: Listing 251 million configurations is what factored spaces are there to avoid.
TOO_LARGE = "atf_gemm_10x500x64"
#: What takes more than the limit, or more memory than a desk has.
_PEERS = ("numpy brute", "kernel_tuner", "python-constraint2", "pyatf flat", "cp-sat")
LEFT_OUT = {
    "ktt_convolution3d": ("numpy brute", "python-constraint2", "pyatf flat", "pyatf tree", "cp-sat"),
    **dict.fromkeys(("ktt_covariance", "ktt_gemm", "ktt_nbody", "clblast_xgemm_1"), ("cp-sat",)),
    "rise_harris": _PEERS,
    "tvm_conv2d": _PEERS,
    "atf_prl_64x64": ("numpy brute", "python-constraint2", "cp-sat"),
    "bat_dedispersion": ("kernel_tuner", "python-constraint2", "pyatf flat", "cp-sat"),
}
LIMIT_S = 60.0
#: A slow peer is not worth more repetitions.
SLOW_S = 1.0


def peers_python(folder: Path, install: bool) -> Path:
    """The interpreter of the peers' environment; makes the environment if it is missing."""
    python = folder / "bin" / "python"
    if not python.exists() and install:
        venv.create(folder, with_pip=True)
        for peer in PEERS:
            if subprocess.run([python, "-m", "pip", "install", "-q", peer], check=False).returncode:
                print(f"could not install {peer}: it is left out")
    return python if python.exists() else Path(sys.executable)


def asked_for(args: argparse.Namespace, python: Path) -> Iterator[tuple[Path, str, str]]:
    """Space, measure and tool of every measurement."""
    missing = set()
    for tool, module in MODULES.items():
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            missing.add(tool)
            print(f"left out: {tool} (no module {module} in {python})")
    for path in sorted((p for folder in SPACES for p in folder.glob("*.json")), key=lambda p: p.stem):
        if path.stem == "counts" or (args.spaces and path.stem not in args.spaces):
            continue
        for measure in args.measures:
            # The large space is counted and sampled, the others are listed; all else is asked of both.
            if measure == ("columns" if path.stem == TOO_LARGE else "factored"):
                continue
            for tool in MEASURES[measure]:
                # The first and the best are asked of CP-SAT everywhere.
                lists = measure in ("columns", "count")
                absent = tool in missing or (lists and tool in LEFT_OUT.get(path.stem, ()))
                if not absent and (tool == "constrint" or not args.only_ours):
                    yield path, measure, tool


def figures_of(command: Sequence[str], timeout_s: float) -> dict[str, Any] | str:
    """The figures, or a text that says why there are none; libraries get one thread."""
    threads = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **threads}, check=False
        )
    except subprocess.TimeoutExpired:
        return f"> {timeout_s:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["died"])[-1][:100]
    printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed


def row_of(python: Path, path: Path, measure: str, tool: str, repeat: int) -> dict[str, Any]:
    """One row of the table, or the reason in `note` why it has no figures."""
    expected = json.loads(path.read_text())["expected"]
    row: dict[str, Any] = {"space": path.stem, "configs": expected, "measure": measure, "tool": tool, "repeats": 0}
    runs: list[dict[str, Any]] = []
    for _ in range(repeat):
        run = figures_of([str(python), "-m", "benchmarks.solver.tools", f"{measure}:{tool}", str(path)], LIMIT_S)
        if isinstance(run, str):
            return row | {"note": run}
        runs.append(run)
        if run["cpu_s"] > SLOW_S:
            break
    if measure in ("columns", "count", "factored") and runs[0]["count"] != expected:
        row["note"] = f"WRONG COUNT {runs[0]['count']}"
    times = sorted(1e3 * run["cpu_s"] for run in runs)
    peak = statistics.median(run["peak_kib"] for run in runs) / 1024
    row |= {"median_ms": round(statistics.median(times), 3), "min_ms": round(times[0], 3), "repeats": len(times)}
    return row | {"peak_mib": round(peak, 1), "bytes": runs[0].get("bytes", "")}


def summary(rows: list[dict[str, Any]]) -> None:
    """Print how far ahead of its peers each row is."""
    ahead: dict[str, list[float]] = {"best peer of each row": [], "kernel_tuner": []}
    for space in dict.fromkeys(row["space"] for row in rows):
        here = [row for row in rows if row["space"] == space and row["measure"] == "columns" and "median_ms" in row]
        peers = {row["tool"]: row["median_ms"] for row in here}
        ours = peers.pop("constrint", None)
        if ours is None or not peers:
            continue
        best = min(peers, key=lambda tool: float(peers[tool]))
        print(f"{space:22} {ours:9.2f} ms, best peer {best} {peers[best]:.2f} ms: {peers[best] / ours:.2f}x")
        for name, tool in (("best peer of each row", best), ("kernel_tuner", "kernel_tuner")):
            if tool in peers:
                ahead[name].append(peers[tool] / ours)
    for name, ratios in ahead.items():
        print_ratios(f"{name} / constrint", ratios, limits=(1.0,))


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-venv", type=Path, default=ROOT / "benchmarks" / ".peers")
    parser.add_argument("--no-install", action="store_true", help="use what the environment has")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--spaces", nargs="*", help="names of spaces; all when left out")
    parser.add_argument("--measures", nargs="*", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--only-ours", action="store_true", help="no peers")
    parser.add_argument("--out", type=Path, help="folder for spaces.csv and environment.json")
    parser.add_argument("--show", type=Path, help="measure nothing; print how far ahead a recorded table is")
    args = parser.parse_args()
    if args.show:
        with args.show.open(encoding="utf-8", newline="") as file:
            summary([row | {"median_ms": float(row["median_ms"])} for row in csv.DictReader(file) if row["median_ms"]])
        return
    python = peers_python(args.peers_venv, not args.no_install)
    rows = []
    with Table(args.out and args.out / "spaces.csv", COLUMNS) as table:
        for path, measure, tool in asked_for(args, python):
            rows.append(row_of(python, path, measure, tool, args.repeat))
            table.add(**rows[-1])
            print(*(rows[-1].get(k, "") for k in ("space", "measure", "tool", "median_ms", "note")), flush=True)
    summary(rows)
    if args.out:
        listing = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=False).stdout
        clock = "process CPU time, fresh process per measurement, libraries imported before, medians"
        versions = [line for line in listing.splitlines() if line.split("==")[0].replace("_", "-").lower() in NAMES]
        facts = environment() | {"peers": versions, "clock": clock}
        (args.out / "environment.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
