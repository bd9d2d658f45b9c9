"""Thousands of random launches of a CUDA GEMM, each checked in fp64: how many are wrong, fail or hang.

    python -m benchmarks.gemm.wgmma.launches --gpu h200 --launches 10000 --limit 240 --out gemm_cuda_launches.csv
    python -m benchmarks.gemm.wgmma.launches --gpu h200 --first 4711 --launches 1     # one of them again
    python -m benchmarks.gemm.wgmma.launches --gpu h200 --sanitize memcheck           # or synccheck, racecheck
    python -m benchmarks.gemm.wgmma.launches --gpu h200 --kernels 150 --seed 5 --compile --limit 1800   # without a GPU

A few hundred kernels are drawn from the whole space and compiled at once, by as many processes as there are cores.
Whatever a launch decides is drawn for every launch: sizes, strides, factors, parts of K, the order of tiles. Operands
lie amid NaN, and so do results. Launches run in a process of their own, which says what it is about to launch: one that
hangs or that ends the process is named, counted, and passed over by the next process. With `--processes` several
of these launch a share each at the same time. Of compute-sanitizer's tools
memcheck and synccheck know the TMA unit and its barriers; racecheck sees only what threads do in shared memory.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue

from benchmarks.gemm.wgmma.draws import Drawn, Kernel, drawn_kernels, drawn_launch
from benchmarks.gemm.wgmma.products import launch_of
from benchmarks.gemm.wgmma.strided import Gaps, amid_poison, worst_share
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaSource, compile_cuda

#: Seconds after which a process that says nothing hangs: while it starts, and at a launch.
STARTS_S, HANGS_S = 120.0, 20.0
#: Seconds that a process takes to end.
ENDS_S = 10.0
#: Processes that may be lost before the run is given up.
MOST_LOST = 12
#: Share of the time that compiling may take.
COMPILE_SHARE = 0.4
COLUMNS = ("dtype", "layout", "config", "end", "launches", "wrong", "failed", "worst", "note")
#: A product of several slices.
SMALL = (64, 64, 1024)
RIGHT, WRONG, FAILED, HUNG = "right", "WRONG", "FAILED", "HUNG"
#: compute-sanitizer's exit status where it has found something, and launches that it sees.
FOUND, SANITIZED = 99, 60


@dataclass(frozen=True)
class Run:
    """What is launched.

    Args:
        gpu: Name of the hardware model.
        kernels: How many are drawn.
        seed: Of what is drawn.
        is_small: Whether products are small, as under a sanitizer.
        until: When it ends, as `time.time` tells.
    """

    gpu: str
    kernels: int
    seed: int
    is_small: bool
    until: float

    def drawn(self) -> list[Kernel]:
        """The kernels."""
        return drawn_kernels(load_gpu(self.gpu), self.kernels, self.seed)


@dataclass(frozen=True)
class Report:
    """What a launch came to: its worst error as a share of what rounding allows, or what went wrong."""

    number: int
    outcome: str
    share: float = 0.0
    note: str = ""


def sources_of(gpu: GpuModel, kernel: Kernel) -> Iterator[CudaSource]:
    """What is compiled for a kernel: results leave in boxes where rows are aligned or not; tiles are split or not."""
    for gap in (0, 1) if kernel.end.is_plain else (0,):
        gaps = Gaps.least(SMALL, kernel.dtype, kernel.layout, gap)
        given = amid_poison(SMALL, kernel.dtype, kernel.layout, kernel.end, gaps, device="meta")
        for parts in (1, 2):
            config = kernel.config | {"split_k": parts, "only_last": 0}
            yield launch_of(gpu, config, given, kernel.end).source


def prepare(gpu: GpuModel, kernels: list[Kernel], limit_s: float) -> list[int]:
    """Compile all kernels; places of those that were compiled in time."""
    place_of = {source: place for place, kernel in enumerate(kernels) for source in _hashable(gpu, kernel)}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        started = time.monotonic()
        work = {pool.submit(compile_cuda, gpu, source.value): place for source, place in place_of.items()}
        done, late = wait(work, timeout=limit_s)
        pool.shutdown(wait=True, cancel_futures=True)
    for one in done:
        if one.exception() is not None:
            print(f"not compiled: {kernels[work[one]].words}: {one.exception()}", flush=True)
    lost = {work[one] for one in late} | {work[one] for one in done if one.exception() is not None}
    spilled = [one for one in done if one.exception() is None and one.result().spill_bytes > 0]
    for one in spilled:
        print(f"spills {one.result().spill_bytes} bytes: {kernels[work[one]].words}", flush=True)
    took = time.monotonic() - started
    print(f"{len(done)} of {len(work)} kernels compiled in {took:.0f} s, {len(spilled)} spill", flush=True)
    return [place for place in range(len(kernels)) if place not in lost]


@dataclass(frozen=True)
class _Source:
    """A source that is the same as another one with the same text and macros."""

    key: tuple[object, ...]
    value: CudaSource

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and self.key == other.key


def _hashable(gpu: GpuModel, kernel: Kernel) -> Iterator[_Source]:
    for source in sources_of(gpu, kernel):
        yield _Source((source.text, *sorted(source.macros.items())), source)


def launched(gpu: GpuModel, one: Drawn) -> Report:
    """Launch one and check it."""
    import torch

    torch.manual_seed(one.number)
    given = amid_poison(one.shape, one.kernel.dtype, one.kernel.layout, one.end, one.gaps)
    launch = launch_of(gpu, one.config, given, one.end)
    for _ in range(one.repeats):
        launch.run()
    torch.cuda.synchronize()
    share = worst_share(given, one.kernel.dtype, one.end)
    return Report(one.number, WRONG if share > 1 else RIGHT, share)


def work(run: Run, usable: list[int], first: int, last: int, says: Connection) -> None:
    """Launch one after the other, in a process of its own: tells each before it is launched, and what it came to."""
    gpu, kernels = load_gpu(run.gpu), run.drawn()
    for number in range(first, last):
        if time.time() > run.until:
            break
        one = drawn_launch(kernels, usable, run.seed, number, is_small=run.is_small)
        says.send(one)
        try:
            says.send(launched(gpu, one))
        except ConstrintError as error:  # it was refused before it was launched
            says.send(Report(number, FAILED, note=str(error)[:200]))
        except RuntimeError as error:  # nothing more can be launched by this process
            says.send(Report(number, FAILED, note=str(error)[:200]))
            raise SystemExit(1) from error


def reports(
    run: Run, usable: list[int], first: int, last: int, worker: Callable[..., None] = work
) -> Iterator[tuple[Drawn, Report]]:
    """What launches came to, each with what was launched; after one that ends its process comes another process."""
    context, lost = multiprocessing.get_context("spawn"), 0
    while first < last and lost < MOST_LOST and time.time() < run.until:
        hears, says = context.Pipe(duplex=False)
        child = context.Process(target=worker, args=(run, usable, first, last, says), daemon=True)
        child.start()
        says.close()
        for one, report in _heard(hears):
            first = one.number + 1
            yield one, report
        hears.close()
        child.join(ENDS_S)  # one that has launched all ends by itself
        child.kill()
        child.join(STARTS_S)
        if child.exitcode == 0:
            return
        lost += 1
        print(f"a process ended before launch {first}", flush=True)


def side_by_side(
    run: Run, usable: list[int], first: int, last: int, processes: int, worker: Callable[..., None] = work
) -> Iterator[tuple[Drawn, Report]]:
    """The same by several processes, each of which launches a share."""
    found: Queue[tuple[Drawn, Report] | None] = Queue()
    bounds = [first + (last - first) * share // processes for share in range(processes + 1)]

    def listen(begin: int, end: int) -> None:
        try:
            for one in reports(run, usable, begin, end, worker):
                found.put(one)
        finally:
            found.put(None)

    for begin, end in itertools.pairwise(bounds):
        threading.Thread(target=listen, args=(begin, end), daemon=True).start()
    left = processes
    while left:
        one = found.get()
        if one is None:
            left -= 1
        else:
            yield one


def _heard(hears: Connection) -> Iterator[tuple[Drawn, Report]]:
    """What one process tells, until it ends, or hangs."""
    at: Drawn | None = None
    patience_s = STARTS_S
    while True:
        report: Report | None = None
        if not hears.poll(patience_s):
            report = Report(at.number, HUNG, note=f"no answer in {patience_s:g} s") if at else None
        else:
            try:
                heard = hears.recv()
            except EOFError:
                report = Report(at.number, FAILED, note="its process ended") if at else None
            else:
                if isinstance(heard, Drawn):
                    at = heard
                    continue
                if at is not None:
                    yield at, heard
                at, patience_s = None, HANGS_S
                continue
        if at is not None and report is not None:
            yield at, report
        return


def check(run: Run, first: int, last: int, out: Path | None, words_of_run: str, processes: int = 1) -> int:
    """Launch all, print those that are not right and a summary; how many were not."""
    started = time.monotonic()
    gpu, kernels = load_gpu(run.gpu), run.drawn()
    usable = prepare(gpu, kernels, COMPILE_SHARE * (run.until - time.time()))
    found: dict[int, list[Report]] = defaultdict(list)
    counts = dict.fromkeys((RIGHT, WRONG, FAILED, HUNG), 0)
    try:
        for one, report in side_by_side(run, usable, first, last, processes):
            found[one.place].append(report)
            counts[report.outcome] += 1
            if report.outcome != RIGHT:
                print(f"{report.outcome}: {one.words}: {report.share:.3g} {report.note}", flush=True)
            if sum(counts.values()) % 1000 == 0:
                print(f"{sum(counts.values())} launches, {time.monotonic() - started:.0f} s: {counts}", flush=True)
    finally:
        total, bad = sum(counts.values()), sum(counts.values()) - counts[RIGHT]
        worst = max((each.share for all_ in found.values() for each in all_ if each.outcome == RIGHT), default=0.0)
        summary = (
            f"{total} launches of {len(found)} kernels: {counts[WRONG]} wrong, {counts[FAILED]} failed, {counts[HUNG]} "
            f"hung; the worst right one has {worst:.2f} of what rounding allows; {time.monotonic() - started:.0f} s"
        )
        print(summary, flush=True)
        with Table(out, COLUMNS, f"{words_of_run}: {summary}; launched on {described()}") as table:
            for place, all_ in sorted(found.items()):
                table.add(**kernels[place].facts, **_row(all_))
    return bad + (total == 0)


def _row(all_: list[Report]) -> dict[str, object]:
    return {
        "launches": len(all_),
        "wrong": sum(each.outcome == WRONG for each in all_),
        "failed": sum(each.outcome in (FAILED, HUNG) for each in all_),
        "worst": max(each.share for each in all_),
        "note": "; ".join(f"{each.number}: {each.outcome} {each.note}" for each in all_ if each.outcome != RIGHT)[:300],
    }


def sanitize(tool: str, run: Run, number: int) -> int:
    """Launch some small products under a tool of compute-sanitizer, which looks at this kernel alone."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        raise SystemExit("compute-sanitizer, of the CUDA toolkit, is not there")
    # Torch would put several tensors into one piece of memory, where a stray write hits another one.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    options = ["--report-api-errors", "no"] if tool == "memcheck" else []
    limit_s = run.until - time.time()
    program = [sys.executable, "-m", "benchmarks.gemm.wgmma.launches", "--gpu", run.gpu, "--alone", "--launches"]
    program += [
        str(number),
        "--kernels",
        str(run.kernels),
        "--seed",
        str(run.seed),
        "--limit",
        str(limit_s),
    ]
    command = [sanitizer, "--tool", tool, *options, "--kernel-name", "kne=gemm", "--error-exitcode", str(FOUND)]
    print(" ".join([*command, *program]), flush=True)
    return subprocess.run([*command, *program], env=environment, check=False).returncode


