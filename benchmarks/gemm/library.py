"""Measure torch's own product (cuBLAS, hipBLASLt) for the table that `gemm.library` is predicted from.

    python -m benchmarks.gemm.library --gpu h200 --limit 170          # on that GPU: some 19,000 products in all
    python -m benchmarks.gemm.library --gpu h200 --judge              # no GPU: errors on products that are left out

Each product is captured in a graph and timed after the L2 was overwritten, with sums of 32 bits, as `matmul` calls it.
Rows are written one by one; a run that is cut or limited goes on where it was left. Sizes are log-uniform up to
16,384, of every type and order of axes: aligned and odd rows, rows with gaps, single rows and columns, batches, and
with a bias, an added matrix, a result of 32 bits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from itertools import product as combinations
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, attempt, described, read_whole
from benchmarks.harness.workloads import LAYERS_OF_MODELS
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.library import cost
from constrint.kernels.gemm.library.cost import (
    BIAS,
    COLUMNS,
    PLAIN,
    SOURCE,
    WIDE,
    floor_s,
    left_out_ratios,
    measured,
    place_of_row,
)
from constrint.kernels.gemm.library.spec import FP8_MULTIPLE, INT8_MULTIPLE, INT8_ROWS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES, WIDEST_BYTES
from constrint.select import Workload

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

    from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
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
    launch = LibraryLaunch(GemmCall(a, b, out, Machine(1), end, "tf32"))
    (figure,) = timer.cold([timer.graph(launch.run)], ROUNDS)
    return {"cold_us": 1e6 * figure.median_s, "spread_us": 1e6 * figure.spread_s}


def _cut(pool: Any, batch: int, rows: int, columns: int, gap: int, *, is_turned: bool) -> Any:
    """(batch, rows, columns) of a pool, with a gap between what lies one after the other in memory."""
    outer, inner = (columns, rows) if is_turned else (rows, columns)
    step = inner + gap
    strides = (outer * step, 1, step) if is_turned else (outer * step, step, 1)
    return pool.as_strided((batch, rows, columns), strides)


def judge(gpu: GpuModel) -> None:
    """Print how far products are off that are predicted by the others of their kind."""
    print("kind (dtype, end, aligned, batched, vector)         products  median  9 in 10   worst  silent")
    kinds = {
        kind: of_kind
        for dtype, end in combinations(OUTPUT_BYTES, cost.ENDS)
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


# The products.

#: Sizes go up to this; products whose floor is longer, or operands with more elements, are left out.
LARGEST, LONGEST_S, MOST_ELEMENTS = 16384, 1.2e-3, 1 << 28
LAYOUTS = ("rr", "rc", "cr", "cc")
#: Sizes at which implementations change: powers of two and the sides of models that are run every day.
USUAL = (
    *(
        64,
        256,
        512,
        768,
        1024,
        1536,
        2048,
        3072,
        4096,
        5120,
        6144,
        7168,
        8192,
        11008,
        13824,
        14336,
        28672,
        50257,
        128256,
    ),
)


@dataclass(frozen=True)
class Family:
    """Products that are drawn in the same way.

    Args:
        dtype: Type of A and B.
        layout: Order of axes of A and B.
        end: The epilogue.
        number: Number of products.
        is_ragged: Whether sizes are any integers, and every third operand has one element between its rows.
        is_batched: Whether there are several products.
        vector: "row" or "column" where C is one.
        is_layer: Whether N and K are those of a layer of a language model, and M alone is drawn.
    """

    dtype: str
    layout: str
    end: str = PLAIN
    number: int = 0
    is_ragged: bool = False
    is_batched: bool = False
    vector: str = ""
    is_layer: bool = False


def families() -> Iterator[Family]:
    """Every kind; those that are asked for most have the most products."""
    for dtype, layout in combinations(("bf16", "fp16"), LAYOUTS):
        yield Family(dtype, layout, PLAIN, 360)
        yield Family(dtype, layout, PLAIN, 1100, is_ragged=True)
        yield Family(dtype, layout, PLAIN, 50, is_batched=True)
        yield Family(dtype, layout, PLAIN, 25, is_ragged=True, is_batched=True)
        for vector, is_ragged in combinations(("row", "column"), (False, True)):
            yield Family(dtype, layout, PLAIN, 50, is_ragged=is_ragged, vector=vector)
        for end in (BIAS, SOURCE, WIDE):
            yield Family(dtype, layout, end, 40)
            yield Family(dtype, layout, end, 20, is_ragged=True)
    for layout in LAYOUTS:
        yield Family("tf32", layout, PLAIN, 160)
        yield Family("tf32", layout, PLAIN, 60, is_ragged=True)
        yield Family("tf32", layout, BIAS, 30)
        yield Family("int8", layout, PLAIN, 100)
    yield Family("fp8", "rc", PLAIN, 300)
    for dtype, layout in combinations(("bf16", "fp16"), LAYOUTS):
        yield Family(dtype, layout, PLAIN, 120, is_layer=True)
        yield Family(dtype, layout, PLAIN, len(LAYERS_OF_MODELS), vector="row", is_layer=True)


def drawn(gpu: GpuModel, share: float = 1.0) -> list[dict[str, str]]:
    """Rows to measure, in an order that leaves every family as complete as the others wherever a run is cut.

    Args:
        gpu: Its model says which products take too long.
        share: How many of each family, as a share.
    """
    ordered: list[tuple[float, int, dict[str, str]]] = []
    for number, family in enumerate(families()):
        wanted = max(1, round(share * family.number))
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        # A low-discrepancy sequence of its own for each family, so that families complete each other.
        for index in range(1, 40 * wanted):
            row = _row(family, index, number)
            if row is not None and floor_s(gpu, place_of_row(row)) <= LONGEST_S:
                rows.setdefault(tuple(row.values()), row)
            if len(rows) == wanted:
                break
        ordered += [(place / wanted, number, row) for place, row in enumerate(rows.values())]
    return [row for _, _, row in sorted(ordered, key=lambda one: one[:2])]


def _row(family: Family, index: int, shift: int) -> dict[str, str] | None:
    """One product of a family; None where its operands are too large, or its kind is another one."""
    fractions = [_halton(index, base, shift) for base in (2, 3, 5, 7)]
    m, n, k = (max(1, round(LARGEST**fraction)) for fraction in fractions[:3])
    if family.is_layer:
        n, k = LAYERS_OF_MODELS[index % len(LAYERS_OF_MODELS)]
    if not family.is_ragged:
        if index % 4 == 0 and not family.is_layer:
            m, n, k = (USUAL[int(fraction * len(USUAL))] for fraction in fractions[:3])
        m, n, k = _aligned(family, m, n, k)
    batch = max(2, round(512 ** fractions[3])) if family.is_batched else 1
    gap = 1 if family.is_ragged and index % 3 == 0 else 0
    m, n = (1 if family.vector == "row" else m), (1 if family.vector == "column" else n)
    if batch * max(m * (k + gap), k * (n + gap), m * n) > MOST_ELEMENTS or batch * m * n * k > 1 << 42:
        return None
    sizes = {"batch": batch, "m": m, "n": n, "k": k, "gap": gap}
    row = {"dtype": family.dtype, "layout": family.layout, "end": family.end}
    row |= {name: str(size) for name, size in sizes.items()}
    kind = place_of_row(row).kind
    is_vector_aligned = bool(family.vector)  # a single column has rows of one element, whatever else is aligned
    is_meant = kind.vector == family.vector and (is_vector_aligned or kind.is_aligned != family.is_ragged)
    return row if is_meant else None


def _aligned(family: Family, m: int, n: int, k: int) -> tuple[int, int, int]:
    """The same sizes, those that rows run along rounded to whole accesses."""
    step = WIDEST_BYTES // ELEMENT_BYTES[family.dtype]
    steps_m, steps_n, steps_k = step, step, step
    if family.layout[0] == "r":
        steps_m = 1
    if family.layout == "cr":
        steps_k = 1
    if family.dtype == "fp8":
        steps_n, steps_k = FP8_MULTIPLE, FP8_MULTIPLE
    if family.dtype == "int8":
        steps_n, steps_k = max(step, INT8_MULTIPLE), max(step, INT8_MULTIPLE)
        m = max(m, INT8_ROWS + steps_m)
    return _rounded(m, steps_m), _rounded(n, steps_n), _rounded(k, steps_k)


def _rounded(size: int, step: int) -> int:
    return max(step, size // step * step)


def _halton(index: int, base: int, shift: int) -> float:
    """The radical inverse of an index, turned by a share of its own for each family."""
    fraction, inverse = 1.0, 0.0
    while index:
        fraction /= base
        inverse += fraction * (index % base)
        index //= base
    return (inverse + shift * 0.6180339887498949) % 1.0


def main() -> None:
    """Measure, or judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True, help="the GPU that is measured, as `constrint gpus` names it")
    parser.add_argument("--out", type=Path, help="another file than the one that predictions are made of")
    parser.add_argument("--limit", type=float, default=170.0, help="seconds of measuring")
    parser.add_argument("--share", type=float, default=1.0, help="of the products of each kind")
    parser.add_argument("--device", default="cuda", help="cpu to try the program, say with --out and --share")
    parser.add_argument("--anew", action="store_true", help="begin the file anew")
    parser.add_argument("--judge", action="store_true", help="print the error on products that are left out, alone")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    out = args.out or cost.path_of(gpu.name)
    if not args.judge:
        earlier = read_whole(out)[1] if out.is_file() and not args.anew else []
        done = {place_of_row(row) for row in earlier}
        rows = [row for row in drawn(gpu, args.share) if place_of_row(row) not in done]
        print(f"{len(rows)} products to measure, {len(earlier)} measured before", flush=True)
        note = f"torch's own product, medians with a cold L2, by benchmarks.gemm.library: {described()}"
        with Table(out, COLUMNS, note, earlier) as table:
            measure(gpu, rows, table, args.limit, args.device)
    measured.cache_clear()
    if args.out is None:
        judge(gpu)


if __name__ == "__main__":
    main()
