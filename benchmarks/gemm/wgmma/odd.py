"""Check and time the CUDA GEMM on operands whose rows start anywhere, which it gathers.

    python -m benchmarks.gemm.wgmma.odd --gpu h200 check --number 150 --limit 240 --out gemm_odd_checked.csv
    python -m benchmarks.gemm.wgmma.odd --gpu h200 time --top 10 --limit 300 --out gemm_odd.csv

`check` draws sizes, strides, first addresses, layouts, ends and configurations; operands stand amid NaN (integers amid
others), results amid poison, and every element is compared with fp64 under a bound. A launch is named before it runs;
one that takes longer than `--patience` seconds is called hanging, and ends the program. `time` takes what the kernel's
cost model ranks first, and shows it beside cuBLAS, beside what our other kernels take with the copy that they make
first, and beside the same configuration on operands with rows at multiples of 16 bytes. `--compile` launches nothing.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gemm.wgmma.configs import DEALT, SPEC, Config, drawn, named, ranked
from benchmarks.gemm.wgmma.products import End, Made, exact_product, launch_of, made, share_of
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError, InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cuda.gather import Gathered
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, needs_k_major
from constrint.kernels.launch.cuda import CudaLaunch, compile_cuda

#: Sides of products that are checked.
SIDES = (1, 3, 7, 8, 9, 63, 65, 100, 127, 129, 255, 257, 500, 511, 1001, 1024, 2047, 3001)
#: What is timed: sizes and layout.
TIMED = (
    ((4096, 50257, 768), "rr"), ((512, 50257, 768), "rr"), ((3, 50257, 768), "rr"), ((1000, 3001, 2001), "rr"),
    ((2047, 2047, 2047), "rr"), ((2047, 2047, 2047), "rc"), ((768, 50257, 4096), "cr"), ((4095, 4097, 4096), "rr"),
)  # fmt: skip
PRODUCT = ("m", "n", "k", "dtype", "layout")
CONFIG = ("config", *DEALT)
CHECKED = (*PRODUCT, *CONFIG, "end", "places", "share")
TIMES = (*PRODUCT, *CONFIG, "us", "cublas_us", "kernels_us", "aligned_us", "note")


class Places(NamedTuple):
    """Where operands lie: (first element, elements between rows) of A and of B."""

    a: tuple[int, int] = (0, 0)
    b: tuple[int, int] = (0, 0)

    @staticmethod
    def drawn(draw: random.Random) -> Places:
        """Some at random, most of them odd."""
        return Places(*((draw.choice((0, 0, 1, 3, 8, 13)), draw.choice((0, 0, 1, 2, 3, 5, 8))) for _ in range(2)))


class Case(NamedTuple):
    """A product with a configuration."""

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    config: Config
    end: End = End()
    places: Places = Places()
    pad: int = 16

    @property
    def facts(self) -> dict[str, Any]:
        """As columns of a table."""
        facts = {**dict(zip("mnk", self.shape, strict=True)), "dtype": self.dtype, "layout": self.layout}
        return facts | {"config": named(self.config), **{name: self.config[name] for name in DEALT}}

    def made(self, device: str = "cuda") -> Made:
        """The product on a device."""
        given = made(self.shape, self.dtype, self.layout, self.end, pad=self.pad, device=device)
        a, b = odd_operands(self.shape, self.dtype, self.layout, self.places, device)
        return given._replace(a=a, b=b)

    def launch(self, gpu: GpuModel, given: Made) -> CudaLaunch:
        """Its launch."""
        return launch_of(gpu, self.config, given, self.end)


def odd_operands(
    shape: tuple[int, int, int], dtype: str, layout: str, places: Places, device: str = "cuda"
) -> tuple[Any, Any]:
    """Random A and B amid what must not be read."""
    import torch

    from benchmarks.gemm.wgmma.products import KINDS

    (m, n, k), kind = shape, getattr(torch, KINDS[dtype])

    def matrix(rows: int, columns: int, is_by_rows: bool, start: int, gap: int) -> Any:
        if not is_by_rows:
            return matrix(columns, rows, True, start, gap).T
        # Rows of 8-bit elements are an even number of bytes apart, and start at one.
        unit = 2 if ELEMENT_BYTES[dtype] == 1 else 1
        pitch = -(-(columns + gap) // unit) * unit
        start = start * unit
        if dtype == "int8":
            memory = torch.full((start + rows * pitch + 64,), 113, dtype=kind, device=device)
            values = torch.randint(-99, 99, (rows, columns), dtype=kind, device=device)
        else:
            memory = torch.full((start + rows * pitch + 64,), float("nan"), device=device).to(kind)
            values = torch.randn(rows, columns, device=device).to(kind)
        inside = memory[start : start + rows * pitch].view(rows, pitch)[:, :columns]
        if device != "meta":
            inside.copy_(values)
        return inside

    return matrix(m, k, layout[0] == "r", *places.a), matrix(k, n, layout[1] == "r", *places.b)


def product_of(shape: tuple[int, int, int], dtype: str, layout: str, end: End, places: Places) -> Product:
    """The product as rules and costs see it."""
    from constrint.kernels.gemm.operands import product_of as product_of_tensors

    given = Case(shape, dtype, layout, {}, end, places).made("meta")
    source = None if given.source is None else given.source[None]
    return product_of_tensors(given.a[None], given.b[None], given.bias, source, given.out.dtype, is_three_pass=False)


def random_cases(gpu: GpuModel, number: int, seed: int) -> Iterator[Case]:
    """Random products of which an operand is gathered, with random configurations and ends."""
    draw, found = random.Random(seed), 0
    while found < number:
        dtype = draw.choice(("bf16", "fp16", "bf16", "fp16", "tf32", "fp8", "int8"))
        layout = "rc" if needs_k_major(dtype) else draw.choice(("rr", "rc", "cr", "cc"))
        sides = draw.choices(SIDES, k=3)
        shape, end, places = (sides[0], sides[1], sides[2]), End.drawn(draw, dtype), Places.drawn(draw)
        product = product_of(shape, dtype, layout, end, places)
        if SPEC.refusal(gpu, product) or not any(Gathered.of(product)[:2]):
            continue
        try:
            config = drawn(gpu, product, draw)
        except (InfeasibleError, ValueError):
            continue
        found += 1
        yield Case(shape, dtype, layout, config, end, places, draw.choice((16, 16, 8, 1)))


def prepare(gpu: GpuModel, cases: Iterable[Case]) -> int:
    """Compile many at once; how many spill. What cannot be compiled says so when it is launched."""
    sources = {}
    for one in cases:
        source = one.launch(gpu, one.made("meta")).source
        sources[source.text, tuple(source.macros.items())] = source
    spilled = 0
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(compile_cuda, gpu, source) for source in sources.values()]:
            if done.exception():
                print(done.exception(), flush=True)
            else:
                spilled += done.result().spill_bytes > 0
    print(f"{len(sources)} kernels are compiled, {spilled} spill", flush=True)
    return spilled


def ended_in(seconds: float) -> bool:
    """Whether the device ends what it was asked for in time."""
    import torch

    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    end = time.monotonic() + seconds
    event.record()
    while not event.query():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def check(gpu: GpuModel, cases: Sequence[Case], out: Path | None, limit_s: float, patience_s: float) -> int:
    """Random products with random configurations; how many were wrong."""
    wrong, done, end = 0, 0, time.monotonic() + limit_s
    with Table(out, CHECKED, f"measured on {described()}") as table:
        for one in cases:
            if time.monotonic() > end:
                print("the time is over", flush=True)
                break
            done += 1
            given = one.made()
            words = [f"{name}={one.config[name]}" for name in DEALT]
            told = (named(one.config), *words, one.end, *one.places, one.pad)
            # Said before it is launched: a kernel that hangs says nothing.
            print(*one.shape, one.dtype, one.layout, *told, end=" ", flush=True)
            try:
                launch = one.launch(gpu, given)
                for _ in range(2):
                    launch.run()
                if not ended_in(patience_s):
                    print("HANGS", flush=True)
                    os._exit(3)
            except (ConstrintError, RuntimeError) as error:
                print(error, flush=True)
                return wrong + 1
            off = share_of(exact_product(given, one.dtype, one.end), given)
            wrong += off > 1
            table.add(**one.facts, end=str(tuple(one.end)), places=str(tuple(one.places)), share=off)
            print(f"{'WRONG' if off > 1 else 'right'}: {off:.3g} of what rounding allows", flush=True)
    print(f"{wrong} of {done} wrong")
    return wrong


def timed_cases(gpu: GpuModel, top: int, dtypes: Sequence[str]) -> list[Case]:
    """What the cost model ranks first for every product: over all, and in clusters of each size."""
    cases = []
    for (shape, layout), dtype in itertools.product(TIMED, dtypes):
        product = product_of(shape, dtype, layout, End(), Places())
        best: dict[str, Config] = {}
        number: dict[int, int] = {}
        for place, config in enumerate(ranked(gpu, product, 4000)):
            size = config["cluster_m"] * config["cluster_n"]
            if place < top // 2 or number.get(size, 0) < -(-top // 6):
                number[size] = number.get(size, 0) + 1
                best[str(config)] = config
        cases += [Case(shape, dtype, layout, config) for config in best.values()]
    return cases


def aligned_us(gpu: GpuModel, one: Case, timer: Any) -> float | None:
    """The time of the same configuration where nothing is gathered; none of clusters of four, whose rules differ."""
    if one.config["cluster_m"] * one.config["cluster_n"] > 2:
        return None
    given = made(one.shape, one.dtype, one.layout, End())
    return float(timer.quick(timer.graph(one.launch(gpu, given).run)).median_s * 1e6)


def show_times(gpu: GpuModel, cases: Sequence[Case], out: Path | None, limit_s: float, patience_s: float) -> None:
    """Time candidates of every product; the fastest of each again beside cuBLAS and our other kernels, in turn."""
    import torch

    from constrint.kernels.gemm import matmul
    from constrint.tune.measure import Timer

    timer, end = Timer(), time.monotonic() + limit_s
    with Table(out, TIMES, f"measured on {described()}") as table:
        for _, group in itertools.groupby(cases, lambda one: one[:3]):
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            found = list(group)
            given = found[0].made()
            exact = exact_product(given, found[0].dtype, End())
            other = torch.empty(found[0].shape[:2], dtype=given.out.dtype, device="cuda")
            peers = [
                timer.graph(partial(torch.mm, given.a, given.b, out=other)),
                timer.graph(partial(matmul, given.a, given.b, implementation="kernels")),
            ]
            entries: list[tuple[float, Any, Case]] = []
            for one in found:
                print(*one.shape, one.dtype, one.layout, named(one.config), end=" ", flush=True)
                given.whole.fill_(float("nan"))
                try:
                    launch = one.launch(gpu, given)
                    launch.run()
                    if not ended_in(patience_s):
                        print("HANGS", flush=True)
                        os._exit(3)
                    off = share_of(exact, given)
                    call = timer.graph(launch.run)
                    us = timer.quick(call).median_s * 1e6
                    note = "" if off <= 1 else f"wrong: {off:.3g}"
                    table.add(**one.facts, us=us, aligned_us=aligned_us(gpu, one, timer), note=note)
                    print(f"{us:.1f} us {note}", flush=True)
                    if not note:
                        entries.append((us, call, one))
                except (ConstrintError, RuntimeError) as error:
                    table.add(**one.facts, note=str(error)[:80])
                    print(error, flush=True)
            entries.sort(key=lambda entry: entry[0])
            measured = timer.cold([*peers, *(entry[1] for entry in entries[:3])])
            cublas_us, kernels_us = (each.median_s * 1e6 for each in measured[:2])
            for each, (_, _, one) in zip(measured[2:], entries, strict=False):
                us = each.median_s * 1e6
                table.add(**one.facts, us=us, cublas_us=cublas_us, kernels_us=kernels_us, note="in turn, cold L2")
                words = f"{us:.1f} us, cuBLAS / it {cublas_us / us:.3f}, other kernels / it {kernels_us / us:.3f}"
                print(*one.shape, one.dtype, one.layout, named(one.config), words, flush=True)


def main() -> None:
    """Compile, check or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("what", choices=["check", "time"])
    parser.add_argument("--compile", action="store_true", help="compile what would be launched, and launch nothing")
    parser.add_argument("--number", type=int, default=150, help="products to check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top", type=int, default=10, help="candidates to time per product")
    parser.add_argument("--dtypes", default="bf16,fp16", help="of what is timed")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds, compiling not counted")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds after which a launch is called hanging")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    if args.what == "check":
        cases = list(random_cases(gpu, args.number, args.seed))
    else:
        cases = timed_cases(gpu, args.top, args.dtypes.split(","))
    spilled = prepare(gpu, cases)
    if args.compile:
        raise SystemExit(spilled > 0)
    if args.what == "check":
        raise SystemExit(check(gpu, cases, args.out, args.limit, args.patience) > 0)
    show_times(gpu, cases, args.out, args.limit, args.patience)


if __name__ == "__main__":
    main()
