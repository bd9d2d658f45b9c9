"""Times of what each kernel's model ranks first, for products drawn at random: by these, models are compared.

    python -m benchmarks.gemm.candidates plan --gpu h200 --number 500 --seed 7 --out planned.csv     # needs no GPU
    python -m benchmarks.gemm.candidates plan --gpu h200 --dtypes fp8 --number 80 --out planned_fp8.csv
    python -m benchmarks.gemm.candidates prepare --gpu h200 --number 48 --out planned.csv            # compiles it, too
    python -m benchmarks.gemm.candidates time planned.csv --gpu h200 --out gemm_candidates.csv       # needs that GPU
    python -m benchmarks.gemm.candidates take gemm_drawn.csv.gz --gpu h200 --out gemm_candidates_chosen.csv
    python -m benchmarks.gemm.candidates show gemm_candidates.csv

Of every kernel that is not predicted to be far slower than another one its first few configurations are taken, and some
that are predicted to be nearly as fast; `take` takes the candidates that `benchmarks.gemm.bench` timed. Times are those
of a kernel in a CUDA graph after the L2 was overwritten, all candidates of a product and cuBLAS in turn, in fp8
`torch._scaled_mm` without fast accumulation.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import operator
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.peers import products
from benchmarks.harness.table import REMOVED, Table, described, read_rows, read_whole
from benchmarks.harness.workloads import columns_of, drawn_gemms, gemm
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.candidates import priced
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import gemm_spec
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune import Trial, compile_many

PRODUCT = ("m", "n", "k", "dtype", "layout")
PLANNED = (*PRODUCT, "kernel", "config", "place", "predicted_us")
COLUMNS = (*PLANNED, "us", "cublas_us", "note")
#: Kernels that are predicted to take longer than the fastest one by this factor are left out.
FAR = 2.0
#: Configurations of a kernel within this multiple of its first one's predicted time are near.
NEAR = 1.5
ROUNDS = 11


def planned(
    gpu: GpuModel, workload: Workload, each: int, others: int, draw: random.Random, kernels: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Rows of one product: of each kernel, or of those that are named, the first configurations, and some near ones."""
    tables = [
        (table, rows, seconds)
        for table, rows, seconds in priced(gpu, Product.of(workload))
        if len(rows) and table.spec.full_name in (kernels or (table.spec.full_name,))
    ]
    if not tables:
        return
    least = min(float(seconds.min()) * table.spec.optimism for table, _, seconds in tables)
    for table, rows, seconds in tables:
        order = np.argsort(seconds, kind="stable")
        if float(seconds[order[0]]) * table.spec.optimism > FAR * least:
            continue
        near = [int(at) for at in order[each:] if seconds[at] <= NEAR * seconds[order[0]]]
        taken = [*order[:each].tolist(), *sorted(draw.sample(near, min(others, len(near))))]
        for place, at in enumerate(taken):
            config = table.whole_config(Product.of(workload), int(rows[at]))
            yield {
                **columns_of(workload), "kernel": table.spec.full_name, "place": place if place < each else "near",
                "config": " ".join(f"{name}={value}" for name, value in config.items()),
                "predicted_us": 1e6 * float(seconds[at]),
            }  # fmt: skip


def workload_of(row: dict[str, str]) -> Workload:
    """The product of a row."""
    return gemm((int(row["m"]), int(row["n"]), int(row["k"])), row["dtype"], row["layout"])


def config_of(row: dict[str, str]) -> dict[str, int]:
    """The configuration of a row."""
    return {name: int(value) for name, value in (pair.split("=") for pair in row["config"].split())}


