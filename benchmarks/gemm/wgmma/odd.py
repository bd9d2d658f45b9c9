"""Check and time the GEMM that gathers operands whose rows start anywhere, `gemm.unaligned`.

    python -m benchmarks.gemm.wgmma.odd --gpu h200 check --number 150 --limit 60 --out gemm_unaligned_checked.csv
    python -m benchmarks.gemm.wgmma.odd --gpu h200 time --top 8 --limit 80 --out gemm_unaligned.csv
    python -m benchmarks.gemm.wgmma.odd --gpu h200 explore --number 24 --top 12 --out gemm_unaligned_random.csv

`check` draws sizes, strides, first addresses, layouts, ends and configurations; operands stand amid NaN (integers amid
others), results amid poison, and every element is compared with fp64 under a bound. A launch is named before it runs;
one that takes longer than `--patience` seconds is called hanging, and ends the program. `time` takes what the kernel's
cost model ranks first in every schedule, and shows the fastest in turn with cuBLAS and with our kernels in Triton, of
which some copy the operands first. `explore` times configurations of random products, to which `odd_fit` fits the
model. `--compile` launches nothing.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gemm.wgmma.configs import named
from benchmarks.gemm.wgmma.odd_cases import PARAMS, SPEC, Case, explored_cases, product_of, random_cases, timed_cases
from benchmarks.gemm.wgmma.products import End, exact_product, share_of
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import compile_cuda

#: Our kernels that compute such products now.
OTHERS = ("descriptor", "producer", "pointer")
PRODUCT = ("m", "n", "k", "dtype", "layout")
CHECKED = (*PRODUCT, "config", *PARAMS, "end", "places", "share")
TIMES = (*PRODUCT, "config", *PARAMS, "predicted_us", "us", "note")


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


def predicted_us(gpu: GpuModel, one: Case) -> float:
    """What the cost model says of a case."""
    import numpy as np

    columns = {name: np.array([value]) for name, value in one.config.items()}
    product = product_of(one.shape, one.dtype, one.layout, one.end, one.places)
    return float(SPEC.price(gpu, product, columns, np.ones(1)).seconds[0]) * 1e6


def timed(
    gpu: GpuModel, found: Sequence[Case], table: Table, timer: Any, patience_s: float
) -> tuple[Any, list[tuple[float, Any, Case]]]:
    """Time configurations of one product: it, and those that were right with their times and graphs, fastest first."""
    given = found[0].made()
    exact = exact_product(given, found[0].dtype, End())
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
    return given, sorted(entries, key=lambda entry: entry[0])


def in_turn(given: Any, entries: list[tuple[float, Any, Case]], one: Case, table: Table, timer: Any) -> None:
    """Time the fastest again in turn with cuBLAS and our other kernels, with a cold L2."""
    import torch

    from constrint.kernels.gemm import matmul

    other = torch.empty(one.shape[:2], dtype=given.out.dtype, device="cuda")
    peers: dict[str, Any] = {"cuBLAS": timer.graph(partial(torch.mm, given.a, given.b, out=other))}
    for name in OTHERS:
        try:
            peers[name] = timer.graph(partial(matmul, given.a, given.b, kernel=name))
        except (ConstrintError, RuntimeError) as error:
            print(f"{name}: {str(error)[:100]}", flush=True)
    measured = timer.cold([*peers.values(), *(entry[1] for entry in entries[:2])])
    us = {name: each.median_s * 1e6 for name, each in zip(peers, measured, strict=False)}
    for name in peers:
        facts = one.facts | dict.fromkeys(PARAMS, "") | {"config": name}
        table.add(**facts, us=us[name], note="in turn, cold L2")
    best = float("nan")
    for each, (_, _, own) in zip(measured[len(peers) :], entries, strict=False):
        best = min(best, each.median_s * 1e6) if best == best else each.median_s * 1e6
        table.add(**own.facts, us=each.median_s * 1e6, note="in turn, cold L2")
    words = ", ".join(f"{name} {peer_us:.1f} us ({peer_us / best:.2f})" for name, peer_us in us.items())
    print(*one.shape, one.dtype, one.layout, f"IN TURN: it {best:.1f} us; {words}", flush=True)


def show_times(
    gpu: GpuModel, cases: Sequence[Case], out: Path | None, limit_s: float, patience_s: float, *, with_others: bool
) -> None:
    """Time candidates of every product; with others, the fastest of each again beside them."""
    from constrint.tune.measure import Timer

    timer, end = Timer(), time.monotonic() + limit_s
    with Table(out, TIMES, f"measured on {described()}") as table:
        for _, group in itertools.groupby(cases, lambda one: one[:3]):
            if time.monotonic() > end:
                print("the time is over", flush=True)
                return
            found = list(group)
            given, entries = timed(gpu, found, table, timer, patience_s)
            if with_others:
                in_turn(given, entries, found[0], table, timer)


def main() -> None:
    """Compile, check or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("what", choices=["check", "time", "explore"])
    parser.add_argument("--compile", action="store_true", help="compile what would be launched, and launch nothing")
    parser.add_argument("--number", type=int, default=150, help="products to check or to explore")
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
    elif args.what == "explore":
        cases = explored_cases(gpu, args.number, args.top, args.seed)
    else:
        cases = timed_cases(gpu, args.top, args.dtypes.split(","))
    spilled = prepare(gpu, cases)
    if args.compile:
        raise SystemExit(spilled > 0)
    if args.what == "check":
        raise SystemExit(check(gpu, cases, args.out, args.limit, args.patience) > 0)
    show_times(gpu, cases, args.out, args.limit, args.patience, with_others=args.what == "time")


if __name__ == "__main__":
    main()
