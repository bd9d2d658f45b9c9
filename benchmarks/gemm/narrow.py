"""Products of few bits by public calls: fp8 with scales beside torch's own, weights of 4 and 8 bits beside copies.

    python -m benchmarks.gemm.narrow            # all kernels' configurations that the model ranks first; needs a GPU
    python -m benchmarks.gemm.narrow --kind quantised --best 1

Times are with a cold L2, in turn. What a copy takes that reads half of a product's bytes and writes as many is the
measure of weights: it bears the launch and the memory's latency too, which small weights are bound by. Results are
compared with fp64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness.timing import gpu_here
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.quantised import QuantisedWeight, quantised_matmul
from constrint.kernels.gemm.scaled import scaled_matmul
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select.workload import Workload
from constrint.solve import enumerate_space
from constrint.tune.measure import Timer, call_of

#: Sizes (m, n, k): those of DeepGEMM's published table, and others.
SCALED = [(m, n, k) for m in (64, 128, 4096) for n, k in ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168))]
SCALED += [(16, 7168, 2048), (2048, 2048, 2048), (8192, 8192, 8192)]
#: Layers of language models for few tokens, and ragged ones.
QUANTISED = [(m, n, k) for m in (1, 8, 16) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (28672, 8192))]
QUANTISED += [(2, 151936, 4096), (3, 130, 200), (5, 1000, 1111)]
GROUP, ROUNDS = 128, 15


def main() -> None:
    """Run all cases, or those of a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("scaled", "quantised"), help="one kind only")
    parser.add_argument("--best", type=int, default=3, help="configurations that are timed beside the public call")
    args = parser.parse_args()
    gpu = gpu_here()
    timer = Timer()
    if args.kind != "quantised":
        for sizes in SCALED:
            for blocks in (0, 1):
                of_scaled(timer, gpu, sizes, blocks, args.best)
    if args.kind != "scaled":
        for sizes in QUANTISED:
            for bits in (4, 8):
                of_quantised(timer, gpu, sizes, bits, args.best)


def of_scaled(timer: Timer, gpu: GpuModel, sizes: tuple[int, int, int], blocks: int, best: int) -> None:
    """Time one fp8 product with scales of rows or of blocks."""
    workload = _workload("scaled_gemm", sizes, "fp8", {"blocks": 1} if blocks else {})
    spec = load_spec("scaled_gemm.cuda")
    inputs = spec.inputs(gpu, workload, device="cuda", seed=1)
    a, b, scale_a, scale_b = (inputs[name] for name in ("a", "b", "scale_a", "scale_b"))
    rows, columns = (scale.t().contiguous().t() if blocks else scale for scale in (scale_a, scale_b))
    exact = spec.reference(workload, inputs)["out"]
    terms = spec.reference(workload, {name: t.float().abs() if name in "ab" else t for name, t in inputs.items()})[
        "out"
    ]
    calls: dict[str, Callable[[], Any]] = {"constrint": lambda: scaled_matmul(a, b, scale_a, scale_b)}
    if sizes[1] % 16 == 0 and sizes[2] % 16 == 0:
        calls["torch"] = lambda: torch._scaled_mm(a, b, rows, columns, out_dtype=torch.bfloat16)
    bound = 1.01 * terms * (2.0**-13 + sizes[2] * 2.0**-24) + 2.0**-8 * exact.abs() + 1e-30
    _compare(calls["constrint"](), exact, bound, f"{sizes} {blocks}")
    times = _timed(timer, gpu, workload, inputs, calls, exact, bound, best)
    flops = 2e-6 * sizes[0] * sizes[1] * sizes[2]
    shown = (f"{name} {us:.1f} us ({flops / us:.0f} TFLOP/s)" for name, us in times.items())
    print(f"scaled {'x'.join(map(str, sizes))} {'blocks' if blocks else 'rows'}:", *shown, flush=True)


def of_quantised(timer: Timer, gpu: GpuModel, sizes: tuple[int, int, int], bits: int, best: int) -> None:
    """Time one product with weights of few bits."""
    _, n, k = sizes
    workload = _workload("quantised_gemm", sizes, "bf16", {"bits": bits, "group": GROUP})
    spec = load_spec("quantised_gemm.cuda")
    inputs = spec.inputs(gpu, workload, device="cuda", seed=1)
    x, weight = inputs["x"], QuantisedWeight(inputs["packed"], inputs["scales"], n, k, bits, GROUP, inputs["x"].dtype)
    dense = weight.dense(torch.float32)
    exact = torch.cat([x.double() @ rows.double().T for rows in torch.split(dense, 8192)], 1)
    terms = torch.cat([x.double().abs() @ rows.double().abs().T for rows in torch.split(dense, 8192)], 1)
    narrow = dense.to(x.dtype).T
    del dense
    moved = spec.moved_bytes(workload)
    source, target = (torch.empty(moved // 2, device="cuda", dtype=torch.uint8) for _ in range(2))
    calls: dict[str, Callable[[], Any]] = {
        "constrint": lambda: quantised_matmul(x, weight),
        "torch bf16": lambda: torch.mm(x, narrow),
        "copy": lambda: target.copy_(source),
    }
    bound = 1.01 * terms * (2.0**-22 + k * 2.0**-24) + 2.0**-8 * exact.abs() + 1e-7
    with torch.no_grad():
        _compare(calls["constrint"](), exact, bound, f"{sizes} {bits}")
        times = _timed(timer, gpu, workload, inputs, calls, exact, bound, best)
    shown = (f"{name} {us:.1f} us ({times['copy'] / us:.2f} of the copy)" for name, us in times.items())
    print(f"quantised {'x'.join(map(str, sizes))} {bits} bits:", *shown, flush=True)


def _workload(operation: str, sizes: tuple[int, int, int], dtype: str, options: dict[str, int]) -> Workload:
    return Workload(operation, dict(zip("mnk", sizes, strict=True)), dtype, options)


def _timed(
    timer: Timer, gpu: GpuModel, workload: Workload, inputs: dict[str, Any], calls: dict[str, Callable[[], Any]],
    exact: Tensor, bound: Tensor, best: int,
) -> dict[str, float]:  # fmt: skip
    """Median times in us: of the calls, and of each kernel's fastest of the configurations that it ranks first."""
    runs, kernels = list(calls.values()), list(calls)
    for spec in load_kernel(workload.operation).implementations:
        problem = spec.problem(gpu, workload)
        columns, _ = enumerate_space(problem).project(list(problem.variables))
        seconds = spec.cost(gpu, workload, columns, np.ones(len(next(iter(columns.values()))))).seconds
        for at in np.argsort(seconds, kind="stable")[:best]:
            config = {name: int(column[at]) for name, column in columns.items()}
            outputs = spec.outputs(gpu, workload, inputs)
            run = call_of(spec.launches(gpu, workload, config, inputs, outputs))
            run()
            _compare(outputs["out"], exact, bound, str(config))
            runs.append(run)
            kernels.append(f"best of {spec.full_name}")
    times: dict[str, float] = {}
    for name, each in zip(kernels, timer.cold([timer.graph(run) for run in runs], ROUNDS), strict=True):
        times[name] = min(times.get(name, float("inf")), 1e6 * each.median_s)
    return times


def _compare(out: Tensor, exact: Tensor, bound: Tensor, what: str) -> None:
    """Print results beyond their bound."""
    wrong = int((~((out.double() - exact).abs() <= bound)).sum())
    if wrong:
        print(f"WRONG: {wrong} results of {what}")


if __name__ == "__main__":
    main()