def alone(run: Run, number: int) -> int:
    """Launch small products in this process, as a sanitizer wants it; how many were wrong."""
    gpu, kernels = load_gpu(run.gpu), run.drawn()
    wrong = done = 0
    for at in range(number):
        if time.time() > run.until:
            break
        one = drawn_launch(kernels, list(range(len(kernels))), run.seed, at, is_small=True)
        print(one.words, end=" ", flush=True)
        report = launched(gpu, one)
        print(f"{report.outcome}: {report.share:.3g}", flush=True)
        wrong, done = wrong + (report.outcome != RIGHT), done + 1
    print(f"{done} launches, {wrong} wrong", flush=True)
    return wrong


def main() -> None:
    """Launch and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--kernels", type=int, default=300, help="kernels that are drawn and compiled")
    parser.add_argument("--launches", type=int, help=f"10000, or {SANITIZED} under a sanitizer")
    parser.add_argument("--first", type=int, default=0, help="number of the first launch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="small products alone")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds")
    parser.add_argument("--processes", type=int, default=1, help="that launch at the same time")
    parser.add_argument("--out", type=Path, help="a CSV file to write: a row for each kernel")
    parser.add_argument("--sanitize", metavar="TOOL", help="memcheck, synccheck, racecheck or initcheck")
    parser.add_argument("--compile", action="store_true", help="compile alone, without a GPU: how many spill")
    parser.add_argument("--alone", action="store_true", help="small products in this process, watched by nobody")
    args = parser.parse_args()
    until = time.time() + args.limit
    run = Run(args.gpu, args.kernels, args.seed, args.small or bool(args.sanitize), until)
    if args.alone:
        raise SystemExit(alone(run, args.launches or SANITIZED) > 0)
    if args.compile:
        usable = prepare(load_gpu(run.gpu), run.drawn(), args.limit)
        raise SystemExit(len(usable) < args.kernels)
    if args.sanitize:
        prepare(load_gpu(run.gpu), run.drawn(), args.limit)
        raise SystemExit(sanitize(args.sanitize, run, args.launches or SANITIZED))
    last = args.first + (args.launches or 10_000)
    name = f"gemm.cuda --kernels {args.kernels} --seed {args.seed}, launches {args.first} to {last - 1}"
    raise SystemExit(check(run, args.first, last, args.out, name, args.processes) > 0)


if __name__ == "__main__":
    main()
