"""How long a user waits: `constrint solve --gpu mi300x` as a process, `import constrint`, a warm query, and a choice.

    python benchmarks/bench_solve_latency.py [--out benchmarks/results/solve_latency.csv]

Wall-clock medians and spread (20th to 80th percentile) in milliseconds; targets: 600, 150, 20 and 1 ms on 2 cores.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RUNS = 15
#: Rows of products, none asked for twice.
SIZES = itertools.count(512, 16)


def timed(call: Callable[[], object], runs: int) -> list[float]:
    """Milliseconds of each of `runs` calls, after one that does not count."""
    call()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return times


def process(*arguments: str) -> Callable[[], object]:
    """A call that runs a fresh process to its end."""
    return lambda: subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def query(gpu_name: str) -> Callable[[], object]:
    """A call of the library that states, solves and ranks a GEMM of a new size; only what holds for all is kept."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_kernel
    from constrint.select import Workload, rank

    gpu, spec = load_gpu(gpu_name), load_kernel("gemm")
    return lambda: rank(spec, gpu, Workload("gemm", {"m": next(SIZES), "n": 4096, "k": 4096}, "bf16"))


def choice(gpu_name: str) -> Callable[[], object]:
    """What `matmul` asks before the first product of a new shape: the model's first choice."""
    from constrint.kernels.gemm.choose import Request, choose
    from constrint.select import Workload

    def call() -> object:
        return choose(gpu_name, Request.of(Workload("gemm", {"m": next(SIZES), "n": 4096, "k": 4096}, "bf16")))

    return call


def main() -> None:
    """Measure, print a table, and write it where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    command = shutil.which("constrint", path=str(Path(sys.executable).parent)) or "constrint"
    cases: list[tuple[str, Callable[[], object], int, float]] = [
        ("process: constrint solve --gpu mi300x", process(command, "solve", "--gpu", "mi300x"), RUNS, 600.0),
        ("process: constrint solve --gpu h200", process(command, "solve", "--gpu", "h200"), RUNS, 600.0),
        ("process: python -c 'import constrint'", process(sys.executable, "-c", "import constrint"), RUNS, 150.0),
        ("process: python -c pass", process(sys.executable, "-c", "pass"), RUNS, float("nan")),
        ("library, warm: gemm on mi300x", query("mi300x"), 5 * RUNS, 20.0),
        ("library, warm: gemm on h200", query("h200"), 5 * RUNS, 20.0),
        ("library, warm: first choice on mi300x", choice("mi300x"), 20 * RUNS, 1.0),
        ("library, warm: first choice on h200", choice("h200"), 20 * RUNS, 1.0),
    ]
    rows = []
    print(f"{'case':42s} {'median ms':>10s} {'p20':>8s} {'p80':>8s} {'target':>8s}")
    for name, call, runs, target in cases:
        times = sorted(timed(call, runs))
        row = [statistics.median(times), times[len(times) // 5], times[-len(times) // 5], target]
        rows.append([name, *(f"{value:.2f}" for value in row)])
        print(f"{name:42s} " + " ".join(f"{value:{w}.2f}" for value, w in zip(row, (10, 8, 8, 8), strict=True)))
    if args.out:
        with args.out.open("w", newline="") as file:
            file.write(f"# {platform.platform()}, python {platform.python_version()}, {os.cpu_count()} cores\n")
            writer = csv.writer(file)
            writer.writerow(["case", "median_ms", "p20_ms", "p80_ms", "target_ms"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
