"""Check and time the GEMM that gathers operands whose rows start anywhere, `gemm.unaligned`.

    python -m benchmarks.gemm.wgmma.odd --gpu h200 check --number 150 --limit 60 --out gemm_unaligned_checked.csv
    python -m benchmarks.gemm.wgmma.odd --gpu h200 time --top 8 --limit 80 --out gemm_unaligned.csv

`check` draws sizes, strides, first addresses, layouts, ends and configurations; operands stand amid NaN (integers amid
others), results amid poison, and every element is compared with fp64 under a bound. A launch is named before it runs;
one that takes longer than `--patience` seconds is called hanging, and ends the program. `time` takes what the kernel's
cost model ranks first in every schedule, and shows the fastest in turn with cuBLAS and with our kernels in Triton, of
which some copy the operands first. `--compile` launches nothing.
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

from benchmarks.gemm.wgmma.configs import DEALT, Config, drawn, named, ranked
from benchmarks.gemm.wgmma.products import KINDS, End, Made, exact_product, made, share_of
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError, InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cuda.unaligned.spec import SPECS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import needs_k_major
from constrint.kernels.launch.cuda import CudaLaunch, compile_cuda

SPEC = SPECS[0]
#: Sides of products that are checked.
SIDES = (1, 3, 7, 8, 9, 63, 65, 100, 127, 129, 255, 257, 500, 511, 1001, 1024, 2047, 3001)
#: What is timed: sizes and layout.
TIMED = (
    ((3, 50257, 768), "rr"), ((512, 50257, 768), "rr"), ((64, 8193, 8193), "rr"), ((1000, 3001, 2001), "rr"),
    ((2047, 2047, 2047), "rr"), ((2047, 2047, 2047), "rc"), ((2048, 2048, 2047), "rr"), ((4096, 50257, 768), "rr"),
    ((768, 50257, 4096), "cr"), ((4095, 4097, 4096), "rr"), ((5000, 5000, 5001), "rr"),
)  # fmt: skip
#: Our kernels that compute such products now.
OTHERS = ("descriptor", "producer", "pointer")
PRODUCT = ("m", "n", "k", "dtype", "layout")
CONFIG = ("config", "raw_stages", *DEALT)
CHECKED = (*PRODUCT, *CONFIG, "end", "places", "share")
TIMES = (*PRODUCT, *CONFIG, "predicted_us", "us", "note")


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
        return facts | {"config": named(self.config), **{name: self.config[name] for name in CONFIG[1:]}}

    @property
    def words(self) -> str:
        """In a line, with all that a launch depends on."""
        told = (*self.shape, self.dtype, self.layout, *(f"{name}={value}" for name, value in self.config.items()))
        return " ".join(map(str, (*told, self.end, *self.places, self.pad)))

    def made(self, device: str = "cuda") -> Made:
        """The product on a device."""
        given = made(self.shape, self.dtype, self.layout, self.end, pad=self.pad, device=device)
        a, b = odd_operands(self.shape, self.dtype, self.layout, self.places, device)
        return given._replace(a=a, b=b)

    def launch(self, gpu: GpuModel, given: Made) -> CudaLaunch:
        """Its launch."""
        from constrint.kernels.gemm.cuda.unaligned.launch import unaligned_launches
        from constrint.kernels.gemm.launch import Call, Epilogue, Machine

        source = None if given.source is None else given.source[None]
        end = Epilogue(given.bias, source, self.end.alpha, self.end.beta, self.end.activation)
        call = Call(given.a[None], given.b[None], given.out[None], Machine.of(gpu), end, "tf32")
        return unaligned_launches(call, self.config)[0]


def odd_operands(
    shape: tuple[int, int, int], dtype: str, layout: str, places: Places, device: str = "cuda"
) -> tuple[Any, Any]:
    """Random A and B amid what must not be read."""
    import torch

    (m, n, k), kind = shape, getattr(torch, KINDS[dtype])

    def matrix(rows: int, columns: int, is_by_rows: bool, start: int, gap: int) -> Any:
        if not is_by_rows:
            return matrix(columns, rows, True, start, gap).T
        pitch = columns + gap
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
        if SPEC.refusal(gpu, product):
            continue
        try:
            config = drawn(gpu, product, draw, SPEC)
        except (InfeasibleError, ValueError):
            continue
        found += 1
        yield Case(shape, dtype, layout, config, end, places, draw.choice((16, 16, 8, 1)))


def prepare(gpu: GpuModel, cases: Iterable[Case]) -> int:
    """Compile many at once; how many spill. What cannot be compiled says so when it is launched."""
    sources, started = {}, time.monotonic()
    for one in cases:
        source = one.launch(gpu, one.made("meta")).source
        sources[source.text, tuple(source.macros.items())] = one, source
    spilled = 0
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        work = [(one, pool.submit(compile_cuda, gpu, source)) for one, source in sources.values()]
        for one, done in work:
            if done.exception():
                print(done.exception(), flush=True)
            elif done.result().spill_bytes > 0:
                spilled += 1
                print(f"spills {done.result().spill_bytes} bytes: {one.words}", flush=True)
    print(f"{len(sources)} kernels are compiled, {spilled} spill; {time.monotonic() - started:.0f} s", flush=True)
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
        time.sleep(0.0005)
    return True


def check(gpu: GpuModel, cases: Sequence[Case], out: Path | None, limit_s: float, patience_s: float) -> int:
    """Random products with random configurations; how many were wrong."""
    import torch

    wrong, done, end = 0, 0, time.monotonic() + limit_s
    with Table(out, CHECKED, f"measured on {described()}") as table:
        for one in cases:
            if time.monotonic() > end:
                print("the time is over", flush=True)
                break
            done += 1
            torch.manual_seed(done)
            given = one.made()
            # Said before it is launched: a kernel that hangs says nothing.
            print(one.words, end=" ", flush=True)
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
    """What the cost model ranks first for every product: over all, then in every schedule."""
    cases = []
    for (shape, layout), dtype in itertools.product(TIMED, dtypes):
        product = product_of(shape, dtype, layout, End(), Places())
        chosen: dict[str, Config] = {}
        schedules: set[tuple[int, ...]] = set()
        for place, config in enumerate(ranked(gpu, product, 20_000, spec=SPEC)):
            schedule = tuple(config[name] for name in ("consumers", "by_columns", "in_turns", "turned", "raw_stages"))
            if place < top // 3 or schedule not in schedules:
                chosen[str(config)] = config
            schedules.add(schedule)
            if len(chosen) == top:
                break
        cases += [Case(shape, dtype, layout, config) for config in chosen.values()]
    return cases


def predicted_us(gpu: GpuModel, one: Case) -> float:
    """What the cost model says of a case."""
    import numpy as np

    columns = {name: np.array([value]) for name, value in one.config.items()}
    product = product_of(one.shape, one.dtype, one.layout, one.end, one.places)
    return float(SPEC.price(gpu, product, columns, np.ones(1)).seconds[0]) * 1e6


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
            peers: dict[str, Any] = {"cuBLAS": timer.graph(partial(torch.mm, given.a, given.b, out=other))}
            for name in OTHERS:
                try:
                    peers[name] = timer.graph(partial(matmul, given.a, given.b, implementation=name))
                except (ConstrintError, RuntimeError) as error:
                    print(f"{name}: {str(error)[:100]}", flush=True)
            entries: list[tuple[float, Any, Case]] = []
            for one in found:
                print(*one.shape, one.dtype, one.layout, named(one.config), end=" ", flush=True)
                given.whole.fill_(float("nan"))
                facts = one.facts | {"predicted_us": predicted_us(gpu, one)}
                try:
                    launch = one.launch(gpu, given)
                    launch.run()
                    if not ended_in(patience_s):
                        print("HANGS", flush=True)
                        os._exit(3)
                    off = share_of(exact, given)
                    call = timer.graph(launch.run)
                    us = timer.quick(call).median_s * 1e6
                except (ConstrintError, RuntimeError) as error:
                    table.add(**facts, note=str(error)[:80])
                    print(error, flush=True)
                    continue
                note = "" if off <= 1 else f"wrong: {off:.3g}"
                table.add(**facts, us=us, note=note)
                print(f"{us:.1f} us, predicted {facts['predicted_us']:.1f} {note}", flush=True)
                if not note:
                    entries.append((us, call, one))
            entries.sort(key=lambda entry: entry[0])
            measured = timer.cold([*peers.values(), *(entry[1] for entry in entries[:2])])
            best = min((each.median_s for each in measured[len(peers) :]), default=float("nan"))
            for name, each in zip(peers, measured, strict=False):
                facts = found[0].facts | dict.fromkeys(CONFIG, "") | {"config": name}
                table.add(**facts, us=each.median_s * 1e6, note="in turn, cold L2")
            for each, (_, _, one) in zip(measured[len(peers) :], entries, strict=False):
                table.add(**one.facts, us=each.median_s * 1e6, note="in turn, cold L2")
            words = ", ".join(
                f"{name} {each.median_s * 1e6:.1f} us ({each.median_s / best:.2f})"
                for name, each in zip(peers, measured, strict=False)
            )
            one = found[0]
            print(*one.shape, one.dtype, one.layout, f"IN TURN: it {best * 1e6:.1f} us; {words}", flush=True)


def main() -> None:
    """Compile, check or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("what", choices=["check", "time"])
    parser.add_argument("--compile", action="store_true", help="compile what would be launched, and launch nothing")
    parser.add_argument("--number", type=int, default=150, help="products to check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top", type=int, default=8, help="candidates to time per product")
    parser.add_argument("--dtypes", default="bf16", help="of what is timed")
    parser.add_argument("--limit", type=float, default=80.0, help="seconds, compiling not counted")
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
