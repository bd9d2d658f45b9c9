"""Compile, check and time GEMM configurations on the GPU of this machine; used by the GEMM benchmarks.

Times are of a captured graph, so that neither Python nor torch's dispatcher is in them, for cuBLAS as for ours:
cold = one product after 256 MB of zeros were written (what `triton.testing.do_bench` does), events around it; warm =
products back to back on the same operands.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gemm_compile import DTYPES, OUTPUTS

from constrint.kernels.gemm import launch as launching

Call = Callable[[], Any]
FLUSH_BYTES = 256 * 2**20
#: Memory that torch may hold before what graphs have left is given back.
CACHE_BYTES = 50 * 2**30
#: Unit roundoff of the output types.
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}


class Timer:
    """Times calls on the current device."""

    def __init__(self) -> None:
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.stream = torch.cuda.Stream()

    def graph(self, call: Call, repeats: int) -> Any:
        """Capture `repeats` calls; the first one outside, so that nothing is compiled in the capture.

        Without `torch.cuda.graph`, which empties torch's cache each time.
        """
        call()
        torch.cuda.synchronize()
        if torch.cuda.memory_reserved() > CACHE_BYTES:
            torch.cuda.empty_cache()
        # A captured launch keeps its split-K counters for good, and without any left it zeroes new ones in the graph;
        # the graphs before this one are gone.
        captured = launching._COUNTERS._captured
        captured.update({device: (pool, 0) for device, (pool, _) in captured.items()})
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin()
            for _ in range(repeats):
                call()
            graph.capture_end()
        return graph

    def cold_us(self, call: Call, repeats: int = 31) -> tuple[float, float]:
        """Median and spread (80th minus 20th percentile) of one call with its operands out of the L2.

        A call of more than a tenth of a millisecond is timed fewer times.
        """
        graph = self.graph(call, 1)
        self.replay(graph, 2)
        repeats = max(7, min(repeats, int(3000 / self.replay(graph, 1)[0])))
        times = sorted(self.replay(graph, repeats))
        return statistics.median(times), times[int(0.8 * repeats)] - times[int(0.2 * repeats)]

    def cold_in_turn(self, calls: list[Call], repeats: int = 31) -> list[tuple[float, float]]:
        """As `cold_us`, for several calls that take turns, each beginning a turn as often: drift favours none."""
        graphs = [self.graph(call, 1) for call in calls]
        slowest = max(self.replay(graph, 2)[1] for graph in graphs)
        repeats = max(7, min(repeats, int(3000 / slowest)))
        times: list[list[float]] = [[] for _ in graphs]
        pairs = []
        for turn in range(repeats):
            for which in range(len(graphs)):
                place = (turn + which) % len(graphs)
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.flush.zero_()
                start.record()
                graphs[place].replay()
                end.record()
                pairs.append((place, start, end))
        torch.cuda.synchronize()
        for place, start, end in pairs:
            times[place].append(1e3 * start.elapsed_time(end))
        ordered = [sorted(of_one) for of_one in times]
        return [(statistics.median(t), t[int(0.8 * repeats)] - t[int(0.2 * repeats)]) for t in ordered]

    def replay(self, graph: Any, repeats: int) -> list[float]:
        """Microseconds of each replay after the L2 was overwritten."""
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, end in pairs:
            self.flush.zero_()
            start.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        return [1e3 * start.elapsed_time(end) for start, end in pairs]

    def warm_us(self, call: Call, about_us: float) -> float:
        """Time per call, back to back, best of three runs of about a millisecond."""
        return self.warm_in_turn([call], about_us)[0]

    def warm_in_turn(self, calls: list[Call], about_us: float) -> list[float]:
        """As `warm_us`, for several calls that take turns."""
        repeats = max(2, min(50, int(1000 / max(about_us, 1.0))))
        graphs = [self.graph(call, repeats) for call in calls]
        best = [float("inf")] * len(calls)
        for _ in range(3):
            for which, graph in enumerate(graphs):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                best[which] = min(best[which], 1e3 * start.elapsed_time(end) / repeats)
        return best


@dataclass(frozen=True)
class Case:
    """Operands of one shape, its product in higher precision, and what rounding may do to it."""

    a: torch.Tensor  # (1, M, K)
    b: torch.Tensor  # (1, K, N)
    out: torch.Tensor  # (1, M, N)
    expected: torch.Tensor
    bound: torch.Tensor


def make_case(m: int, n: int, k: int, dtype: str, layout: str = "rr", seed: int = 0) -> Case:
    """Fresh random operands; `layout` has r (rows contiguous) or c (columns contiguous) for A and for B.

    The bound: K fp32 additions round by at most K 2^-24 of the sum of magnitudes, and the output rounds once. The
    reference is in fp64 where that is cheap, else in fp32 (whose own error doubles the first term).
    """
    generator = torch.Generator(device="cuda").manual_seed(seed + m + 3 * n + 7 * k)
    a, b = _random((m, k), dtype, layout[0], generator), _random((k, n), dtype, layout[1], generator)
    wide = torch.float64 if m * n * k <= 2**36 or dtype == "int8" else torch.float32
    exact_a, exact_b = a.to(wide), b.to(wide)
    expected = exact_a @ exact_b
    sums = exact_a.abs() @ exact_b.abs()
    kind = OUTPUTS.get(dtype, a.dtype)
    step = {"tf32": 2.0**-10, "fp8": 2.0**-13}.get(dtype, k * 2.0**-24)
    bound = (2 * step * sums + 2 * ROUNDOFF.get(kind, 0.0) * expected.abs()).to(torch.float32)
    out = torch.empty((1, m, n), dtype=kind, device="cuda")
    return Case(a[None], b[None], out, expected, bound)


def _random(shape: tuple[int, int], dtype: str, order: str, generator: torch.Generator) -> torch.Tensor:
    stored = shape if order == "r" else shape[::-1]
    if dtype == "int8":
        t = torch.randint(-128, 128, stored, device="cuda", generator=generator, dtype=torch.int8)
    else:
        t = torch.randn(stored, device="cuda", generator=generator).to(DTYPES[dtype])
    return t if order == "r" else t.T


def is_right(case: Case, call: Call) -> str:
    """Run on a poisoned output: "ok", or by how much the bound is broken."""
    case.out.fill_(float("nan") if case.out.is_floating_point() else -(2**31) + 1)
    call()
    error = (case.out[0].to(case.expected.dtype) - case.expected).abs()
    if bool((error <= case.bound).all()):
        return "ok"
    return f"wrong {float((error / case.bound.clamp(min=1e-30)).max()):.1e}"


def caller(case: Case, config: Mapping[str, int], machine: Any) -> Call:
    """A call of one configuration; misaligned operands are packed first where it loads through descriptors."""

    def call() -> None:
        launching.launch(case.a, case.b, case.out, config, machine, launching.Epilogue())

    return call


def compile_key(m: int, n: int, k: int, dtype: str, layout: str, config: Mapping[str, int]) -> tuple[Any, ...]:
    """Launches with the same key share a compiled kernel; the order of tiles needs none of its own."""
    sizes: list[Any] = ["one" if size == 1 else min(16, size & -size) for size in (m, n, k)]
    if layout[0] == "r" and m > 1:
        # No row is as long as M, which is only a limit then.
        sizes[0] = m % 16 == 0
    if not config.get("descriptor"):
        sizes.append(k % (config["tile_k"] * config["split_k"]) == 0)
    return (dtype, layout, tuple(sorted((name, v) for name, v in config.items() if name != "group_m")), *sizes)


def outcome_of(
    case: Case, config: Mapping[str, int], machine: Any, timer: Timer, worst_us: float
) -> tuple[str, tuple[float, float, float]]:
    """Check one configuration, then time it: outcome, and cold time, its spread and warm time in us.

    The warm time of a configuration slower than `worst_us` is left out (nan).
    """
    cold = spread = warm = float("nan")
    call = caller(case, config, machine)
    try:
        outcome = is_right(case, call)
        if outcome == "ok":
            cold, spread = timer.cold_us(call, 15)
            if cold < worst_us:
                warm = timer.warm_us(call, cold)
    except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
        outcome = type(error).__name__
    return outcome, (cold, spread, warm)


def run_guarded(
    command: Callable[[int, Path], list[str]], until: float, lost: Callable[[int, str], None], patience_s: float = 15.0
) -> None:
    """Run a child that notes the row it is at in a file; where it hangs or dies, record the row and start after it.

    Args:
        command: The child's command line, from its first row and the file.
        until: Time after which a child is ended for good.
        lost: Called with the row and what happened to it.
        patience_s: How long a row may take; the child's start counts as part of its first row.
    """
    progress = Path(tempfile.mkdtemp()) / "row"
    first = 0
    while time.time() < until:
        progress.write_text(str(first))
        child = subprocess.Popen(command(first, progress))
        seen, since, begun = str(first), time.time(), time.time()
        while child.poll() is None and time.time() < until:
            time.sleep(0.2)
            now = progress.read_text()
            if now != seen:
                seen, since = now, time.time()
            if time.time() - max(since, begun + 15.0) > patience_s:
                break
        hung = child.poll() is None
        if hung:
            child.kill()
            child.wait()
        if progress.read_text() == "done" or child.returncode == 0 or time.time() >= until:
            return
        row = int(progress.read_text() or first)
        lost(row, "hung" if hung else f"crashed {child.returncode}")
        print(f"row {row} {'hung' if hung else 'crashed'}", file=sys.stderr, flush=True)
        first = row + 1


def visible_device(number: int) -> str:
    """What CUDA_VISIBLE_DEVICES has to be for a child to see only one of the devices that this process sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[number] if visible else str(number)


def description() -> str:
    """Device and versions, comma-separated, for the first line of a results file."""
    import triton

    device = torch.cuda.get_device_properties(0)
    return f"{device.name}, torch {torch.__version__}, triton {triton.__version__}, python {platform.python_version()}"


def this_machine() -> Any:
    """The device as a launch sees it."""
    device = torch.cuda.get_device_properties(0)
    return launching.Machine(device.multi_processor_count, 1, (device.major, device.minor) == (9, 0))
