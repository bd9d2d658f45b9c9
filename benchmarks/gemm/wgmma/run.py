"""Check and time variants of the CUDA GEMM beside cuBLAS, or compile them where there is no GPU.

    python -m benchmarks.gemm.wgmma.run --gpu h200 compile                     # registers and spills, without a GPU
    python -m benchmarks.gemm.wgmma.run --gpu h200 check --number 200          # random products against fp64
    python -m benchmarks.gemm.wgmma.run --gpu h200 explore --number 24 --top 150 --out gemm_explored.csv
    python -m benchmarks.gemm.wgmma.run --gpu h200 time --top 24 --out gemm_variants.csv

`time` takes, for each product, the variants that a plain model ranks first: rounds of tiles on the busiest SM, each as
long as its matrix instructions or its loads, whatever is longer. Times are those of a kernel in a CUDA graph, after the
L2 was overwritten, each beside cuBLAS in turn.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, astuple, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gemm.wgmma.launch import Schedule, product_launch, steps_of
from benchmarks.gemm.wgmma.variant import DTYPES, Variant, variants, waves
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import compile_cuda

#: Products on which kernels in Triton are slower than cuBLAS.
SHAPES = (
    (5000, 5000, 5000), (1536, 1536, 6144), (32768, 256, 256), (2560, 2560, 2560), (64, 64, 65536), (3328, 3328, 3328),
    (2304, 2304, 2304), (1000, 1000, 1000), (1536, 1536, 1536), (4096, 4096, 4096), (8192, 8192, 8192),
    (1000, 3000, 2000), (256, 7168, 2048), (16384, 3072, 768), (3072, 3072, 3072), (64, 8192, 8192),
)  # fmt: skip
#: For the plain model, of an SM: multiply-adds of 16-bit elements and bytes loaded per clock, clocks of a tile beyond
#: its steps, and of starting clusters. Nothing is fitted.
FMA_PER_CLK, LOAD_BYTES_PER_CLK, TILE_CLK, CLUSTER_CLK = 2048, 48, 2500, 1500
#: Parts along K that are tried.
PARTS = (2, 3, 4, 6, 8)
COLUMNS = (
    "m",
    "n",
    "k",
    "dtype",
    "layout",
    "variant",
    "group",
    "parts",
    "only_last",
    "us",
    "cublas_us",
    "ratio",
    "note",
)


class Drawn(NamedTuple):
    """A product to check."""

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    variant: Variant
    schedule: Schedule


def operands(shape: tuple[int, int, int], dtype: str, layout: str) -> tuple[Any, Any, Any]:
    """A, B and an output full of NaN; rows start at multiples of 16 bytes, whatever their length."""
    import torch

    m, n, k = shape
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp8": torch.float8_e4m3fn}
    kind = kinds.get(dtype, torch.int8)

    def made(rows: int, columns: int, *, is_row_major: bool, poison: bool = False) -> Any:
        if not is_row_major:
            return made(columns, rows, is_row_major=True, poison=poison).T
        pitch = -(-columns // 16) * 16
        if poison:
            out = torch.float32 if dtype in ("tf32", "fp8") else torch.int32 if dtype == "int8" else kind
            return torch.full((rows, pitch), float("nan") if out.is_floating_point else -1, dtype=out, device="cuda")
        if dtype == "int8":
            return torch.randint(-99, 99, (rows, pitch), dtype=kind, device="cuda")[:, :columns]
        return torch.randn(rows, pitch, device="cuda").to(kind)[:, :columns]

    a = made(m, k, is_row_major=layout[0] == "r")
    b = made(k, n, is_row_major=layout[1] == "r")
    return a, b, made(m, n, is_row_major=True, poison=True)


def error_of(a: Any, b: Any, whole: Any, dtype: str) -> float:
    """The largest error as a share of what rounding allows; infinite where something else was written."""
    return share_of(exact_product(a, b, dtype), whole, dtype)


def exact_product(a: Any, b: Any, dtype: str) -> tuple[Any, Any]:
    """The product in fp64, and how much each element may be off."""
    import torch

    x, y = a.double(), b.double()
    if dtype == "tf32":
        # The TMA unit rounds to the nearest, halves to even.
        words = (t.float().view(torch.int32) for t in (a, b))
        x, y = (((w + 0xFFF + (w >> 13 & 1)) & ~0x1FFF).view(torch.float32).double() for w in words)
    exact, size = x @ y, x.abs() @ y.abs()
    step = {"fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.0}.get(dtype, 2.0**-23)
    # Matrix units sum fp8 in a fraction of 13 bits, others in one of 23; as many products at a time as 32 bytes hold.
    times = 1 + a.shape[1] * a.element_size() / 32
    each = {"fp8": 2.0**-13 * times, "int8": 0.0}.get(dtype, 2.0**-23 * times)
    least = {"fp16": 2.0**-24, "int8": 0.25}.get(dtype, 1e-30)
    return exact, step * exact.abs() + each * size + least


def share_of(allowed: tuple[Any, Any], whole: Any, dtype: str) -> float:
    """The largest error as a share of what is allowed; infinite where something else was written."""
    exact, bound = allowed
    m, n = exact.shape
    rest = whole[:, n:]
    is_kept = rest.isnan().all() if rest.is_floating_point() else (rest == -1).all()
    if not bool(is_kept):
        return float("inf")
    got = whole[:m, :n].double()
    error = ((got - exact).abs() / bound).max().item()
    return error if error == error else float("inf")


def modelled_clk(
    variant: Variant, gpu: GpuModel, shape: tuple[int, int, int], dtype: str, layout: str, parts: int = 1
) -> float:
    """Clocks by the plain model."""
    m, n, k = shape
    rounds, _ = waves(variant, gpu.device.sm_count, m, n * parts)
    element = DTYPES[dtype][0]
    multiply = variant.rows * variant.columns * 128 / element / (FMA_PER_CLK * 2 / element)
    rows_k_major, columns_k_major = sides_of(variant, layout)
    # An operand that does not lie along K is loaded in slabs of 128 bytes.
    rows, columns = (
        width if k_major else -(-width * element // 128) * 128 // element
        for width, k_major in ((variant.rows, rows_k_major), (variant.columns, columns_k_major))
    )
    loaded = 128 * (rows / variant.cluster_columns + columns / variant.cluster_rows)
    step = max(multiply, loaded / LOAD_BYTES_PER_CLK)
    outside = TILE_CLK * (0.4 if variant.in_turns else 1.0) + (2 * TILE_CLK if parts > 1 else 0)
    return CLUSTER_CLK * (variant.cluster > 1) + rounds * (steps_of(k, dtype) / parts * step + outside)


def candidates(
    gpu: GpuModel, shape: tuple[int, int, int], dtype: str, layout: str, top: int, slowest: float = math.inf
) -> Iterator[tuple[Variant, Schedule]]:
    """What the plain model ranks first; of variants that differ in stages or the cluster alone, all."""
    majors = {0: (layout[0] == "r", layout[1] == "c"), 1: (layout[1] == "c", layout[0] == "r")}
    ranked = []
    for turned, (rows_k_major, columns_k_major) in majors.items():
        for variant in variants(gpu, dtype, rows_k_major=rows_k_major, columns_k_major=columns_k_major):
            if variant.turned != turned:
                continue
            for parts in (1, *PARTS):
                if parts == 1 or steps_of(shape[2], dtype) >= 4 * parts:
                    ranked.append(
                        (modelled_clk(variant, gpu, shape, dtype, layout, parts), variant, Schedule(8, parts))
                    )
    ranked.sort(key=lambda entry: entry[0])
    for clk, variant, schedule in ranked[:top]:
        if clk <= slowest * ranked[0][0]:
            yield variant, schedule


def show_compiled(gpu: GpuModel, dtype: str, layout: str, number: int) -> None:
    """Compile variants drawn at random; says which spill."""
    k_major = {"rows_k_major": layout[0] == "r", "columns_k_major": layout[1] == "c"}
    every = list(variants(gpu, dtype, **k_major))
    for variant in random.Random(1).sample(every, min(number, len(every))):
        started = time.perf_counter()
        found = compile_cuda(gpu, variant.source(dtype, **k_major))
        took = time.perf_counter() - started
        print(
            f"{variant}: {variant.sums} sums, {found.registers} registers, "
            f"{found.spill_bytes} bytes spilled, {took:.1f} s"
        )


def prepare(gpu: GpuModel, kernels: Iterable[tuple[Variant, str, str]]) -> None:
    """Compile many at once; what cannot be compiled says so when it is launched."""
    sources = [
        variant.source(dtype, **dict(zip(("rows_k_major", "columns_k_major"), sides_of(variant, layout), strict=True)))
        for variant, dtype, layout in set(kernels)
    ]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for made in [pool.submit(compile_cuda, gpu, source) for source in sources]:
            made.exception()


def sides_of(variant: Variant, layout: str) -> tuple[bool, bool]:
    """Whether the operand that gives wgmma's rows lies along K, and whether the other does."""
    a, b = layout[0] == "r", layout[1] == "c"
    return (b, a) if variant.turned else (a, b)


