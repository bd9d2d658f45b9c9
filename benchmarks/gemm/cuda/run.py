"""Check and time configurations of the CUDA GEMM beside cuBLAS, or compile them where there is no GPU.

    python -m benchmarks.gemm.cuda.run --gpu h200 compile                     # registers and spills, without a GPU
    python -m benchmarks.gemm.cuda.run --gpu h200 check --number 200          # random products and ends against fp64
    python -m benchmarks.gemm.cuda.run --gpu h200 explore --number 24 --top 150 --out gemm_explored.csv
    python -m benchmarks.gemm.cuda.run --gpu h200 explore --random --number 64 --top 40 --seed 7 --out gemm_random.csv
    python -m benchmarks.gemm.cuda.run --gpu h200 explore --random --sides 256 8192 --step 64 --out gemm_aligned.csv
    python -m benchmarks.gemm.cuda.run --gpu h200 time --top 24 --out gemm_variants.csv

`time` takes, for each product, the configurations that the kernel's cost model ranks first. Times are those of a kernel
in a CUDA graph, after the L2 was overwritten, each beside cuBLAS in turn.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gemm.cuda.configs import DEALT, DTYPES, SPEC, Config, drawn, named, product_of, ranked, spread
from benchmarks.gemm.cuda.products import End, exact_product, launch_of, made, share_of
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.units import needs_k_major
from constrint.kernels.launch.cuda import compile_cuda

#: Products on which kernels in Triton are slower than cuBLAS.
SHAPES = (
    (5000, 5000, 5000), (1536, 1536, 6144), (32768, 256, 256), (2560, 2560, 2560), (64, 64, 65536), (3328, 3328, 3328),
    (2304, 2304, 2304), (1000, 1000, 1000), (1536, 1536, 1536), (4096, 4096, 4096), (8192, 8192, 8192),
    (1000, 3000, 2000), (256, 7168, 2048), (16384, 3072, 768), (3072, 3072, 3072), (64, 8192, 8192),
)  # fmt: skip
#: Sides of products that are checked.
SIDES = (1, 8, 64, 100, 129, 256, 511, 1000, 1024, 3000)
LAYOUTS = ("rr", "rc", "cr", "cc")
PRODUCT = ("m", "n", "k", "dtype", "layout")
COLUMNS = (*PRODUCT, "config", *DEALT, "us", "cublas_us", "ratio", "note")


class Case(NamedTuple):
    """A product with a configuration."""

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    config: Config
    end: End = End()
    pad: int = 16

    @property
    def facts(self) -> dict[str, Any]:
        """The product as columns of a table."""
        return {**dict(zip("mnk", self.shape, strict=True)), "dtype": self.dtype, "layout": self.layout}


def prepare(gpu: GpuModel, cases: Iterable[Case]) -> None:
    """Compile many at once; what cannot be compiled says so when it is launched."""
    sources = {}
    for one in cases:
        given = made(one.shape, one.dtype, one.layout, one.end, pad=one.pad, device="meta")
        source = launch_of(gpu, one.config, given, one.end).source
        sources[source.text, tuple(source.macros.items())] = source
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(compile_cuda, gpu, source) for source in sources.values()]:
            done.exception()


def layouts_of(dtype: str) -> tuple[str, ...]:
    """Return the layouts that operands of a dtype may have."""
    return ("rc",) if needs_k_major(dtype) else LAYOUTS


def random_cases(gpu: GpuModel, number: int, seed: int) -> Iterator[Case]:
    """Random products with random configurations and ends."""
    draw = random.Random(seed)
    for _ in range(number):
        dtype = draw.choice(("bf16", "fp16", *DTYPES))
        layout, shape = draw.choice(layouts_of(dtype)), tuple(draw.choices(SIDES, k=3))
        end = End.drawn(draw, dtype)
        product = product_of((shape[0], shape[1], shape[2]), dtype, layout, is_plain=end.is_plain)
        config = drawn(gpu, product, draw)
        yield Case((shape[0], shape[1], shape[2]), dtype, layout, config, end, draw.choice((16, 16, 8, 1)))


def show_compiled(gpu: GpuModel, number: int, seed: int) -> int:
    """Compile random cases; how many spill."""
    spilled = 0
    for one in random_cases(gpu, number, seed):
        given = made(one.shape, one.dtype, one.layout, one.end, pad=one.pad, device="meta")
        started = time.perf_counter()
        found = compile_cuda(gpu, launch_of(gpu, one.config, given, one.end).source)
        took = time.perf_counter() - started
        spilled += found.spill_bytes > 0
        words = f"{found.registers} registers, {found.spill_bytes} bytes spilled, {took:.1f} s"
        print(f"{one.dtype} {one.layout} {named(one.config)} {one.end}: {words}", flush=True)
    print(f"{spilled} of {number} spill")
    return spilled


def check(gpu: GpuModel, number: int, seed: int, limit_s: float) -> int:
    """Random products with random configurations; how many were wrong."""
    import torch

    cases = list(random_cases(gpu, number, seed))
    prepare(gpu, cases)
    wrong, done, end = 0, 0, time.monotonic() + limit_s
    for one in cases:
        if time.monotonic() > end:
            break
        done += 1
        given = made(one.shape, one.dtype, one.layout, one.end, pad=one.pad)
        # Said before it is launched: a kernel that hangs says nothing.
        words = [f"{name}={one.config[name]}" for name in DEALT]
        print(*one.shape, one.dtype, one.layout, named(one.config), *words, one.end, one.pad, end=" ", flush=True)
        try:
            launch = launch_of(gpu, one.config, given, one.end)
            for _ in range(2):
                launch.run()
            torch.cuda.synchronize()
        except (ConstrintError, RuntimeError) as error:
            print(error, flush=True)
            return wrong + 1
        off = share_of(exact_product(given, one.dtype, one.end), given)
        wrong += off > 1
        print(f"{'WRONG' if off > 1 else 'right'}: {off:.3g} of what rounding allows", flush=True)
    print(f"{wrong} of {done} wrong")
    return wrong


def show_times(gpu: GpuModel, dtype: str, layout: str, top: int, out: Path | None, limit_s: float) -> None:
    """Time candidates of every product, the fastest of them again beside cuBLAS."""
    import torch

    from constrint.tune.measure import Timer

    every = {
        shape: [Case(shape, dtype, layout, c) for c in ranked(gpu, product_of(shape, dtype, layout), top)]
        for shape in SHAPES
    }
    prepare(gpu, itertools.chain(*every.values()))
    timer, end = Timer(), time.monotonic() + limit_s
    with Table(out, COLUMNS, f"measured on {described()}") as table:
        for shape, cases in every.items():
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            given = made(shape, dtype, layout, End())
            exact = exact_product(given, dtype, End())
            other = torch.empty(shape[:2], dtype=given.out.dtype, device="cuda")
            peer = timer.graph(partial(torch.mm, given.a, given.b, out=other))
            entries: list[tuple[float, Any, dict[str, Any]]] = []
            for one in cases:
                facts = one.facts | {"config": named(one.config), **{name: one.config[name] for name in DEALT}}
                try:
                    call = timer.graph(launch_of(gpu, one.config, given, End()).run)
                    off = share_of(exact, given)
                    if off > 1:
                        table.add(**facts, note=f"wrong: {off:.3g}")
                        continue
                    entries.append((timer.quick(call).median_s, call, facts))
                except (ConstrintError, RuntimeError) as error:
                    table.add(**facts, note=str(error)[:80])
            entries.sort(key=lambda entry: entry[0])
            measured = timer.cold([peer, *(entry[1] for entry in entries[:8])])
            for found, (_, _, facts) in zip(measured[1:], entries, strict=False):
                us, cublas_us = found.median_s * 1e6, measured[0].median_s * 1e6
                table.add(**facts, us=us, cublas_us=cublas_us, ratio=cublas_us / us)
                if facts is entries[0][2] or us < cublas_us:
                    words = (*shape, facts["config"], "parts", facts["split_k"])
                    print(*words, f"{us:.1f} us, cuBLAS {cublas_us:.1f} us: {cublas_us / us:.3f}", flush=True)


def explored(
    gpu: GpuModel, seed: int, number: int, each: int, *, is_random: bool = False,
    least: int = 16, most: int = 16384, step: int = 8,
) -> Iterator[Case]:  # fmt: skip
    """Products of any sizes, and configurations of each: what the model ranks first, and others not far off.

    Args:
        gpu: The hardware model.
        seed: The seed of all draws.
        number: Products: those that are named, then random ones.
        each: Configurations of each.
        is_random: Whether all products are random; half of them have sides that are multiples of `step`, any layout.
        least, most: The shortest side that is drawn, and the longest.
        step: Sides of every other random product are multiples of this.
    """
    draw = random.Random(seed)

    def side(step: int = 1) -> int:
        return max(int(2 ** draw.uniform(log2(least), log2(most))) // step * step, step)

    def sides(step: int) -> tuple[int, int, int]:
        return side(step), side(step), side(step)

    drawn_shapes = (sides(step if is_random and place % 2 else 1) for place in range(8 * number))
    shapes = [*(() if is_random else SHAPES), *drawn_shapes]
    shapes = [(m, n, k) for m, n, k in shapes if m * n * k < 2**39 and m * n < 2**28 and k >= 32]
    for place, shape in enumerate(shapes[:number]):
        layout = draw.choice(LAYOUTS) if is_random else ("rr", "rc", "rc", "cr", "rr", "cc")[place % 6]
        for config in spread(gpu, product_of(shape, "bf16", layout), each, draw, slowest=2.0 if is_random else 3.0):
            yield Case(shape, "bf16", layout, config | {"group_m": draw.choice((2, 4, 8, 16))})


def explore(gpu: GpuModel, cases: list[Case], out: Path | None, limit_s: float) -> None:
    """Time configurations of many products, by which a cost model is judged."""
    import torch

    from constrint.tune.measure import Timer

    timer, end = Timer(), time.monotonic() + limit_s
    prepare(gpu, cases)
    print(f"{len(cases)} configurations are compiled", flush=True)
    names = [param.name for param in SPEC.tile_params(gpu, "bf16")]
    with Table(out, (*PRODUCT, *names, "us", "cublas_us", "note"), f"measured on {described()}") as table:
        for (shape, dtype, layout), found in itertools.groupby(cases, lambda one: one[:3]):
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            given = made(shape, dtype, layout, End())
            exact = exact_product(given, dtype, End())
            other = torch.empty(shape[:2], dtype=given.out.dtype, device="cuda")
            peer = timer.cold([timer.graph(partial(torch.mm, given.a, given.b, out=other))])[0].median_s * 1e6
            best = (float("inf"), "")
            for one in found:
                facts = one.facts | one.config | {"cublas_us": peer}
                given.whole.fill_(float("nan"))
                try:
                    call = timer.graph(launch_of(gpu, one.config, given, End()).run)
                except (ConstrintError, RuntimeError) as error:
                    table.add(**facts, note=str(error)[:80])
                    continue
                us = timer.quick(call).median_s * 1e6
                off = share_of(exact, given)
                table.add(**facts, us=us, note="" if off <= 1 else f"wrong: {off:.3g}")
                best = min(best, (us, named(one.config)))
            print(*shape, layout, f"cuBLAS {peer:.1f} us, {best[1]} {best[0]:.1f} us: {peer / best[0]:.3f}", flush=True)


def main() -> None:
    """Compile, check or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("what", choices=["compile", "check", "time", "explore"])
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16", help="of what is timed")
    parser.add_argument("--layout", choices=LAYOUTS, default="rr", help="A and B, by rows or columns")
    parser.add_argument("--number", type=int, default=20, help="cases to compile, products to check or explore")
    parser.add_argument("--random", action="store_true", help="explore random products alone")
    parser.add_argument("--sides", type=int, nargs=2, default=(16, 16384), metavar=("LEAST", "MOST"), help="of them")
    parser.add_argument("--step", type=int, default=8, help="sides of every other random product are its multiples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top", type=int, default=24, help="candidates to time per product")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    if args.what == "compile":
        raise SystemExit(show_compiled(gpu, args.number, args.seed) > 0)
    if args.what == "check":
        raise SystemExit(check(gpu, args.number, args.seed, args.limit) > 0)
    if args.what == "explore":
        least, most = args.sides
        drawn_by = {"is_random": args.random, "least": least, "most": most, "step": args.step}
        cases = explored(gpu, args.seed, args.number, args.top, **drawn_by)
        explore(gpu, list(cases), args.out, args.limit)
    else:
        show_times(gpu, args.dtype, args.layout, args.top, args.out, args.limit)


if __name__ == "__main__":
    main()
