"""Measure torch's own product (cuBLAS, hipBLASLt) for the table that `gemm.library` is predicted from.

    python -m benchmarks.gemm.library_table --gpu h200 --limit 170          # on that GPU: some 7,700 products
    python -m benchmarks.gemm.library_table --gpu h200 --recorded           # without one: of recorded comparisons
    python -m benchmarks.gemm.library_table --gpu h200 --judge              # how far off products are that are left out

Each product is captured in a graph and timed after the L2 was overwritten, with sums of 32 bits, as `matmul` calls it.
Rows are written one by one; a run that is cut or limited goes on where it was left. Sizes are log-uniform up to
16,384, of every type and order of axes: aligned and odd rows, rows with gaps, single rows and columns, batches, and
with a bias, an added matrix, a result of 32 bits. `--recorded` takes the times of torch.matmul from the tables in
`benchmarks/results/h200`, which were measured beside our kernels.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from itertools import product as combinations
from pathlib import Path
from typing import Any

from benchmarks.gemm.library_points import drawn, place_key
from benchmarks.harness.table import Table, attempt, described, read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.library import points
from constrint.kernels.gemm.library.cost import left_out_ratios
from constrint.kernels.gemm.library.points import BIAS, COLUMNS, SOURCE, WIDE, measured
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.select import Workload

RESULTS, MEASURED_ON = Path("benchmarks/results/h200"), "H200-SXM"
#: Elements of the memory that operands are cut from, and rounds of each product.
POOL_ELEMENTS, ROUNDS = (1 << 28) + (1 << 24), 11
#: Rows between two lines that say how far it is.
PROGRESS = 200


def measure(gpu: GpuModel, rows: list[dict[str, str]], table: Table, limit_s: float, device: str) -> None:
    """Time the products one by one until the limit."""
    import torch

    from constrint.tune.measure import Timer

    torch.set_float32_matmul_precision("high")
    timer, started = Timer(device), time.monotonic()
    # One type after the other needs memory for one; a chunk of each, so that a limit leaves all of them some.
    chunks = [rows[at : at + 1500] for at in range(0, len(rows), 1500)]
    done, total = 0, len(rows)
    for chunk in chunks:
        by_dtype = sorted(chunk, key=lambda row: row["dtype"])
        for dtype, group in groupby(by_dtype, key=lambda row: row["dtype"]):
            pools = [_pool(gpu, dtype, seed, device) for seed in (1, 2)]
            for row in group:
                if time.monotonic() - started > limit_s:
                    print(f"the limit of {limit_s:.0f} s: {done} of {total}; the next run goes on", flush=True)
                    return
                table.add(**row, **attempt(partial(_timed, timer, row, pools)))
                done += 1
                if done % PROGRESS == 0:
                    print(f"{done} of {total} in {time.monotonic() - started:.0f} s", flush=True)
            del pools
            if device != "cpu":
                torch.cuda.empty_cache()
    print(f"all {total} in {time.monotonic() - started:.0f} s", flush=True)


def _pool(gpu: GpuModel, dtype: str, seed: int, device: str) -> Any:
    """Random elements that operands are cut from."""
    import torch

    from constrint.kernels.gemm.operands import random_operands

    side = 4096
    few = random_operands(
        gpu, Product.of(Workload("gemm", dict.fromkeys("mnk", side), dtype)), device=device, seed=seed
    )
    times = -(-POOL_ELEMENTS // (side * side))
    return few["a"].reshape(-1).view(torch.uint8).repeat(times).view(few["a"].dtype)[:POOL_ELEMENTS]


def _timed(timer: Any, row: dict[str, str], pools: list[Any]) -> dict[str, float]:
    """Microseconds of a product, and how far they spread."""
    import torch

    from constrint.kernels.gemm.launch import Call, Epilogue, Machine
    from constrint.kernels.gemm.library.launch import LibraryLaunch
    from constrint.kernels.gemm.reference import default_out_dtype

    batch, m, n, k, gap = (int(row[name]) for name in ("batch", "m", "n", "k", "gap"))
    a = _cut(pools[0], batch, m, k, gap, is_turned=row["layout"][0] == "c")
    b = _cut(pools[1], batch, k, n, gap, is_turned=row["layout"][1] == "c")
    kind = torch.float32 if row["end"] == WIDE else default_out_dtype(a.dtype)
    out = torch.empty((batch, m, n), dtype=kind, device=a.device)
    bias = pools[0][:n] if row["end"] == BIAS else None
    source = _cut(pools[0], batch, m, n, 0, is_turned=False) if row["end"] == SOURCE else None
    end = Epilogue(bias, source, beta=1.0 if source is not None else 0.0)
    launch = LibraryLaunch(Call(a, b, out, Machine(1), end, "tf32"))
    (figure,) = timer.cold([timer.graph(launch.run)], ROUNDS)
    return {"cold_us": 1e6 * figure.median_s, "spread_us": 1e6 * figure.spread_s}


def _cut(pool: Any, batch: int, rows: int, columns: int, gap: int, *, is_turned: bool) -> Any:
    """(batch, rows, columns) of a pool, with a gap between what lies one after the other in memory."""
    outer, inner = (columns, rows) if is_turned else (rows, columns)
    step = inner + gap
    strides = (outer * step, 1, step) if is_turned else (outer * step, step, 1)
    return pool.as_strided((batch, rows, columns), strides)


def recorded() -> Iterator[dict[str, Any]]:
    """Rows of earlier comparisons with torch.matmul on an H200, cold L2."""
    for row in read_rows(RESULTS / "gemm_bf16_fp16.csv"):
        yield _recorded([row[size] for size in "mnk"], row["dtype"], row["layout"], row["cublas_cold_us"])
    for name in ("gemm_choices_bf16.csv", "gemm_parts_bf16.csv", "gemm_exhaustive_bf16.csv.gz"):
        times: dict[tuple[str, ...], list[float]] = {}
        for row in read_rows(RESULTS / name):
            if row["cublas_cold_us"]:
                times.setdefault((row["m"], row["n"], row["k"]), []).append(float(row["cublas_cold_us"]))
        for shape, of_shape in times.items():
            yield _recorded(shape, "bf16", "rr", str(statistics.median(of_shape)))
    for row in read_rows(RESULTS / "call.csv"):
        shape_and_dtype = row["case"].split()
        if (row["section"], row["who"]) == ("gemm", "torch") and len(shape_and_dtype) == 2:
            yield _recorded(shape_and_dtype[0].split("x"), shape_and_dtype[1], "rr", row["median_us"])


def _recorded(shape: Sequence[str], dtype: str, layout: str, cold_us: str) -> dict[str, Any]:
    sizes = {"batch": "1", **dict(zip("mnk", shape, strict=True)), "gap": "0"}
    return {"dtype": dtype, "layout": layout, "end": points.PLAIN, **sizes, "cold_us": cold_us, "outcome": "ok"}


def judge(gpu: GpuModel) -> None:
    """Print how far products are off that are predicted by the others of their kind."""
    print("kind (dtype, end, aligned, batched, vector)         products  median  9 in 10   worst  silent")
    kinds = {
        kind: of_kind
        for dtype, end in combinations(OUTPUT_BYTES, points.ENDS)
        for kind, of_kind in measured(gpu.name, dtype, end).items()
    }
    for kind, of_kind in sorted(kinds.items()):
        ratios = left_out_ratios(gpu, of_kind, len(of_kind))
        errors = sorted((max(ratio, 1 / ratio) - 1, place) for place, ratio in ratios if ratio is not None)
        name = " ".join(map(str, kind)).ljust(52)
        silent = len(ratios) - len(errors)
        if not errors:
            print(f"{name} {len(of_kind):7d}  {'':24s} {silent:7d}")
            continue
        median, ninth, worst = (errors[int(share * (len(errors) - 1))] for share in (0.5, 0.9, 1.0))
        figures = f"{median[0]:7.1%} {ninth[0]:8.1%} {worst[0]:7.1%}"
        where = "x".join(map(str, worst[1].shape[:3]))
        print(f"{name} {len(of_kind):7d} {figures} {silent:7d}   worst {where} {worst[1].layout}")
    known = sum(float(of_kind.seconds.sum()) for of_kind in kinds.values())
    print(f"{sum(map(len, kinds.values()))} products; one call of each takes {known:.2f} s")


def print_optimism(gpu: GpuModel) -> None:
    """Print how many times as long first choices of our kernels took as the model predicts today."""
    ratios = []
    for row in read_rows(RESULTS / "gemm_bf16_fp16.csv"):
        options = {"transpose_a": int(row["layout"][0] == "c"), "transpose_b": int(row["layout"][1] == "c")}
        workload = Workload("gemm", {size: int(row[size]) for size in "mnk"}, row["dtype"], options)
        ours = decide_product(gpu, replace(Product.of(workload), no_library="our kernels alone"))
        ratios.append(1e-6 * float(row["first_cold_us"]) / ours.seconds)
    low, median, high = (statistics.quantiles(ratios, n=10)[place] for place in (0, 4, 8))
    print(
        f"our kernels, measured over predicted: median {median:.2f} of {len(ratios)}, 8 in 10 {low:.2f} to {high:.2f}"
    )


def main() -> None:
    """Measure, or take what was recorded, or judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True, help="the GPU that is measured, as `constrint gpus` names it")
    parser.add_argument("--out", type=Path, help="another file than the one that predictions are made of")
    parser.add_argument("--limit", type=float, default=170.0, help="seconds of measuring")
    parser.add_argument("--share", type=float, default=1.0, help="of the products of each kind")
    parser.add_argument("--device", default="cuda", help="cpu to try the program, say with --out and --share")
    parser.add_argument("--anew", action="store_true", help="begin the file anew")
    parser.add_argument("--recorded", action="store_true", help="write what was recorded, without a GPU")
    parser.add_argument("--judge", action="store_true", help="print the error on products that are left out, alone")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    out = args.out or points.path_of(gpu.name)
    if args.recorded:
        note = "torch.matmul, medians with a cold L2, of benchmarks/results/h200: made by library_table --recorded"
        with Table(out, COLUMNS, note, recorded()) as table:
            print(f"{len(table.rows)} products in {out}")
    elif not args.judge:
        earlier = read_rows(out) if out.is_file() and not args.anew else []
        known = {place_key(row) for row in earlier}
        rows = [row for row in drawn(gpu, args.share) if place_key(row) not in known]
        print(f"{len(rows)} products to measure, {len(earlier)} known", flush=True)
        note = f"torch's own product, medians with a cold L2, by benchmarks.gemm.library_table: {described()}"
        with Table(out, COLUMNS, note, earlier) as table:
            measure(gpu, rows, table, args.limit, args.device)
    measured.cache_clear()
    if args.out is None:
        judge(gpu)
        if gpu.name == MEASURED_ON:
            print_optimism(gpu)


if __name__ == "__main__":
    main()
