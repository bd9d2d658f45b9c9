"""Recurrent layers on a GPU: the Triton kernels against cuDNN, a plain loop and one GEMM per step, floor beside each.

    python benchmarks/bench_rnn.py --out results/            # needs torch, triton and the GPU
    python benchmarks/bench_rnn.py --out results/ --quick    # the table of cases alone, for a first look

Correctness comes first: every cell and dtype on ragged sizes against the reference in fp64. Times are medians by device
events; inputs are projected ones (cuDNN projects its inputs itself: `torch.nn` is given inputs of the layer's width).
The floor is the larger of bytes over the copy bandwidth and operations over the matrix rate, both measured in the run.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

FIELDS = ("what", "implementation", "cell", "heads", "head_dim", "batch", "time", "dtype", "forward_ms", "both_ms")
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CASES = [("lstm", 12, 64), ("lstm", 6, 128), ("lstm", 1, 768), ("gru", 12, 64), ("gru", 1, 768), ("slstm", 12, 64),
         ("elman", 12, 64), ("lstm", 1, 256), ("lstm", 1, 512), ("lstm", 1, 1024), ("slstm", 1, 768)]  # fmt: skip
DIMS = [(48, 16), (24, 32), (12, 64), (8, 96), (6, 128), (3, 256), (2, 384), (1, 512), (1, 768), (1, 1024)]
CUDNN_CASES = [("lstm", 1, 64), ("lstm", 1, 256), ("lstm", 1, 768), ("gru", 1, 256)]
CHECK_CELLS = ("lstm", "gru", "slstm", "elman")
CHECK_SIZES = ((5, 13, 3, 64), (33, 29, 1, 128), (2, 40, 1, 384), (17, 7, 2, 48))
BATCHES, TIMES = (1, 8, 16, 64, 256), (256, 1024, 4096)
#: Rounding of operands and states, 2^-9 (bf16), 2^-11 (fp16), 2^-22 (three tf32 products), times 16 for sums and steps.
BOUNDS = {"bf16": 16 * 2.0**-9, "fp16": 16 * 2.0**-11, "fp32": 16 * 2.0**-22}


def median_ms(call: Callable[[], Any], limit_s: float = 0.4) -> float:
    """Median by device events: two calls to warm up, then 3 to 15 within about `limit_s`."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = time.perf_counter() - began
    times = []
    for _ in range(max(3, min(15, int(limit_s / max(once, 1e-6))))):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


class Layer:
    """Random inputs of one recurrence, and every implementation's call on them."""

    def __init__(self, cell: str, sizes: tuple[int, int, int, int], dtype: str, seed: int = 0) -> None:
        from constrint.kernels.rnn.cells import CELLS

        self.cell, self.dtype = CELLS[cell], dtype
        self.batch, self.time, self.heads, self.dim = sizes
        self.generator = torch.Generator(device="cuda").manual_seed(seed)
        gates = self.cell.num_gates
        self.wx = self.draw(self.batch, self.time, gates, self.heads, self.dim)
        self.r = self.draw(gates, self.heads, self.dim, self.dim) / self.dim**0.5
        self.b = 0.3 * self.draw(gates, self.heads, self.dim)
        self.grad = self.draw(self.batch, self.time, self.heads, self.dim)

    def draw(self, *sizes: int) -> Any:
        """Normal numbers in the layer's dtype."""
        return torch.randn(sizes, generator=self.generator, device="cuda").to(TORCH[self.dtype])

    def fused(self) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """The Triton kernels, with the solver's configurations: forward alone, forward and backward."""
        from constrint.kernels.rnn import launch

        arguments = (self.cell.name, self.wx, self.r, self.b, None)
        grads = (self.grad, *[None] * (self.cell.num_states - 1))

        def both() -> Any:
            states, saved = launch.forward(*arguments)
            return launch.backward(self.cell.name, grads, None, *arguments[1:], states, saved)

        return lambda: launch.forward(*arguments, save_gates=False), both

    def backend(self, name: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """The public function with a named back-end, through autograd."""
        from constrint.flashrnn import rnn

        inputs = [x.clone().requires_grad_(True) for x in (self.wx, self.r, self.b)]

        def forward() -> Any:
            with torch.no_grad():
                return rnn(self.wx, self.r, self.b, cell=self.cell.name, backend=name)

        def both() -> Any:
            states, _ = rnn(*inputs, cell=self.cell.name, backend=name)
            return torch.autograd.grad(states[0], inputs, self.grad)

        return forward, both

    def cudnn(self) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """`torch.nn`'s layer of the same width (one head); it projects its inputs itself."""
        kinds = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "elman": torch.nn.RNN}
        layer = kinds[self.cell.name](self.dim, self.dim, batch_first=True, device="cuda", dtype=TORCH[self.dtype])
        layer.flatten_parameters()
        x = self.draw(self.batch, self.time, self.dim).requires_grad_(True)
        grad = self.draw(self.batch, self.time, self.dim)

        def forward() -> Any:
            with torch.no_grad():
                return layer(x)

        return forward, lambda: torch.autograd.grad(layer(x)[0], [x, *layer.parameters()], grad)

    def floor_ms(self, bytes_per_s: float, flop_per_s: float) -> tuple[float, float]:
        """Least time of forward and of both directions: each input read once, each output written once."""
        rows = self.batch * self.time * self.heads * self.dim
        gates, states = self.cell.num_gates, self.cell.num_states
        element = self.wx.element_size()
        flop = 2.0 * rows * gates * self.dim
        forward = max(rows * element * (gates + states) / bytes_per_s, flop / flop_per_s)
        # Backward reads pre-activations (or inputs), states and one gradient, and writes the inputs' gradients.
        backward = max(rows * element * (2 * gates + states + 1) / bytes_per_s, 2.0 * flop / flop_per_s)
        return 1e3 * forward, 1e3 * (forward + backward)


