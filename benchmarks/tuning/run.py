"""Speed of the tuner on this machine's GPUs: trials a second, from an empty store.

    python -m benchmarks.tuning.run --gpus 0 --gpus 0,1 --out benchmarks/results/h200/tuning_run.csv
    python -m benchmarks.tuning.run --compiled --gpus 0 --gpus 0,1

Each set of GPUs tunes the same workloads (by default the usual products) in a process of its own, from an empty
compiler's cache, or with `--compiled` after a run that fills it and is not counted. Written are the time of the whole
command, that before its first record and after its last one, trials a second of the whole command and from the first
record to the last, the share of that time in which the devices were busy, what each workload's winner takes, and how
much faster it is than the first choice.
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

COLUMNS = (
    *("gpus", "workload", "kernel", "best_us", "gain", "tried", "failed"),
    *("run_s", "start_s", "end_s", "trials_per_s", "steady_per_s", "busy_share"),
)


def tuned(gpus: str, arguments: list[str], compiled: str | None) -> tuple[dict[str, Any], dict[str, float]]:
    """The report of one run, and how long it took: the same for all of its workloads, by column."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CONSTRINT_CACHE": folder, "TRITON_CACHE_DIR": compiled or f"{folder}/triton"}
        command = [sys.executable, "-m", "constrint.cli.app", "tune", "--gpus", gpus, "--json", *arguments]
        started = time.time()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        ended = time.time()
        if not done.stdout:
            sys.exit(done.returncode)
        with RecordStore.open(Path(folder) / "records.sqlite") as store:
            times = [record.created for record in store.find() if record.figures is None or not record.figures.is_final]
    report: dict[str, Any] = json.loads(done.stdout)
    first, last = (min(times), max(times)) if times else (ended, ended)
    busy_s = sum(device["busy_s"] for device in report["devices"])
    return report, {
        "run_s": ended - started,
        "start_s": first - started,
        "end_s": ended - last,
        "trials_per_s": sum(sum(result["outcomes"].values()) for result in report["results"]) / (ended - started),
        "steady_per_s": (len(times) - 1) / (last - first) if last > first else 0.0,
        "busy_share": busy_s / (len(report["devices"]) * report["measuring_s"]) if report["measuring_s"] else 0.0,
    }


def add_rows(table: Table, gpus: str, report: dict[str, Any], of_run: dict[str, float]) -> None:
    """Write one row for each workload of a run."""
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
            **of_run,
        )


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
            report, of_run = tuned(gpus, others, kept)
            add_rows(table, gpus, report, of_run)
            own = [row for row in table.rows if row["gpus"] == gpus.replace(",", "+")]
            gains = [float(row["gain"]) for row in own if row["gain"]]
            print(
                f"GPUs {gpus}: {len(report['results'])} workloads in {of_run['run_s']:.1f} s "
                f"({of_run['start_s']:.1f} before the first record, {of_run['end_s']:.1f} after the last), "
                f"{of_run['trials_per_s']:.2f} trials/s, {of_run['steady_per_s']:.2f} from the first to the last, "
                f"devices busy {of_run['busy_share']:.1%} of it, winner over first choice "
                f"{statistics.geometric_mean(gains):.4f} (geometric mean)"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