def plan_all(gpu: GpuModel, args: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Rows of all products, which processes plan side by side, in the order of the drawing."""
    workloads = drawn_gemms(args.number, args.seed, args.dtypes)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(args.jobs, len(workloads)), context) as pool:
        same = (gpu.name, tuple(args.kernels), args.each, args.others)
        yield from pool.map(_planned, [(*same, args.seed + at, one) for at, one in enumerate(workloads)])


def _planned(job: tuple[str, tuple[str, ...], int, int, int, Workload]) -> list[dict[str, Any]]:
    gpu, kernels, each, others, seed, workload = job
    return list(planned(load_gpu(gpu), workload, each, others, random.Random(seed), kernels))


def compile_all(gpu: GpuModel, rows: Sequence[dict[str, Any]], jobs: int) -> None:
    """Compile all candidates into the compilers' caches."""
    started = time.monotonic()
    trials = [Trial(row["kernel"], workload_of(row), config_of(row)) for row in rows]
    outcomes = compile_many(load_spec, gpu, trials, into_cache=True, num_workers=jobs)
    failed = [outcome for outcome in outcomes if outcome]
    print(f"compiled {len(trials)} in {time.monotonic() - started:.0f} s; failed: {failed[:3] or 'none'}", flush=True)


def time_all(gpu: GpuModel, rows: list[dict[str, str]], out: Path, limit_s: float) -> None:
    """Time candidates product by product."""
    import torch
    from triton.runtime.errors import OutOfResources

    from constrint.tune.measure import Timer, call_of

    timer, end = Timer(), time.monotonic() + limit_s
    with Table(out, COLUMNS, f"measured on {described()}") as table:
        for number, (_, group) in enumerate(itertools.groupby(rows, key=lambda row: [row[name] for name in PRODUCT])):
            if time.monotonic() > end:
                print(f"the time is over: {number} products", flush=True)
                return
            of_product = list(group)
            workload = workload_of(of_product[0])
            spec = load_spec(of_product[0]["kernel"])
            inputs = spec.inputs(gpu, workload, device="cuda")
            outputs = spec.outputs(gpu, workload, inputs)
            (c,) = outputs.values()
            a, b = inputs["a"], inputs["b"]
            of_torch = products(workload, a, b) if workload.dtype == "fp8" else {}
            graphs = [timer.graph(next(iter(of_torch.values()), partial(torch.mm, a[0], b[0], out=c[0])))]
            timed = []
            for row in of_product:
                try:
                    launches = load_spec(row["kernel"]).launches(gpu, workload, config_of(row), inputs, outputs)
                    graphs.append(timer.graph(call_of(launches)))
                    timed.append(row)
                except (ConstrintError, RuntimeError, OutOfResources) as error:
                    table.add(**row, note=str(error)[:80])
            cublas, *found = timer.cold(graphs, ROUNDS)
            for row, one in zip(timed, found, strict=True):
                table.add(**row, us=1e6 * one.median_s, cublas_us=1e6 * cublas.median_s)


def taken(gpu: GpuModel, rows: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Rows of the candidates that a benchmark of products timed; predicted are the models' own times."""
    key = operator.itemgetter(*PRODUCT)
    for _, group in itertools.groupby((row for row in rows if row["median_us"]), key=key):
        of_product = list(group)
        peers = [row for row in of_product if (row["who"], row["how"]) == ("cublas", "cold")]
        product = Product.of(workload_of(of_product[0]))
        tables = {table.spec.full_name: (table, numbers, seconds) for table, numbers, seconds in priced(gpu, product)}
        for row in of_product:
            if row["who"] != "candidate" or not peers or row["kernel"] not in tables:
                continue
            table, numbers, seconds = tables[row["kernel"]]
            names = table.whole_config(product, int(numbers[0]))
            config = dict(zip(names, map(int, row["config"].split()), strict=True))
            is_row = np.all([column[numbers] == config[name] for name, column in table.columns.items()], axis=0)
            if is_row.any():
                yield {
                    **{name: row[name] for name in PRODUCT}, "kernel": row["kernel"], "place": "chosen",
                    "config": " ".join(f"{name}={value}" for name, value in config.items()),
                    "predicted_us": 1e6 * float(seconds[is_row][0]), "us": row["median_us"],
                    "cublas_us": peers[0]["median_us"],
                }  # fmt: skip


def show(rows: Sequence[dict[str, str]]) -> None:
    """Print the error of each kernel's predictions, and the cost of choosing by them."""
    timed = [row for row in rows if row["us"] and row["kernel"] not in REMOVED]
    for kernel in dict.fromkeys(row["kernel"] for row in timed):
        off = sorted(float(row["us"]) / float(row["predicted_us"]) for row in timed if row["kernel"] == kernel)
        at = [off[int(share * (len(off) - 1))] for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
        print(f"{kernel}: measured over predicted, {len(off)}: " + " ".join(f"{x:.2f}" for x in at))
    shares = []
    for _, group in itertools.groupby(timed, key=lambda row: [row[name] for name in PRODUCT]):
        of_product = list(group)
        first = min(of_product, key=lambda row: float(row["predicted_us"]) * gemm_spec(row["kernel"]).optimism)
        shares.append(min(float(row["us"]) for row in of_product) / float(first["us"]))
    mean = math.exp(statistics.fmean(map(math.log, shares)))
    print(f"first choice / best of {len(shares)} products: {mean:.3f}, worst {min(shares):.3f}")


def main() -> None:
    """Plan, prepare, time, take or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plan", "prepare", "time", "take", "show"])
    parser.add_argument("table", type=Path, nargs="?", help="the plan, or what was measured")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--number", type=int, default=300, help="products to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtypes", nargs="+", choices=["bf16", "fp16", "fp8"], default=["bf16", "fp16"])
    parser.add_argument("--each", type=int, default=3, help="first configurations of each kernel")
    parser.add_argument("--kernels", nargs="+", default=[], help="these alone: gemm.cuda, to fit its model")
    parser.add_argument("--others", type=int, default=1, help="others of each kernel, predicted to be nearly as fast")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of measuring")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that plan and compile")
    parser.add_argument("--compiled", action="store_true", help="time what `prepare` has compiled")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "show":
        show(read_rows(args.table))
        return
    gpu = load_gpu(args.gpu)
    if args.what == "time":
        rows = read_rows(args.table)
        if not args.compiled:
            compile_all(gpu, rows, args.jobs)
        time_all(gpu, rows, args.out, args.limit)
        return
    if args.what == "take":
        with Table(args.out, COLUMNS, read_whole(args.table)[0]) as table:
            for row in taken(gpu, read_rows(args.table)):
                table.add(**row)
        return
    if args.what == "prepare" and args.out.is_file():
        rows = read_rows(args.out)  # of an earlier run
    else:
        part = args.out.with_suffix(".part")
        with Table(part, PLANNED, f"{args.number} products drawn with seed {args.seed}") as table:
            rows = [table.add(**row) for of_product in plan_all(gpu, args) for row in of_product]
        part.replace(args.out)  # a plan is whole, or not there
    if args.what == "prepare":
        compile_all(gpu, rows, args.jobs)


if __name__ == "__main__":
    main()