def ceilings() -> tuple[float, float]:
    """Copy bandwidth (bytes read and written per second) and bf16 matrix rate of this device, measured."""
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.numel() * 4 / (median_ms(lambda: target.copy_(source)) * 1e-3)
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    return copied, 2 * 8192**3 / (median_ms(lambda: a @ b) * 1e-3)


def relative_error(actual: Any, expected: Any) -> float:
    """Norm of the difference over the norm."""
    return float(((actual.double() - expected).norm() / expected.norm()).item())


def compile_one(job: tuple[str, int, int, int, str]) -> str:
    """Compile what one layer needs, into the cache on disk (in a process of its own)."""
    cell, batch, heads, dim, dtype = job
    try:
        for call in Layer(cell, (batch, 2, heads, dim), dtype).fused():
            call()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - the run itself will meet it again, and record it
        return f"{job}: {type(error).__name__}: {str(error).splitlines()[0][:100]}"
    return ""


def compile_all(quick: bool) -> list[str]:
    """Compile all kernels of the run in parallel; returns what failed."""
    jobs = [(c, s[0], s[2], s[3], d) for c in CHECK_CELLS for d in BOUNDS for s in CHECK_SIZES]
    jobs += [(cell, 16, heads, dim, "bf16") for cell, heads, dim in CASES]
    jobs += [(cell, 16, heads, dim, dtype) for dtype in ("fp16", "fp32") for cell, heads, dim in CUDNN_CASES]
    if not quick:
        jobs += [(cell, 16, heads, dim, "bf16") for heads, dim in DIMS for cell in ("lstm", "gru", "elman")]
        jobs += [("lstm", batch, heads, dim, "bf16") for heads, dim in ((12, 64), (1, 768)) for batch in BATCHES]
    workers = max(1, (os.cpu_count() or 2) - 1)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return [failed for failed in pool.map(compile_one, dict.fromkeys(jobs)) if failed]


def check() -> list[str]:
    """Every cell and dtype against the reference in fp64; returns what is out of bounds."""
    from constrint.kernels.rnn.reference import rnn_reference

    bad = []
    for cell in CHECK_CELLS:
        for dtype, bound in BOUNDS.items():
            for sizes in CHECK_SIZES:
                layer = Layer(cell, sizes, dtype, seed=sum(sizes))
                exact = [x.double().requires_grad_(True) for x in (layer.wx, layer.r, layer.b)]
                states, _ = rnn_reference(cell, *exact)
                wanted = torch.autograd.grad((states[0] * layer.grad.double()).sum(), exact)
                forward, both = layer.fused()
                found = [forward()[0][0], *both()[:3]]
                errors = [relative_error(a, e) for a, e in zip(found, [states[0].detach(), *wanted], strict=True)]
                if not max(errors) <= bound:
                    bad.append(f"{cell} {dtype} {sizes}: {' '.join(f'{e:.1e}' for e in errors)} over {bound:.1e}")
    return bad


