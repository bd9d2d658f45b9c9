"""Check and time the CUDA kernel for products with a short side beside cuBLAS, or compile it where there is no GPU.

    python -m benchmarks.gemm.skinny.run --gpu h200 compile                    # registers and spills, without a GPU
    python -m benchmarks.gemm.skinny.run --gpu h200 show                       # what the model ranks first
    python -m benchmarks.gemm.skinny.run --gpu h200 check --number 200         # random products against fp64
    python -m benchmarks.gemm.skinny.run --gpu h200 time --layouts rr rc --out gemm_skinny.csv
    python -m benchmarks.gemm.skinny.run --gpu h200 time --shapes 64,64,65536 --stages 1 2 --fan-ins 0 8

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
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gemm.skinny.cases import (
    Case,
    Drawn,
    Expected,
    added_of,
    drawn_products,
    launch_of_case,
    operands,
    sides_of,
)
from benchmarks.gemm.skinny.configs import DTYPES, Config, candidates, chain_of, columns_of, config_at, dealt_of, named
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.skinny.shape import ALIGNED, SHIFTED, SkinnyLayout
from constrint.kernels.gemm.skinny.source import shape_of, source_of
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.kernels.launch.cuda import CudaSource, compile_cuda
from constrint.select import Workload

#: Candidates are ranked for this multiple of those that are timed, so that ones that spill can be passed over.
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


#: Types of C of what is timed.
OUTPUTS = {"fp16": "fp16", "bf16": "bf16", "int8": "int32"}


def plain_source(config: Config, dtype: str, layout: SkinnyLayout) -> CudaSource:
    """The kernel of a product to which nothing is added."""
    return source_of(config, dtype, layout, CompiledEpilogue(OUTPUTS.get(dtype, "fp32")))


def prepare(gpu: GpuModel, sources: Iterable[CudaSource]) -> set[str]:
    """Compile many at once; says which cannot be used, by their macros, since they spill or do not compile."""
    waiting = list({str(source.macros): source for source in sources}.values())
    print(f"compiling {len(waiting)} kernels", flush=True)
    useless = set()
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        made = [pool.submit(compile_cuda, gpu, source) for source in waiting]
        for source, binary in zip(waiting, made, strict=True):
            if binary.exception() is not None or binary.result().spill_bytes:
                useless.add(str(source.macros))
    print(f"{len(useless)} of them spill registers", flush=True)
    return useless


def show_compiled(gpu: GpuModel, dtypes: list[str], number: int, seed: int) -> None:
    """Compile configurations drawn at random; says which spill."""
    draw = random.Random(seed)
    for dtype in dtypes:
        for layout in (SkinnyLayout(k_major, large) for k_major in (True, False) for large in (ALIGNED, SHIFTED)):
            sizes = {"m": draw.choice(SHORT), "n": 65536 - layout.large, "k": 65536 - layout.large}
            every = columns_of(gpu, Product.of(Workload("gemm", sizes, dtype, {"transpose_b": int(layout.is_k_major)})))
            rows = range(len(every["tile_m"]))
            for row in draw.sample(rows, min(number, len(rows))):
                config = config_at(every, row)
                started = time.perf_counter()
                found = compile_cuda(gpu, plain_source(config, dtype, layout))
                took = time.perf_counter() - started
                lies = ("along K" if layout.is_k_major else "along rows") + " shifted" * layout.large
                print(
                    f"{dtype} {lies}: {named(config, dtype, layout)}: "
                    f"{found.registers} registers, {found.spill_bytes} bytes spilled, {took:.1f} s",
                    flush=True,
                )


def check(gpu: GpuModel, number: int, seed: int, limit_s: float) -> int:
    """Random products with random variants; how many were wrong."""
    import torch

    end = time.monotonic() + limit_s
    products = list(drawn_products(gpu, number, seed))
    prepare(gpu, (launch.source for one in products for launch in [_launch_of(gpu, one, "cpu")[0]]))
    wrong, done = 0, 0
    for one in products:
        if time.monotonic() > end:
            print("the time is over", flush=True)
            break
        done += 1
        # Said before it is launched: a kernel that hangs says nothing.
        print(*one, end=" ", flush=True)
        try:
            verdict, off = wrong_of(gpu, one)
        except (ConstrintError, ValueError, RuntimeError) as error:
            print(error, flush=True)
            return wrong + 1
        wrong += verdict != ""
        print(verdict or f"right: {off:.3g} of what rounding allows", flush=True)
    torch.cuda.synchronize()
    print(f"{wrong} of {done} wrong")
    return wrong


def _launch_of(gpu: GpuModel, one: Drawn, device: str) -> tuple[Any, Any, Any]:
    """The launch of a drawn product, its operands and C, and what is added."""
    tensors = operands(one.case, device, is_filled=device != "cpu")
    added = added_of(one.case, one.end, device)
    return launch_of_case(gpu, one.case, one.config, tensors, one.blocks, one.end, added), tensors, added


def wrong_of(gpu: GpuModel, one: Drawn) -> tuple[str, float]:
    """Return the fault of a product, if any, and its error as a share of the bound on rounding.

    A second launch sees whether counters were reset, and sums kept their order.
    """
    import torch

    launch, (a, b, made), added = _launch_of(gpu, one, "cuda")
    layout = sides_of(one.case, a, b, made.out).layout
    if layout != one.layout:
        return f"WRONG: it lies as {layout}", 0.0
    found = []
    for _ in range(2):
        launch.run()
        torch.cuda.synchronize()
        found.append(made.out.clone())
    if not torch.equal(found[0].nan_to_num(0), found[1].nan_to_num(0)):
        return "WRONG: two launches differ", 0.0
    chain = chain_of(one.config, one.case.dtype, layout, a.shape[1])
    off = Expected.of(a, b, one.case.dtype, one.end, added).error_of(made, chain)
    return (f"WRONG: {off:.3g} of what rounding allows" if off > 1 else ""), off


class Timed(NamedTuple):
    """A product to time, and what is tried: configurations with their predicted seconds."""

    case: Case
    layout: SkinnyLayout
    found: list[tuple[Config, float]]


class Tried(NamedTuple):
    """Settings of a search: candidates per combination, and the values of parameters that are combined."""

    top: int
    ways: dict[str, list[int]]


def cases_to_time(
    gpu: GpuModel, shapes: Iterable[tuple[int, int, int]], dtypes: list[str], layouts: list[str], tried: Tried
) -> Iterator[Timed]:
    """Every product, laid out without gaps, and its candidates; memory is reserved on the CPU, and never touched."""
    from constrint.kernels.gemm.operands import product_of

    for dtype in dtypes:
        for layout in layouts:
            for shape in shapes:
                case = Case(shape, dtype, layout)
                a, b, made = operands(case, "cpu", is_filled=False)
                lies = sides_of(case, a, b, made.out).layout
                which = product_of(a[None], b[None], None, None, made.out.dtype, is_three_pass=False)
                found = list(candidates(gpu, which, lies, SPARE * tried.top, tried.ways))
                yield Timed(case, lies, found)


def show_candidates(gpu: GpuModel, timed: Iterable[Timed]) -> None:
    """Print what the model ranks first."""
    for case, layout, found in timed:
        for config, seconds in found[:3]:
            dealt = _dealt(gpu, case, layout, config)
            name = named(config, case.dtype, layout)
            print(*case, f"{name} {dealt.blocks} blocks, modelled {seconds * 1e6:.1f} us, {layout}")


def _dealt(gpu: GpuModel, case: Case, layout: SkinnyLayout, config: Config) -> Any:
    m, n, k = case.shape
    sizes = (max(m, n), min(m, n), k)
    return dealt_of(gpu, config, shape_of(config, case.dtype, layout), sizes)


def show_times(gpu: GpuModel, timed: list[Timed], tried: Tried, finals: int, out: Path | None, limit_s: float) -> None:
    """Time candidates of every product, the fastest of them again beside cuBLAS."""
    from constrint.tune.measure import Timer

    end = time.monotonic() + limit_s
    useless = prepare(
        gpu, (plain_source(config, one.case.dtype, one.layout) for one in timed for config, _ in one.found)
    )
    timer = Timer()
    with Table(out, COLUMNS, f"measured on {described()}") as table:
        for one in timed:
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            print(*one.case, one.layout, flush=True)
            usable = [
                each
                for each in one.found
                if str(plain_source(each[0], one.case.dtype, one.layout).macros) not in useless
            ]
            _time_one(gpu, one._replace(found=_first_of_each(usable, tried)), finals, timer, table)


def _first_of_each(found: list[tuple[Config, float]], tried: Tried) -> list[tuple[Config, float]]:
    """The first ones of each way."""
    taken: Counter[tuple[int, ...]] = Counter()
    first = []
    for config, seconds in found:
        way = tuple(config[name] for name in tried.ways)
        if taken[way] < tried.top:
            taken[way] += 1
            first.append((config, seconds))
    return first


def _time_one(gpu: GpuModel, one: Timed, finals: int, timer: Any, table: Table) -> None:
    import torch

    (m, n, k), dtype = one.case.shape, one.case.dtype
    a, b, made = operands(one.case, "cuda")
    expected = Expected.of(a, b, dtype)
    moved = (m * k + k * n) * ELEMENT_BYTES[dtype] + m * n * made.out.element_size()
    calls, entries = [], []
    if dtype in ("fp16", "bf16", "tf32"):
        other = torch.empty(m, n, dtype=made.out.dtype, device="cuda")
        calls.append(timer.graph(partial(torch.mm, a, b, out=other)))
    for config, modelled in one.found:
        row: dict[str, Any] = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": one.case.layout}
        row |= {"variant": named(config, dtype, one.layout), "large": one.layout.large, "small": one.layout.small}
        dealt = _dealt(gpu, one.case, one.layout, config)
        row |= {"blocks": dealt.blocks, "parts": dealt.contributors, "modelled_us": modelled * 1e6}
        said = f"  {row['variant']} {dealt.blocks}"
        # Said before it is launched, and written over.
        print(said, end="\r", flush=True)
        try:
            made.poison()
            launch = launch_of_case(gpu, one.case, config, (a, b, made))
            call = timer.graph(launch.run)
            call()
            off = expected.error_of(made, chain_of(config, dtype, one.layout, k))
            if off > 1:
                table.add(**row, note=f"wrong: {off:.3g}")
                print(f"{said} WRONG: {off:.3g}", flush=True)
                continue
            entries.append((timer.quick(call).median_s, call, launch, row))
        except (ConstrintError, ValueError, RuntimeError) as error:
            table.add(**row, note=str(error)[:80])
            print(f"{said}: {error}", flush=True)
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


def sizes_of(text: str) -> tuple[int, int, int]:
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
    parser.add_argument("--stages", nargs="+", type=int, default=[1], help="steps under way: 1, 2")
    parser.add_argument("--fan-ins", nargs="+", type=int, default=[0], help="neighbours that add first; 0: none")
    parser.add_argument(
        "--parts", nargs="+", type=int, default=[], help="blocks of a tile, in place of those ranked first"
    )
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
    shapes = [sizes_of(text) for text in args.shapes] if args.shapes else SHAPES
    ways = {"num_stages": args.stages, "fan_in": args.fan_ins} | ({"split_k": args.parts} if args.parts else {})
    tried = Tried(args.top, ways)
    timed = cases_to_time(gpu, shapes, args.dtypes, args.layouts, tried)
    if args.what == "show":
        show_candidates(gpu, timed)
    else:
        show_times(gpu, list(timed), tried, args.finals, args.out, args.limit)


if __name__ == "__main__":
    main()
