"""Every candidate of `spmv` on the matrices of `benchmarks.sparse`, by name, beside torch and beside its prediction.

    python -m benchmarks.sparse.candidates --out candidates.csv
    python -m benchmarks.sparse.candidates --only mesh banded --dtypes fp32 fp64
    python -m benchmarks.sparse.candidates --show candidates.csv    # the best of each kernel, and predictions; no GPU

Kernels that copy the matrix run as with `frozen=True`: copied values are not compared. Each call is timed by itself
with a cold L2, in turn with all others of a matrix; results are compared with fp64. `predicted_us` is the model's time,
with which `constrint solve` ranks. `build_ms` is the time of what is made of the matrix once, by
the first candidate that reads it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.table import Table, described, read_rows
from benchmarks.harness.timing import DTYPES, FLUSHED, cold, gpu_here
from benchmarks.sparse.__main__ import is_right
from benchmarks.sparse.matrices import MATRICES, pattern_of
from constrint.choose import Request, decide
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.spmv.planned import Run, arrays_of, compile_side_by_side, label, planned
from constrint.kernels.spmv.products import LIBRARY
from constrint.kernels.spmv.structure import Known, known
from constrint.select.candidate import Config
from constrint.select.workload import Workload

COLUMNS = (
    *(
        "matrix",
        "dtype",
        "rows",
        "cols",
        "nnz",
        "longest",
        "spread",
        "scattered",
        "span",
        "patterns",
        "kernel",
        "config",
    ),
    *("median_us", "spread_us", "predicted_us", "build_ms", "ratio", "outcome"),
)
#: Longest row, as a multiple of the mean, beyond which groups of threads are not timed: one group adds a whole row.
MOST_UNEVEN = 64
#: Warps, stages and resident blocks of the kernel for rows of few patterns.
PATTERNS = (
    *((8, 2, 6), (8, 3, 6), (8, 1, 6), (8, 2, 4), (8, 4, 4), (8, 2, 2), (8, 1, 2), (8, 2, 1)),
    *((4, 2, 12), (4, 3, 8), (4, 4, 4), (4, 2, 2), (16, 2, 3), (16, 1, 1)),
)
#: Threads that compile.
THREADS = 12


def main() -> None:
    """Run, or show a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["fp32"])
    parser.add_argument("--only", nargs="+", default=[], help="matrices whose names contain one of these")
    parser.add_argument("--kernels", nargs="+", default=[], help="kernels that are timed; all by default")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time after which no matrix is begun")
    args = parser.parse_args()
    if args.show:
        show(read_rows(args.show))
        return
    began, gpu = time.time(), gpu_here()
    flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda").zero_
    with Table(args.out, COLUMNS, described()) as table:
        for name in MATRICES:
            if args.only and not any(each in name for each in args.only):
                continue
            for dtype in args.dtypes:
                if time.time() - began < args.seconds:
                    matrix = pattern_of(name, "cuda").matrix(DTYPES[dtype])
                    measure(gpu, name, matrix, dtype, table, flush, args.kernels)
                torch.cuda.empty_cache()
    show(table.texts())