class Table:
    """Rows of results, written as they come."""

    def __init__(self, path: Path, ceiling: tuple[float, float]) -> None:
        self.file = path.open("w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow([*FIELDS, "floor_forward_ms", "floor_both_ms", "configs"])
        self.ceiling = ceiling

    def add(self, what: str, name: str, layer: Layer, calls: tuple[Callable[[], Any], Callable[[], Any]]) -> None:
        """Time one implementation; a failure is recorded and printed, not raised."""
        times: list[Any] = []
        for call in calls:
            try:
                times.append(f"{median_ms(call):.4f}")
            except Exception as error:  # noqa: BLE001 - one implementation must not end the run
                times.append(type(error).__name__)
                print(f"{name}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        sizes = (layer.cell.name, layer.heads, layer.dim, layer.batch, layer.time, layer.dtype)
        floor = [f"{f:.4f}" for f in layer.floor_ms(*self.ceiling)]
        configs = chosen(layer) if name == "triton" else ""
        self.writer.writerow([what, name, *sizes, *times, *floor, configs])
        self.file.flush()
        cell, heads, dim, batch, steps, dtype = sizes
        print(f"{what:6s} {name:11s} {cell:5s} {heads:2d}x{dim:<4d} B={batch:<3d} T={steps:<4d} {dtype} "
              f"{times[0]:>9s} {times[1]:>9s}  floor {floor[0]} {floor[1]}  {configs}", flush=True)  # fmt: skip


def chosen(layer: Layer) -> str:
    """The solver's configurations in short: rows, row split, warps, stages, depth split, of both directions."""
    from constrint.errors import ConstrintError
    from constrint.kernels.rnn import launch

    shape = launch.Shape(layer.batch, layer.time, layer.cell.num_gates, layer.heads, layer.dim, layer.wx.device)
    keys = ("tile_batch", "row_split", "num_warps", "num_stages", "split_depth")
    try:
        found = [launch.choose(layer.cell.name, shape, layer.wx.dtype, d) for d in ("forward", "backward")]
    except ConstrintError:
        return "none fits"
    return " | ".join("/".join(str(c[k]) for k in keys) for c in found)


def vanilla(layer: Layer) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The plain loop: the reference in the layer's own dtype."""
    from constrint.kernels.rnn.reference import rnn_reference

    inputs = [x.clone().requires_grad_(True) for x in (layer.wx, layer.r, layer.b)]

    def forward() -> Any:
        with torch.no_grad():
            return rnn_reference(layer.cell.name, layer.wx, layer.r, layer.b)

    return forward, lambda: torch.autograd.grad(rnn_reference(layer.cell.name, *inputs)[0][0], inputs, layer.grad)


def run_cases(table: Table) -> None:
    """The table of cases with all implementations."""
    for cell, heads, dim in CASES:
        layer = Layer(cell, (16, 1024, heads, dim), "bf16")
        table.add("case", "triton", layer, layer.fused())
        table.add("case", "alternating", layer, layer.backend("alternating"))
        if heads == 1 and cell != "slstm":
            table.add("case", "cudnn", layer, layer.cudnn())
    wide = Layer("lstm", (16, 1024, 1, 2048), "bf16")  # beyond what the fused kernels take
    table.add("case", "alternating", wide, wide.backend("alternating"))
    table.add("case", "cudnn", wide, wide.cudnn())
    for cell, heads, dim in CASES[:1]:
        layer = Layer(cell, (16, 1024, heads, dim), "bf16")
        table.add("case", "autograd", layer, layer.backend("triton"))
        table.add("case", "vanilla", layer, vanilla(layer))
    for dtype in ("fp16", "fp32"):
        for cell, heads, dim in CUDNN_CASES:
            layer = Layer(cell, (16, 1024, heads, dim), dtype)
            table.add("case", "triton", layer, layer.fused())
            table.add("case", "cudnn", layer, layer.cudnn())


def run_sweeps(table: Table) -> None:
    """Head dimension, batch and time."""
    for heads, dim in DIMS:
        for cell in ("lstm", "gru", "elman"):
            layer = Layer(cell, (16, 1024, heads, dim), "bf16")
            table.add("dim", "triton", layer, layer.fused())
    for heads, dim in ((12, 64), (1, 768)):
        for batch in BATCHES:
            for steps in TIMES:
                layer = Layer("lstm", (batch, steps, heads, dim), "bf16")
                table.add("sweep", "triton", layer, layer.fused())
                if steps == 1024:
                    table.add("sweep", "alternating", layer, layer.backend("alternating"))
                    if heads == 1:
                        table.add("sweep", "cudnn", layer, layer.cudnn())
                del layer


def environment() -> dict[str, str]:
    """What the figures hold for."""
    import triton

    query = "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.memory"
    gpu = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version(),
            "cudnn": str(torch.backends.cudnn.version()), "gpu": gpu.stdout.strip()}  # fmt: skip


def main() -> None:
    """Check, then time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for rnn.csv and rnn_environment.json")
    parser.add_argument("--quick", action="store_true", help="the table of cases alone")
    args = parser.parse_args()
    print(*compile_all(args.quick), sep="\n", flush=True)
    bad = check()
    print(f"correct: {'all' if not bad else 'NOT ALL'}", *bad, sep="\n", flush=True)
    copied, rate = ceilings()
    facts = environment() | {"copy_bytes_per_s": f"{copied:.4g}", "bf16_flop_per_s": f"{rate:.4g}"}
    (args.out / "rnn_environment.json").write_text(json.dumps(facts | {"out_of_bounds": bad}, indent=1) + "\n")
    print(facts)
    table = Table(args.out / "rnn.csv", (copied, rate))
    run_cases(table)
    if not args.quick:
        run_sweeps(table)


if __name__ == "__main__":
    main()