def drawn_products(gpu: GpuModel, number: int, seed: int) -> Iterator[Drawn]:
    """Random products with random variants."""
    draw = random.Random(seed)
    every = {
        key: list(variants(gpu, key[0], rows_k_major=key[1], columns_k_major=key[2]))
        for key in itertools.product(("bf16", "fp16"), (True, False), (True, False))
    } | {(dtype, True, True): list(variants(gpu, dtype)) for dtype in ("tf32", "fp8", "int8")}
    for _ in range(number):
        dtype, rows_k_major, columns_k_major = key = draw.choice(list(every))
        variant = draw.choice(every[key])
        sides = (rows_k_major, columns_k_major)[:: -1 if variant.turned else 1]
        layout = ("r" if sides[0] else "c") + ("c" if sides[1] else "r")
        m, n, k = draw.choices([1, 8, 64, 100, 129, 256, 511, 1000, 1024, 3000], k=3)
        steps = steps_of(k, dtype)
        schedule = Schedule(draw.choice([1, 2, 8]), draw.randint(1, min(4, steps)), draw.random() < 0.5)
        yield Drawn((m, n, k), dtype, layout, variant, schedule)


def check(gpu: GpuModel, number: int, seed: int, limit_s: float) -> int:
    """Random products with random variants; how many were wrong."""
    import torch

    products = list(drawn_products(gpu, number, seed))
    prepare(gpu, ((one.variant, one.dtype, one.layout) for one in products))
    wrong, done, end = 0, 0, time.monotonic() + limit_s
    for one in products:
        if time.monotonic() > end:
            break
        done += 1
        a, b, whole = operands(one.shape, one.dtype, one.layout)
        # Said before it is launched: a kernel that hangs says nothing.
        print(*one, end=" ", flush=True)
        try:
            launch = product_launch(gpu, one.variant, a, b, whole[:, : one.shape[1]], one.dtype, one.schedule)
            for _ in range(2):
                launch.run()
            torch.cuda.synchronize()
        except (ConstrintError, ValueError, RuntimeError) as error:
            print(error, flush=True)
            return wrong + 1
        off = error_of(a, b, whole, one.dtype)
        wrong += off > 1
        print(f"{'WRONG' if off > 1 else 'right'}: {off:.3g} of what rounding allows", flush=True)
    print(f"{wrong} of {done} wrong")
    return wrong


