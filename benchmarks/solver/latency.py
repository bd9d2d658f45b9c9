"""How long a user waits: `constrint solve` as a process, `import constrint`, a warm query, its spaces, and a choice.

    python -m benchmarks.solver.latency --out benchmarks/results/solve_latency.csv

Wall-clock medians and spread (20th to 80th percentile) in milliseconds; targets: 600, 150, 20 and 1 ms on 2 cores. The
warm rows are of the library: a whole query states, solves and ranks a GEMM of a new size; `spaces` is its solving
alone, with the compiled core and on the numpy path; a first choice is what `matmul` asks before a new shape.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.table import Table, described
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.product import Product
from constrint.kernels.registry import load_kernel
from constrint.select import Workload, rank
from constrint.select.rank import requests
from constrint.solve import enumerate_space

RUNS = 15
GPUS = ("mi300x", "h200")
COLUMNS = ("case", "median_ms", "p20_ms", "p80_ms", "target_ms")
#: Rows of products, none asked for twice.
SIZES = itertools.count(512, 16)
#: What a program imports that states and solves problems.
SOLVER = "import numpy; from constrint import Problem, count, enumerate_space, solve"
Call = Callable[[], object]


def timed(call: Call, runs: int) -> list[float]:
    """Milliseconds of each of `runs` calls in order of size, after one that does not count."""
    call()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return sorted(times)


def process(*arguments: str) -> Call:
    """A call that runs a fresh process to its end."""
    return lambda: subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def product() -> Workload:
    """A product of a new size."""
    return Workload("gemm", {"m": next(SIZES), "n": 4096, "k": 4096}, "bf16")


def query(gpu_name: str) -> Call:
    """States, solves and ranks; only what holds for all sizes is kept."""
    gpu, gemm = load_gpu(gpu_name), load_kernel("gemm")
    return lambda: rank(gemm, gpu, product())


def spaces(gpu_name: str, backend: str) -> Call:
    """Solves the problems of all implementations."""
    able, _ = requests(load_kernel("gemm"), load_gpu(gpu_name), product())
    return lambda: [enumerate_space(request.problem, backend=backend) for request in able]


def choice(gpu_name: str) -> Call:
    """The model's first choice."""
    gpu = load_gpu(gpu_name)
    return lambda: decide_product(gpu, Product.of(product()))


def cases() -> list[tuple[str, Call, int, float]]:
    """Name, call, runs and target of every row."""
    command = shutil.which("constrint", path=str(Path(sys.executable).parent)) or "constrint"
    none = float("nan")
    rows: list[tuple[str, Call, int, float]] = [
        *((f"process: constrint solve --gpu {g}", process(command, "solve", "--gpu", g), RUNS, 600.0) for g in GPUS),
        ("process: python -c 'import constrint'", process(sys.executable, "-c", "import constrint"), RUNS, 150.0),
        ("process: python -c pass", process(sys.executable, "-c", "pass"), RUNS, none),
        ("process: python -c 'import numpy'", process(sys.executable, "-c", "import numpy"), RUNS, none),
        ("process: numpy and the solver's names", process(sys.executable, "-c", SOLVER), RUNS, none),
        *((f"library, warm: gemm on {g}", query(g), 5 * RUNS, 20.0) for g in GPUS),
    ]
    for g, backend in itertools.product(GPUS, ("native", "numpy")):
        rows.append((f"library, warm: spaces of gemm on {g}, {backend}", spaces(g, backend), RUNS, none))
    return rows + [(f"library, warm: first choice on {g}", choice(g), 20 * RUNS, 1.0) for g in GPUS]


def main() -> None:
    """Measure, print a table, and write it where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    print(f"{'case':46s} {'median ms':>10s} {'p20':>8s} {'p80':>8s} {'target':>8s}")
    with Table(args.out, COLUMNS, described()) as table:
        for name, call, runs, target in cases():
            times = timed(call, runs)
            figures = (statistics.median(times), times[len(times) // 5], times[-len(times) // 5], target)
            table.add(**dict(zip(COLUMNS, (name, *figures), strict=True)))
            print(f"{name:46s} {figures[0]:10.2f} " + " ".join(f"{value:8.2f}" for value in figures[1:]), flush=True)


if __name__ == "__main__":
    main()
