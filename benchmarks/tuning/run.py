"""How fast the tuner is on this machine's GPUs: trials a second, from an empty store.

    python -m benchmarks.tuning.run --gpus 0 --gpus 0,1 --out benchmarks/results/h200/tuning_run.csv
    python -m benchmarks.tuning.run --compiled --gpus 0 --gpus 0,1

Each set of GPUs tunes the same workloads (by default the usual products) in a process of its own, from an empty
compiler's cache, or with `--compiled` after a run that fills it and is not counted. Written are the time of the whole
command, trials a second of the whole command and from the first record to the last, what each workload's winner takes,
and how much faster it is than the first choice.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, described
from constrint.tune.store.store import RecordStore

COLUMNS = ("gpus", "workload", "kernel", "best_us", "gain", "tried", "failed", "run_s", "trials_per_s", "steady_per_s")


def tuned(gpus: str, arguments: list[str], compiled: str | None) -> tuple[dict[str, Any], float, float]:
    """The report of one run, how long the command took, and records a second from the first to the last."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CONSTRINT_CACHE": folder, "TRITON_CACHE_DIR": compiled or f"{folder}/triton"}
        command = [sys.executable, "-m", "constrint.cli.app", "tune", "--gpus", gpus, "--json", *arguments]
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        took = time.perf_counter() - started
        if not done.stdout:
            sys.exit(done.returncode)
        with RecordStore.open(Path(folder) / "records.sqlite") as store:
            times = [record.created for record in store.find() if record.figures is None or not record.figures.is_final]
    report: dict[str, Any] = json.loads(done.stdout)
    return report, took, (len(times) - 1) / (max(times) - min(times)) if len(times) > 1 else 0.0


def add_rows(table: Table, gpus: str, report: dict[str, Any], took: float, steady: float) -> float:
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
            steady_per_s=steady,
        )
    return rate


def main() -> int:
    """Runs from the command line; what it does not know goes to `constrint tune`."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--gpus", action="append", help="a set of GPUs, 0 or 0,1; may be repeated")
    parser.add_argument("--out", type=Path, help="a CSV file")
    parser.add_argument("--compiled", action="store_true", help="begin with a run that is not counted")
    asked, others = parser.parse_known_args()
    others = others or ["--install", "--kernel", "gemm"]
    sets = asked.gpus or ["0"]
    with ExitStack() as stack:
        kept = stack.enter_context(tempfile.TemporaryDirectory()) if asked.compiled else None
        if kept:
            tuned(sets[-1], others, kept)
        table = stack.enter_context(Table(asked.out, COLUMNS, f"measured: {described()}"))
        for gpus in sets:
            report, took, steady = tuned(gpus, others, kept)
            rate = add_rows(table, gpus, report, took, steady)
            own = [row for row in table.rows if row["gpus"] == gpus.replace(",", "+")]
            gains = [float(row["gain"]) for row in own if row["gain"]]
            print(
                f"GPUs {gpus}: {len(report['results'])} workloads in {took:.1f} s, {rate:.2f} trials/s, "
                f"{steady:.2f} from the first to the last, winner over first choice "
                f"{statistics.geometric_mean(gains):.4f} (geometric mean)"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
