"""Check and time the CUDA kernel for products with a short side beside cuBLAS, or compile it where there is no GPU.

    python -m benchmarks.gemm.skinny.run --gpu h200 compile                    # registers and spills, without a GPU
    python -m benchmarks.gemm.skinny.run --gpu h200 show                       # what the model ranks first
    python -m benchmarks.gemm.skinny.run --gpu h200 check --number 200         # random products against fp64
    python -m benchmarks.gemm.skinny.run --gpu h200 time --layouts rr rc --out gemm_skinny.csv

Times are those of a kernel in a CUDA graph, after the L2 was overwritten, each beside cuBLAS in turn. Variants of which
registers are spilled are not timed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gemm.skinny.cases import Case, Drawn, Expected, drawn_products, operands
from benchmarks.gemm.skinny.launch import product, product_launch
from benchmarks.gemm.skinny.model import candidates
from benchmarks.gemm.skinny.variant import ALIGNED, DTYPES, SHIFTED, Layout, Variant, dealt, variants
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import compile_cuda

#: Of so many times the candidates that are timed, the first that do not spill are taken.
SPARE = 2
#: Long sides and K of products that language models compute one token at a time, and short sides.
DECODE = ((4096, 4096), (11008, 4096), (4096, 11008), (6144, 4096), (28672, 8192), (50257, 768))
SHORT = (1, 2, 4, 8, 16)
#: M, N, K: vectors times matrices, ragged ones, tall ones, and nearly inner products.
SHAPES = (
    (1, 4096, 4096), (1, 16384, 16384), (1, 8192, 28672), (3, 50257, 768), (16384, 1, 4096), (1 << 20, 1, 64),
    (1, 1, 1000000), (64, 64, 65536),
    *((m, n, k) for n, k in DECODE for m in SHORT),
)  # fmt: skip
COLUMNS = (
    "m", "n", "k", "dtype", "layout", "variant", "blocks", "parts", "large", "small", "modelled_us", "us", "cublas_us",
    "ratio", "tb_per_s", "note",
)  # fmt: skip


class Kernel(NamedTuple):
    """What is compiled."""

    variant: Variant
    dtype: str
    layout: Layout


def prepare(gpu: GpuModel, kernels: Iterable[Kernel]) -> set[Kernel]:
    """Compile many at once; says which cannot be used, since they spill or do not compile."""
    waiting = list(dict.fromkeys(kernels))
    print(f"compiling {len(waiting)} kernels", flush=True)
    useless = set()
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        made = [
            pool.submit(compile_cuda, gpu, kernel.variant.source(kernel.dtype, kernel.layout)) for kernel in waiting
        ]
        for kernel, binary in zip(waiting, made, strict=True):
            if binary.exception() is not None or binary.result().spill_bytes:
                useless.add(kernel)
    print(f"{len(useless)} of them spill registers", flush=True)
    return useless


def show_compiled(gpu: GpuModel, dtypes: list[str], number: int, seed: int) -> None:
    """Compile variants drawn at random; says which spill."""
    draw = random.Random(seed)
    for dtype in dtypes:
        for layout in (Layout(k_major, large) for k_major in (True, False) for large in (ALIGNED, SHIFTED)):
            every = list(variants(gpu, dtype, layout))
            for variant in draw.sample(every, min(number, len(every))):
                started = time.perf_counter()
                found = compile_cuda(gpu, variant.source(dtype, layout))
                took = time.perf_counter() - started
                lies = ("along K" if layout.is_k_major else "along rows") + " shifted" * layout.large
                print(
                    f"{dtype} {lies}: {variant}: "
                    f"{found.registers} registers, {found.spill_bytes} bytes spilled, {took:.1f} s",
                    flush=True,
                )


def check(gpu: GpuModel, number: int, seed: int, limit_s: float) -> int:
    """Random products with random variants; how many were wrong."""
    import torch

    end = time.monotonic() + limit_s
    products = list(drawn_products(gpu, number, seed))
    prepare(gpu, (Kernel(one.variant, one.case.dtype, one.layout) for one in products))
    wrong, done = 0, 0
    for one in products:
        if time.monotonic() > end:
            print("the time is over", flush=True)
            break
        done += 1
        # Said before it is launched: a kernel that hangs says nothing.
        print(*one, end=" ", flush=True)
        try:
            verdict = _checked(gpu, one)
        except (ConstrintError, ValueError, RuntimeError) as error:
            print(error, flush=True)
            return wrong + 1
        wrong += verdict != ""
        print(verdict, flush=True)
    torch.cuda.synchronize()
    print(f"{wrong} of {done} wrong")
    return wrong


def _checked(gpu: GpuModel, one: Drawn) -> str:
    """What is wrong with a product; a second launch sees whether counters were reset, and sums kept their order."""
    import torch

    a, b, made = operands(one.case, "cuda")
    which = product(a, b, made.out, one.case.dtype, one.alpha)
    if which.layout != one.layout:
        return f"WRONG: it lies as {which.layout}"
    launch = product_launch(gpu, one.variant, which, one.case.dtype, one.blocks)
    found = []
    for _ in range(2):
        launch.run()
        torch.cuda.synchronize()
        found.append(made.out.clone())
    if not torch.equal(found[0].nan_to_num(0), found[1].nan_to_num(0)):
        return "WRONG: two launches differ"
    off = Expected.of(a, b, one.case.dtype, one.alpha).error_of(made, one.variant.chain(one.case.dtype, a.shape[1]))
    if off > 1:
        return f"WRONG: {off:.3g} of what rounding allows"
    print(f"right: {off:.3g} of what rounding allows", end="")
    return ""


class Timed(NamedTuple):
    """A product to time, and what is tried."""

    case: Case
    layout: Layout
    found: list[tuple[Variant, int, float]]


def cases_to_time(
    gpu: GpuModel, shapes: Iterable[tuple[int, int, int]], dtypes: list[str], layouts: list[str], top: int
) -> Iterator[Timed]:
    """Every product, laid out without gaps, and its candidates; memory is reserved on the CPU, and never touched."""
    for dtype in dtypes:
        for layout in layouts:
            for shape in shapes:
                case = Case(shape, dtype, layout)
                a, b, made = operands(case, "cpu", is_filled=False)
                which = product(a, b, made.out, dtype)
                yield Timed(case, which.layout, list(candidates(gpu, dtype, which.layout, which.shape, SPARE * top)))


def show_candidates(gpu: GpuModel, timed: Iterable[Timed]) -> None:
    """Print what the model ranks first."""
    for case, layout, found in timed:
        for variant, blocks, seconds in found[:3]:
            print(*case, f"{variant} {blocks} blocks, modelled {seconds * 1e6:.1f} us, {layout}")


def show_times(gpu: GpuModel, timed: list[Timed], top: int, finals: int, out: Path | None, limit_s: float) -> None:
    """Time candidates of every product, the fastest of them again beside cuBLAS."""
    from constrint.tune.measure import Timer

    end = time.monotonic() + limit_s
    every = (Kernel(variant, one.case.dtype, one.layout) for one in timed for variant, _, _ in one.found)
    useless = prepare(gpu, every)
    timer = Timer()
    with Table(out, COLUMNS, f"measured on {described()}") as table:
        for one in timed:
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            print(*one.case, one.layout, flush=True)
            usable = [each for each in one.found if Kernel(each[0], one.case.dtype, one.layout) not in useless]
            _time_one(gpu, one._replace(found=usable[:top]), finals, timer, table)


def _time_one(gpu: GpuModel, one: Timed, finals: int, timer: Any, table: Table) -> None:
    import torch

    (m, n, k), dtype = one.case.shape, one.case.dtype
    a, b, made = operands(one.case, "cuda")
    which = product(a, b, made.out, dtype)
    expected = Expected.of(a, b, dtype)
    element = DTYPES[dtype]
    moved = (m * k + k * n) * element + m * n * made.out.element_size()
    calls, entries = [], []
    if dtype in ("fp16", "bf16", "fp32"):
        other = torch.empty(m, n, dtype=made.out.dtype, device="cuda")
        calls.append(timer.graph(partial(torch.mm, a, b, out=other)))
    for variant, blocks, modelled in one.found:
        named = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": one.case.layout, "variant": str(variant)}
        named |= {"blocks": blocks, "large": which.layout.large, "small": which.layout.small}
        parts = dealt(variant, dtype, which.layout, which.shape).contributors(blocks)
        named |= {"parts": parts, "modelled_us": modelled * 1e6}
        # Said before it is launched, and written over.
        print(f"  {variant} {blocks}", end="\r", flush=True)
        try:
            made.poison()
            launch = product_launch(gpu, variant, which, dtype, blocks)
            call = timer.graph(launch.run)
            call()
            off = expected.error_of(made, variant.chain(dtype, k))
            if off > 1:
                table.add(**named, note=f"wrong: {off:.3g}")
                print(f"  {variant} {blocks} WRONG: {off:.3g}", flush=True)
                continue
            entries.append((timer.quick(call).median_s, call, launch, named))
        except (ConstrintError, ValueError, RuntimeError) as error:
            table.add(**named, note=str(error)[:80])
            print(f"  {variant} {blocks}: {error}", flush=True)
    entries.sort(key=lambda entry: entry[0])
    for entry in entries[finals:]:
        table.add(**entry[3], us=entry[0] * 1e6, note="quick")
    measured = timer.cold([*calls, *(entry[1] for entry in entries[:finals])]) if entries else []
    peer_s = measured[0].median_s if calls and measured else math.nan
    rows = [
        table.add(
            **entry[3], us=found.median_s * 1e6, cublas_us=peer_s * 1e6, ratio=peer_s / found.median_s,
            tb_per_s=moved / found.median_s / 1e12,
        )
        for found, entry in zip(measured[len(calls) :], entries, strict=False)
    ]  # fmt: skip
    if rows:
        best = min(rows, key=lambda row: float(row["us"]))
        print(
            f"  best {best['variant']} {best['blocks']} blocks: {best['us']} us, cuBLAS {best['cublas_us'] or '-'} us, "
            f"{best['ratio'] or '-'}, {best['tb_per_s']} TB/s",
            flush=True,
        )


def shape_of(text: str) -> tuple[int, int, int]:
    """M, N and K from the command line."""
    m, n, k = (int(number) for number in text.split(","))
    return m, n, k


def main() -> None:
    """Compile, show, check or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("what", choices=["compile", "show", "check", "time"])
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["bf16"])
    parser.add_argument("--layouts", nargs="+", choices=["rr", "rc", "cr", "cc"], default=["rr", "rc"])
    parser.add_argument("--shapes", nargs="+", help="M,N,K; those of the list if left out")
    parser.add_argument("--number", type=int, default=20, help="variants to compile per layout, products to check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top", type=int, default=24, help="candidates to time per product")
    parser.add_argument("--finals", type=int, default=4, help="candidates to time beside cuBLAS")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    if args.what == "compile":
        show_compiled(gpu, args.dtypes, args.number, args.seed)
        return
    if args.what == "check":
        raise SystemExit(check(gpu, args.number, args.seed, args.limit) > 0)
    shapes = [shape_of(text) for text in args.shapes] if args.shapes else SHAPES
    timed = cases_to_time(gpu, shapes, args.dtypes, args.layouts, args.top)
    if args.what == "show":
        show_candidates(gpu, timed)
    else:
        show_times(gpu, list(timed), args.top, args.finals, args.out, args.limit)


if __name__ == "__main__":
    main()
