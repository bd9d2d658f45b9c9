"""How fast the tuner is on this machine's GPUs: trials a second, from an empty store and an empty compiler's cache.

    python -m benchmarks.tuning.run --gpus 0 --gpus 0,1 --out benchmarks/results/h200/tuning_run.csv

Each set of GPUs tunes the same workloads (by default the usual products) in a process of its own. Written are the time
of the whole command, what each workload's winner takes, and how much faster it is than the first choice.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, described

COLUMNS = ("gpus", "workload", "kernel", "best_us", "gain", "tried", "failed", "run_s", "trials_per_s")


def tuned(gpus: str, arguments: list[str]) -> tuple[dict[str, Any], float]:
    """The report of one run and how long the command took."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CONSTRINT_CACHE": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, "-m", "constrint.cli.app", "tune", "--gpus", gpus, "--json", *arguments]
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        took = time.perf_counter() - started
    if not done.stdout:
        sys.exit(done.returncode)
    report: dict[str, Any] = json.loads(done.stdout)
    return report, took


def add_rows(table: Table, gpus: str, report: dict[str, Any], took: float) -> float:
    """Write one row for each workload of a run; gives the trials a second."""
    rate = sum(sum(result["outcomes"].values()) for result in report["results"]) / took
    for result in report["results"]:
        winner, first, outcomes = result["winner"] or {}, result["first_choice"] or {}, result["outcomes"]
        name = [result["operation"], *result["sizes"].values(), result["dtype"], *result["options"]]
        best, first_s = winner.get("seconds"), first.get("seconds")
        table.add(
            gpus=gpus.replace(",", "+"),
            workload=" ".join(map(str, name)),
            kernel=winner.get("kernel"),
            best_us=best and 1e6 * best,
            gain=best and first_s and first_s / best,
            tried=sum(outcomes.values()),
            failed=sum(number for outcome, number in outcomes.items() if outcome != "ok"),
            run_s=took,
            trials_per_s=rate,
        )
    return rate


def main() -> int:
    """Runs from the command line; what it does not know goes to `constrint tune`."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--gpus", action="append", help="a set of GPUs, 0 or 0,1; may be repeated")
    parser.add_argument("--out", type=Path, help="a CSV file")
    asked, others = parser.parse_known_args()
    with Table(asked.out, COLUMNS, f"measured: {described()}") as table:
        for gpus in asked.gpus or ["0"]:
            report, took = tuned(gpus, others or ["--install", "--kernel", "gemm"])
            rate = add_rows(table, gpus, report, took)
            gains = [float(row["gain"]) for row in table.rows if row["gain"] and row["gpus"] == gpus.replace(",", "+")]
            print(
                f"GPUs {gpus}: {len(report['results'])} workloads in {took:.1f} s, {rate:.2f} trials/s, "
                f"winner over first choice {statistics.geometric_mean(gains):.4f} (geometric mean)"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
