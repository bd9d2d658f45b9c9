"""Time the solver against its peers on the published search spaces.

    python benchmarks/bench_solver.py --repeat 7 --out benchmarks/results/solver

Every measurement is a fresh process; process CPU time, medians. The peers (kernel_tuner, python-constraint2, pyatf,
ortools, numpy) are installed from PyPI into a virtual environment of their own, which is made if it is missing
(`--no-install` skips that); a peer that is absent is left out with a printed reason.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "benchmarks" / "baselines" / "solver_tools.py"
SPACES = ROOT / "tests" / "data" / "spaces"
PEERS = ("kernel_tuner", "python-constraint2", "pyatf", "ortools", "numpy")
MODULES = {
    "kernel_tuner": "kernel_tuner",
    "python-constraint2": "constraint",
    "pyatf": "pyatf",
    "pyatf flat": "pyatf",
    "pyatf tree": "pyatf",
    "cp-sat": "ortools",
}
MEASURES = {
    "columns": ("constrint", "numpy brute", "kernel_tuner", "python-constraint2", "pyatf flat", "cp-sat"),
    "count": ("constrint", "pyatf tree"),
    "factored": ("constrint",),
    "first": ("constrint", "cp-sat"),
    "best": ("constrint", "cp-sat"),
}
# Listing 251 million configurations is what factored spaces are there to avoid.
TOO_LARGE = "atf_gemm_10x500x64"
LIMIT_S = 100.0
# A slow peer is not worth more repetitions.
SLOW_S = 2.0


def peers_python(folder: Path, install: bool) -> Path:
    """The interpreter of the peers' environment; makes the environment if it is missing."""
    python = folder / "bin" / "python"
    if not python.exists() and install:
        venv.create(folder, with_pip=True)
        for peer in PEERS:
            done = subprocess.run([str(python), "-m", "pip", "install", "-q", peer], check=False)
            if done.returncode:
                print(f"could not install {peer}: it is left out")
    return python if python.exists() else Path(sys.executable)


def absent(python: Path) -> dict[str, str]:
    """Tools whose library the environment lacks, with the reason."""
    found = {}
    for tool, module in MODULES.items():
        done = subprocess.run([str(python), "-c", f"import {module}"], capture_output=True, check=False)
        if done.returncode:
            found[tool] = f"no module {module} in {python}"
    return found


def measure(python: Path, tool: str, path: Path, repeat: int) -> list[dict[str, Any]] | str:
    """Runs one measurement several times; a text says why there is none."""
    results: list[dict[str, Any]] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for _ in range(repeat):
        command = [str(python), str(WORKER), tool, str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S + 20, env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            return f"> {LIMIT_S:.0f} s"
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["died"])[-1][:100]
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
        if results[-1]["cpu_s"] > SLOW_S:
            break
    return results


def rows_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures everything that was asked for, printing each figure as it comes."""
    python = peers_python(args.peers_venv, not args.no_install)
    missing = absent(python)
    for tool, why in missing.items():
        print(f"left out: {tool} ({why})")
    rows = []
    for path in sorted(SPACES.glob("*.json")):
        if path.stem == "counts" or (args.spaces and path.stem not in args.spaces):
            continue
        expected = json.loads(path.read_text())["expected"]
        for kind in args.measures:
            for tool in MEASURES[kind]:
                if tool in missing or (path.stem == TOO_LARGE and kind == "columns"):
                    continue
                if (kind == "factored") != (path.stem == TOO_LARGE) and kind in ("factored",):
                    continue
                if args.only_ours and tool != "constrint":
                    continue
                row = _row(python, kind, tool, path, args.repeat, expected)
                rows.append(row)
                print(*(row[k] for k in ("space", "measure", "tool", "median_ms", "note")), flush=True)
    return rows


def _row(python: Path, kind: str, tool: str, path: Path, repeat: int, expected: int) -> dict[str, Any]:
    found = measure(python, f"{kind}:{tool}", path, repeat)
    row: dict[str, Any] = {"space": path.stem, "configs": expected, "measure": kind, "tool": tool, "note": ""}
    if isinstance(found, str):
        return {**row, "median_ms": "", "min_ms": "", "repeats": 0, "peak_mib": "", "bytes": "", "note": found}
    times = sorted(1e3 * f["cpu_s"] for f in found)
    if kind in ("columns", "count", "factored") and found[0]["count"] != expected:
        row["note"] = f"WRONG COUNT {found[0]['count']}"
    return {
        **row,
        "median_ms": round(statistics.median(times), 3),
        "min_ms": round(times[0], 3),
        "repeats": len(times),
        "peak_mib": round(statistics.median(f["peak_kib"] for f in found) / 1024, 1),
        "bytes": found[0].get("bytes", ""),
    }


def summary(rows: list[dict[str, Any]]) -> None:
    """Prints how far ahead of its peers each row is."""
    best_of_peers, tuner = [], []
    for space in dict.fromkeys(r["space"] for r in rows):
        mine = [r for r in rows if r["space"] == space and r["measure"] == "columns" and r["median_ms"] != ""]
        ours = next((r["median_ms"] for r in mine if r["tool"] == "constrint"), None)
        peers = {r["tool"]: r["median_ms"] for r in mine if r["tool"] != "constrint"}
        if ours is None or not peers:
            continue
        best = min(peers, key=lambda t: peers[t])
        best_of_peers.append(peers[best] / ours)
        if "kernel_tuner" in peers:
            tuner.append(peers["kernel_tuner"] / ours)
        print(f"{space:22} {ours:9.2f} ms, best peer {best} {peers[best]:.2f} ms: {peers[best] / ours:.2f}x")
    for name, ratios in (("best peer of each row", best_of_peers), ("kernel_tuner", tuner)):
        if ratios:
            print(f"geometric mean against {name}: {math.exp(statistics.mean(map(math.log, ratios))):.1f}x")


def environment(python: Path) -> dict[str, Any]:
    """What the figures were measured on."""
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=False
    )
    packages = {p["name"]: p["version"] for p in json.loads(listed.stdout or "[]")}
    cpu = next(
        (x.split(":", 1)[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )
    wanted = ("kernel-tuner", "kernel_tuner", "python-constraint2", "pyatf", "ortools", "numpy")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {n: v for n, v in packages.items() if n in wanted},
        "clock": "process CPU time, fresh process per measurement, libraries imported before, medians",
    }


def main() -> None:
    """Measures, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-venv", type=Path, default=ROOT / "benchmarks" / ".peers")
    parser.add_argument("--no-install", action="store_true", help="use what the environment has")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--spaces", nargs="*", help="names of spaces; all when left out")
    parser.add_argument("--measures", nargs="*", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--only-ours", action="store_true", help="no peers")
    parser.add_argument("--out", type=Path, help="folder for spaces.csv and environment.json")
    args = parser.parse_args()
    rows = rows_of(args)
    summary(rows)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        with (args.out / "spaces.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        python = peers_python(args.peers_venv, install=False)
        (args.out / "environment.json").write_text(json.dumps(environment(python), indent=2) + "\n")


if __name__ == "__main__":
    main()
