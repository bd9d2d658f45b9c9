"""Compile, check and time GEMM configurations on the GPU of this machine; used by the GEMM benchmarks.

Times are of a captured graph, so that neither Python nor torch's dispatcher is in them, for cuBLAS as for ours:
cold = one product after 256 MB of zeros were written (what `triton.testing.do_bench` does), events around it; warm =
products back to back on the same operands.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from constrint.kernels.gemm import launch as launching

Call = Callable[[], Any]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp8": torch.float8_e4m3fn}
DTYPES["int8"] = torch.int8
FLUSH_BYTES = 256 * 2**20
#: Unit roundoff of the output types.
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}


class Timer:
    """Times calls on the current device."""

    def __init__(self) -> None:
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def graph(self, call: Call, repeats: int) -> Any:
        """Capture `repeats` calls; the first one outside, so that nothing is compiled in the capture."""
        call()
        torch.cuda.synchronize()
        # A captured launch keeps its split-K counters for good, and without any left it zeroes new ones in the graph;
        # the graphs before this one are gone.
        captured = launching._COUNTERS._captured
        captured.update({device: (pool, 0) for device, (pool, _) in captured.items()})
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                call()
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
        repeats = max(2, min(50, int(1000 / max(about_us, 1.0))))
        graph = self.graph(call, repeats)
        best = float("inf")
        for _ in range(3):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            best = min(best, 1e3 * start.elapsed_time(end) / repeats)
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
    kind = {"fp8": torch.bfloat16, "int8": torch.int32}.get(dtype, a.dtype)
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


def _compile(job: tuple[tuple[int, int, int], str, str, Mapping[str, int], Any]) -> str:
    (m, n, k), dtype, layout, config, machine = job
    element = DTYPES[dtype]
    a = torch.empty((m, k) if layout[0] == "r" else (k, m), dtype=element, device="cuda")
    b = torch.empty((k, n) if layout[1] == "r" else (n, k), dtype=element, device="cuda")
    a, b = (a if layout[0] == "r" else a.T), (b if layout[1] == "r" else b.T)
    kind = {"fp8": torch.bfloat16, "int8": torch.int32}.get(dtype, element)
    out = torch.empty((1, m, n), dtype=kind, device="cuda")
    try:
        launching.launch(a[None], b[None], out, config, machine, launching.Epilogue(), only_compile=True)
    except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
        return type(error).__name__
    return "ok"


def compile_all(jobs: list[Any], workers: int | None = None) -> list[str]:
    """Compile into Triton's cache with one process per core; outcomes in the jobs' order."""
    os.environ.setdefault("TRITON_CACHE_DIR", "/tmp/triton-cache")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or min(16, os.cpu_count() or 1), mp_context=context) as pool:
        return list(pool.map(_compile, jobs, chunksize=2))


def compile_key(m: int, n: int, k: int, dtype: str, layout: str, config: Mapping[str, int]) -> tuple[Any, ...]:
    """Two launches with the same key share a compiled kernel."""
    sizes: tuple[Any, ...] = tuple(1 if size == 1 else size % 16 == 0 for size in (m, n, k))
    if not config.get("descriptor"):
        sizes += (k % (config["tile_k"] * config["split_k"]) == 0,)
    return (dtype, layout, tuple(sorted((name, v) for name, v in config.items())), *sizes)


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


def description() -> str:
    """Device and versions, comma-separated, for the first line of a results file."""
    import triton

    device = torch.cuda.get_device_properties(0)
    return f"{device.name}, torch {torch.__version__}, triton {triton.__version__}, python {platform.python_version()}"


def this_machine() -> Any:
    """The device as a launch sees it."""
    device = torch.cuda.get_device_properties(0)
    return launching.Machine(device.multi_processor_count, 1, (device.major, device.minor) == (9, 0))