def show_times(gpu: GpuModel, dtype: str, layout: str, top: int, out: Path | None, limit_s: float) -> None:
    """Time candidates of every product, the fastest of them again beside cuBLAS."""
    import torch

    from constrint.tune.measure import Timer

    every = {shape: list(candidates(gpu, shape, dtype, layout, top)) for shape in SHAPES}
    prepare(gpu, ((variant, dtype, layout) for found in every.values() for variant, _ in found))
    timer, end = Timer(), time.monotonic() + limit_s
    with Table(out, COLUMNS, f"measured on {described()}") as table:
        for shape in SHAPES:
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            a, b, whole = operands(shape, dtype, layout)
            c = whole[:, : shape[1]]
            other = torch.empty(shape[:2], dtype=c.dtype, device="cuda")
            peer = timer.graph(partial(torch.mm, a, b, out=other))
            entries = []
            for variant, schedule in every[shape]:
                named = {"m": shape[0], "n": shape[1], "k": shape[2], "dtype": dtype, "layout": layout}
                named |= {
                    "variant": str(variant),
                    **dict(zip(("group", "parts", "only_last"), astuple(schedule), strict=True)),
                }
                try:
                    launch = product_launch(gpu, variant, a, b, c, dtype, schedule)
                    call = timer.graph(launch.run)
                    off = error_of(a, b, whole, dtype)
                    if off > 1:
                        table.add(**named, note=f"wrong: {off:.3g}")
                        continue
                    entries.append((timer.quick(call).median_s, call, launch, named))
                except (ConstrintError, ValueError, RuntimeError) as error:
                    table.add(**named, note=str(error)[:80])
            entries.sort(key=lambda entry: entry[0])
            measured = timer.cold([peer, *(entry[1] for entry in entries[:8])])
            for found, entry in zip(measured[1:], entries, strict=False):
                us, cublas_us = found.median_s * 1e6, measured[0].median_s * 1e6
                table.add(**entry[3], us=us, cublas_us=cublas_us, ratio=cublas_us / us)
                if entry is entries[0] or us < cublas_us:
                    words = (*shape, entry[3]["variant"], "parts", entry[3]["parts"])
                    print(*words, f"{us:.1f} us, cuBLAS {cublas_us:.1f} us: {cublas_us / us:.3f}", flush=True)