def configs(gpu: GpuModel, workload: Workload, *, is_even: bool) -> Iterator[tuple[str, Config, float]]:
    """Kernels with configurations that the model takes, and predicted seconds: variations of what trials take."""
    listed: list[tuple[str, Config | None]] = [
        (kernel, None) for kernel in ("merge", "vector", "near", "ell", "patterns")
    ]
    tiles = ((8, 8, 4), (8, 16, 4), (4, 8, 8), (16, 8, 2))
    for (warps, items, resident), (by_rows, stages, steps) in product(
        tiles, ((1, 1, 8), (0, 1, 8), (1, 2, 8), (1, 1, 4))
    ):
        config = {"num_warps": warps, "items": items, "num_stages": stages, "resident": resident}
        listed.append(("merge", {**config, "by_rows": by_rows, "steps": steps}))
    if is_even:
        for lanes, (slots, warps) in product((1, 4, 8, 16, 32, 64, 128), ((64, 2), (256, 4), (512, 4))):
            config = {"threads_per_row": lanes, "rows_per_block": slots // lanes, "num_warps": warps}
            listed += [("vector", config), ("near", config)] if slots // lanes >= 2 else []
    for warps, stages, resident in PATTERNS:
        listed.append(("patterns", {"num_warps": warps, "num_stages": stages, "resident": resident}))
    for kib, each, warps in ((192, 8, 32), (160, 16, 32), (192, 8, 16), (128, 16, 16), (96, 8, 32)):
        listed.append(("panels", {"panel_kib": kib, "entries_per_lane": each, "num_warps": warps}))
    for height, window, unroll in ((128, 0, 4), (128, 4096, 4), (256, 0, 2)):
        listed.append(("ell", {"slice_height": height, "window": window, "unroll": unroll, "num_warps": 4}))
    seen = set()
    for kernel, named in listed:
        with suppress(ConstrintError):
            decision = decide(Request("spmv", workload, gpu, kernel=kernel, config=named))
            key = kernel, tuple(sorted(decision.config.items()))
            if key not in seen:
                seen.add(key)
                yield kernel, decision.config, decision.seconds


def measure(
    gpu: GpuModel,
    name: str,
    matrix: Tensor,
    dtype: str,
    table: Table,
    flush: Callable[[], Any],
    kernels: Sequence[str] = (),
) -> None:
    """Check and time the candidates of a matrix, or those of some kernels; write a row for each."""
    found, x = known(matrix), torch.randn(matrix.shape[1], device="cuda").to(matrix.dtype)
    workload = found.read().workload(dtype, 1)
    facts = found.read().facts
    is_even = facts.longest <= MOST_UNEVEN * max(1.0, matrix.values().numel() / matrix.shape[0])
    listed = [each for each in configs(gpu, workload, is_even=is_even) if not kernels or each[0] in kernels]
    built = compile_together(found, [(kernel, config) for kernel, config, _ in listed], x)
    calls: dict[str, Callable[[], Any]] = {LIBRARY: lambda: torch.mv(matrix, x)}
    rows: dict[str, dict[str, Any]] = {LIBRARY: {"kernel": LIBRARY, "config": "", "outcome": "ok"}}
    with suppress(ConstrintError):
        rows[LIBRARY]["predicted_us"] = 1e6 * decide(Request("spmv", workload, gpu, kernel=LIBRARY)).seconds
    for kernel, config, seconds in listed:
        text = label(kernel, config)
        row: dict[str, Any] = {"kernel": kernel, "config": text.partition(" ")[2], "predicted_us": 1e6 * seconds}
        try:
            run: Run = planned(found, kernel, config, is_checked=False)
            row["build_ms"] = built.get(text, "")
            call = partial(run, x, None, 1.0, 0.0)
            row["outcome"] = "ok" if is_right(call(), matrix, x) else "wrong result"
            calls[text] = call
        except (ConstrintError, RuntimeError) as error:
            row["outcome"] = str(error).partition("\n")[0][:120]
        rows[text] = row
    figures = cold(calls, flush)
    common: dict[str, Any] = {"matrix": name, "dtype": dtype, **workload.sizes}
    common |= {each: getattr(facts, each) for each in ("longest", "spread", "scattered", "span", "patterns")}
    for text, row in rows.items():
        if text in figures:
            median, spread = figures[text]
            row |= {"median_us": median, "spread_us": spread, "ratio": figures[LIBRARY][0] / median}
        table.add(**common, **row)
    best = min(figures, key=lambda each: figures[each][0])
    print(f"{name:22} {dtype:5} torch {figures[LIBRARY][0]:7.1f}  {best} {figures[best][0]:7.1f} us", flush=True)


def compile_together(found: Known, candidates: list[tuple[str, Config]], x: Tensor) -> dict[str, float]:
    """Make the arrays of candidates, and compile them by several threads; what fails is met again when it runs.

    Returns:
        The milliseconds that the arrays of each take.
    """
    built = {}
    for kernel, config in candidates:
        torch.cuda.synchronize()
        before = time.perf_counter()
        with suppress(Exception):
            arrays_of(found, kernel, config, is_checked=False)
        torch.cuda.synchronize()
        built[label(kernel, config)] = 1e3 * (time.perf_counter() - before)

    def compile_one(candidate: tuple[str, Config]) -> None:
        with suppress(Exception), torch.cuda.device(x.device):
            compile_side_by_side(found, [candidate], x, None)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(compile_one, candidates))
    return built


def show(rows: list[dict[str, str]]) -> None:
    """The best of each kernel by matrix, with its prediction, and what the model would take."""
    by_matrix: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["median_us"]:
            by_matrix.setdefault((row["matrix"], row["dtype"]), []).append(row)
    lost, best_ratios = [], []
    for (name, dtype), of in by_matrix.items():
        least = min(of, key=lambda row: float(row["median_us"]))
        taken = min(of, key=lambda row: float(row["predicted_us"] or "inf"))
        lost.append(float(taken["median_us"]) / float(least["median_us"]))
        best_ratios.append(float(least["ratio"]))
        print(f"{name} {dtype}: model takes {taken['kernel']} {taken['config']}, {lost[-1]:.2f} of the best time")
        for kernel in dict.fromkeys(row["kernel"] for row in of):
            own = min((row for row in of if row["kernel"] == kernel), key=lambda row: float(row["median_us"]))
            share = float(own["predicted_us"] or "nan") / float(own["median_us"])
            times = f"{float(own['median_us']):8.1f} us x{float(own['ratio']):5.2f}  predicted/measured {share:5.2f}"
            print(f"    {kernel:8} {times}  {own['config']}  {own['outcome']}")
    wrong = [f"{row['matrix']} {row['kernel']} {row['config']}" for row in rows if row["outcome"] != "ok"]
    if lost:
        means = statistics.geometric_mean(best_ratios), statistics.geometric_mean(lost)
        print(f"torch / best: {means[0]:.3f}; model's choice / best: {means[1]:.3f}")
    print(f"not ok: {wrong[:20]}" if wrong else "all ok")


if __name__ == "__main__":
    main()
