"""How much of the fastest known configuration of the CUDA GEMM the first choice reaches, both timed in turn.

    python -m benchmarks.gemm.wgmma.again benchmarks/results/h200/gemm_cuda_present.csv.gz --gpu h200 --out again.csv

The tables are those of `benchmarks.gemm.wgmma.run explore`, which times some hundred configurations of each shape that
the project names once: the fastest of hundreds is one that was lucky, too. So the first `--top` of each shape are timed
again in turn with the first choice, the one that `matmul` would make among configurations of this kernel alone, and
with cuBLAS; what is compared are these times.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gemm.wgmma.configs import Config, config_at, named
from benchmarks.gemm.wgmma.fit import Measured, read_measured
from benchmarks.gemm.wgmma.products import End, exact_product, launch_of, made, share_of
from benchmarks.gemm.wgmma.run import PRODUCT, Case, prepare
from benchmarks.harness.table import Table, described
from benchmarks.harness.workloads import gemm
from constrint.choose import decide
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.product import Product

COLUMNS = (*PRODUCT, "who", "config", "first_us", "us", "spread_us", "note")
ROUNDS = 45
FIRST_CHOICE, CUBLAS = "first choice", "cuBLAS"


def fastest(measured: Measured, top: int) -> list[tuple[float, Config]]:
    """What took the least time of a table's configurations, with the microseconds that it took."""
    rows = np.argsort(measured.seconds, kind="stable")[:top]
    return [(float(measured.seconds[row]) * 1e6, config_at(measured.columns, int(row))) for row in rows]


def cases_of(gpu: GpuModel, measured: Measured, top: int) -> list[tuple[str, float, Case]]:
    """Who is timed, with the time that a table has: the first choice, then the fastest known."""
    p = measured.product
    shape, product = (p.m, p.n, p.k), Product.of(gemm((p.m, p.n, p.k), p.dtype, measured.layout))
    choice = decide(request_of(gpu, product, kernel="cuda"))
    found = [(FIRST_CHOICE, float("nan"), Case(shape, p.dtype, measured.layout, dict(choice.config)))]
    for us, config in fastest(measured, top):
        found.append(("known", us, Case(shape, p.dtype, measured.layout, config)))
    return found


def time_again(cases: list[tuple[str, float, Case]], gpu: GpuModel, table: Table, timer: Any) -> float:
    """Time one product's; the share of the fastest one that the first choice reaches."""
    import torch

    first = cases[0][2]
    given = made(first.shape, first.dtype, first.layout, End())
    exact = exact_product(given, first.dtype, End())
    other = torch.empty(first.shape[:2], dtype=given.out.dtype, device="cuda")
    graphs, timed = [timer.graph(partial(torch.mm, given.a, given.b, out=other))], []
    for who, us, one in cases:
        given.whole.fill_(float("nan"))
        try:
            call = timer.graph(launch_of(gpu, one.config, given, End()).run)
            off = share_of(exact, given)
        except (ConstrintError, RuntimeError) as error:
            table.add(**one.facts, who=who, config=named(one.config), note=str(error)[:80])
            continue
        if off > 1:
            table.add(**one.facts, who=who, config=named(one.config), note=f"wrong: {off:.3g}")
            continue
        graphs.append(call)
        timed.append((who, us, one))
    peer, *found = timer.cold(graphs, ROUNDS)
    table.add(**first.facts, who=CUBLAS, us=peer.median_s * 1e6, spread_us=peer.spread_s * 1e6)
    for (who, us, one), figure in zip(timed, found, strict=True):
        times = {"first_us": us, "us": figure.median_s * 1e6, "spread_us": figure.spread_s * 1e6}
        table.add(**one.facts, who=who, config=named(one.config), **times)
    chosen = [figure.median_s for (who, _, _), figure in zip(timed, found, strict=True) if who == FIRST_CHOICE]
    best = min(figure.median_s for figure in found)
    share = best / chosen[0] if chosen else 0.0
    words = f"first choice {chosen[0] * 1e6:.1f} us, " if chosen else ""
    print(*first.facts.values(), f"{words}best {best * 1e6:.1f}, cuBLAS {peer.median_s * 1e6:.1f}: {share:.3f}")
    return share


def main() -> None:
    """Compile all, then time shape by shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--top", type=int, default=8, help="of the table's fastest, per shape")
    parser.add_argument("--compile", action="store_true", help="compile what would be launched, and launch nothing")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    every = [cases_of(gpu, each, args.top) for each in read_measured(args.table, gpu) if each.is_named]
    prepare(gpu, [one for cases in every for _, _, one in cases])
    if args.compile:
        return
    from constrint.tune.measure import Timer

    timer = Timer()
    with Table(args.out, COLUMNS, f"measured on {described()}") as table:
        shares = [time_again(cases, gpu, table, timer) for cases in every]
    print(f"first choice / fastest of {len(shares)}: {statistics.geometric_mean(shares):.3f}, worst {min(shares):.3f}")


if __name__ == "__main__":
    main()