def explored(gpu: GpuModel, seed: int, number: int, each: int) -> Iterator[Drawn]:
    """Products of any sizes, and configurations of each: what the plain model ranks first, and others not far off."""
    draw = random.Random(seed)

    def side() -> int:
        return int(2 ** draw.uniform(4, 14))

    shapes = [*SHAPES, *((side(), side(), side()) for _ in range(8 * number))]
    shapes = [(m, n, k) for m, n, k in shapes if m * n * k < 2**39 and m * n < 2**28 and k >= 32]
    for place, shape in enumerate(shapes[:number]):
        layout = ("rr", "rc", "rc", "cr", "rr", "cc")[place % 6]
        ranked = list(candidates(gpu, shape, "bf16", layout, 10**6, slowest=3.0))
        chosen = ranked[: each // 3] + draw.sample(ranked[each // 3 :], min(each - each // 3, len(ranked) - each // 3))
        for variant, schedule in chosen:
            yield Drawn(shape, "bf16", layout, variant, replace(schedule, group=draw.choice((2, 4, 8, 16))))


def explore(gpu: GpuModel, seed: int, number: int, each: int, out: Path | None, limit_s: float) -> None:
    """Time configurations of many products, for a cost model to be fitted to and judged by."""
    import torch

    from constrint.tune.measure import Timer

    timer, end = Timer(), time.monotonic() + limit_s
    drawn = list(explored(gpu, seed, number, each))
    prepare(gpu, ((one.variant, one.dtype, one.layout) for one in drawn))
    print(f"{len(drawn)} configurations are compiled", flush=True)
    columns = ("m", "n", "k", "dtype", "layout", *(f.name for f in fields(Variant)), "group", "parts", "only_last")
    with Table(out, (*columns, "us", "cublas_us", "note"), f"measured on {described()}") as table:
        for (shape, dtype, layout), found in itertools.groupby(drawn, lambda one: one[:3]):
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            a, b, whole = operands(shape, dtype, layout)
            exact = exact_product(a, b, dtype)
            other = torch.empty(shape[:2], dtype=whole.dtype, device="cuda")
            peer = timer.cold([timer.graph(partial(torch.mm, a, b, out=other))])[0].median_s * 1e6
            best = (float("inf"), "")
            for one in found:
                facts = dict(zip("mnk", shape, strict=True)) | {"dtype": dtype, "layout": layout, "cublas_us": peer}
                facts |= asdict(one.variant) | asdict(one.schedule)
                whole.fill_(float("nan"))
                try:
                    launch = product_launch(gpu, one.variant, a, b, whole[:, : shape[1]], dtype, one.schedule)
                    call = timer.graph(launch.run)
                except (ConstrintError, ValueError) as error:
                    table.add(**facts, note=str(error)[:80])
                    continue
                us = timer.quick(call).median_s * 1e6
                off = share_of(exact, whole, dtype)
                table.add(**facts, us=us, note="" if off <= 1 else f"wrong: {off:.3g}")
                best = min(best, (us, str(one.variant)))
            print(*shape, layout, f"cuBLAS {peer:.1f} us, {best[1]} {best[0]:.1f} us: {peer / best[0]:.3f}", flush=True)


def main() -> None:
    """Compile, check or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("what", choices=["compile", "check", "time", "explore"])
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16")
    parser.add_argument("--layout", choices=["rr", "rc", "cr", "cc"], default="rr", help="A and B, by rows or columns")
    parser.add_argument("--number", type=int, default=20, help="variants to compile, products to check or explore")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top", type=int, default=24, help="candidates to time per product")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    if args.what == "compile":
        show_compiled(gpu, args.dtype, args.layout, args.number)
    elif args.what == "check":
        raise SystemExit(check(gpu, args.number, args.seed, args.limit) > 0)
    elif args.what == "explore":
        explore(gpu, args.seed, args.number, args.top, args.out, args.limit)
    else:
        show_times(gpu, args.dtype, args.layout, args.top, args.out, args.limit)


if __name__ == "__main__":
    main()
