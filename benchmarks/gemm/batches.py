"""Batches: configurations of each kernel as the models choose them, predicted and measured, beside torch.

    python -m benchmarks.gemm.batches                # 25 batches; needs a GPU
    python -m benchmarks.gemm.batches --only decode  # those with a name

For each batch the best configurations by the models are run on guarded memory, compared with the product in fp64, and
timed in turn with a cold L2. The last lines say how measured and predicted times of each kernel compare, from which the
shares `batch_...` in `gemm/cuda/constants.json` and `TORN` in `gemm/skinny/cost.py` were chosen.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness.timing import gpu_here
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.candidates import priced
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.operands import product_of
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import gemm_spec
from constrint.tune.measure import Timer, call_of

#: Configurations of a kernel that are run for each batch; one of any other kernel.
MOST = {"gemm.cuda": 5, "gemm.skinny": 3}
#: Elements between two products that must not be written.
GAP = 64


@dataclass(frozen=True)
class Batch:
    """One batch.

    Args:
        name: What it stands for.
        sizes: Products, M, N and K.
        lies: How A and B lie: "r" by rows, "c" by columns.
        shared: An operand that all products share, "a" or "b".
        end: "bias", "source" or nothing.
    """

    name: str
    sizes: tuple[int, int, int, int]
    lies: str = "rr"
    shared: str = ""
    end: str = ""


BATCHES = (
    Batch("large results", (32, 1024, 1024, 128), "rc"),
    Batch("one row", (16, 1, 4096, 128)),
    Batch("one row", (16, 1, 4096, 128), "rc"),
    Batch("odd tiles", (256, 200, 64, 200)),
    Batch("small", (64, 128, 128, 64)),
    Batch("scores", (64, 512, 512, 64), "rc"),
    Batch("scores", (128, 256, 256, 128), "rc"),
    Batch("scores", (64, 2048, 2048, 128), "rc"),
    Batch("scores", (256, 128, 128, 64), "rc"),
    Batch("values", (64, 512, 64, 512)),
    Batch("values", (128, 1024, 128, 1024)),
    Batch("values", (96, 384, 64, 384)),
    Batch("decode scores", (256, 1, 2048, 128), "rc"),
    Batch("decode values", (256, 1, 128, 2048)),
    Batch("decode scores", (64, 8, 1024, 128), "rc"),
    Batch("short N", (32, 4096, 8, 512)),
    Batch("experts", (8, 256, 4096, 1024)),
    Batch("experts", (16, 16, 2048, 2048), "rc"),
    Batch("gradients", (8, 1024, 1024, 2048), "cr"),
    Batch("shared", (16, 512, 1024, 512), "rr", "a"),
    Batch("shared", (16, 500, 776, 512), "rc", "b"),
    Batch("source", (16, 512, 768, 256), end="source"),
    Batch("bias", (24, 300, 520, 200), end="bias"),
    Batch("odd rows", (32, 250, 250, 250)),
    Batch("small", (512, 64, 64, 64)),
)


def main() -> None:
    """Run all batches, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a name")
    args = parser.parse_args()
    gpu = gpu_here()
    shares: dict[str, list[float]] = defaultdict(list)
    timer = Timer()
    for batch in (each for each in BATCHES if args.only in each.name):
        for kernel, predicted_us, measured_us in run(batch, gpu, timer):
            if predicted_us:
                shares[kernel].append(measured_us / predicted_us)
    for kernel, of_one in shares.items():
        logs = [math.log(share) for share in of_one]
        mean = math.exp(sum(logs) / len(logs))
        print(
            f"{kernel}: measured over predicted {mean:.2f}, {min(of_one):.2f} to {max(of_one):.2f}, {len(logs)} times"
        )


def run(batch: Batch, gpu: GpuModel, timer: Timer) -> Iterator[tuple[str, float, float]]:
    """Kernels with predicted (0: none) and measured times in microseconds; prints a line for the batch."""
    torch.manual_seed(len(batch.name))
    call = call_for(batch, gpu)
    exact, bound = expected(call)
    end = call.epilogue
    ours: Callable[[], Tensor] = lambda: matmul(call.a, call.b, end.bias, c=end.source, beta=end.beta)  # noqa: E731
    check(ours(), exact, bound, f"{batch} auto")
    names, predicted, calls = ["torch", "auto"], [0.0, 0.0], [timer.graph(theirs(call)), timer.graph(ours)]
    for name, config, seconds in chosen(gpu, product_of_call(call)):
        whole, out = guarded(batch)
        call_of(gemm_spec(name).call_launches(replace(call, out=out), config))()
        check(out, exact, bound, f"{batch} {name} {config}")
        out.fill_(torch.nan)
        if not bool(whole.isnan().all()):
            print(f"wrote beside its results: {batch} {name} {config}")
        names.append(name)
        predicted.append(1e6 * seconds)
        calls.append(timer.graph(call_of(gemm_spec(name).call_launches(call, config))))
    measured = [1e6 * each.median_s for each in timer.cold(calls, 21)]
    least = {name: min(us for n, us in zip(names, measured, strict=True) if n == name) for name in names}
    shown = ", ".join(f"{name} {us:.1f}" for name, us in least.items())
    print(f"{batch.name} {'x'.join(map(str, batch.sizes))} {batch.lies}: {shown} us", flush=True)
    yield from zip(names, predicted, measured, strict=True)


def chosen(gpu: GpuModel, product: Product) -> Iterator[tuple[str, Mapping[str, int], float]]:
    """The best configurations of each kernel by its model, different in tiles, with predicted seconds."""
    for table, rows, seconds in priced(gpu, product):
        seen: set[tuple[int, ...]] = set()
        for at in np.argsort(seconds, kind="stable"):
            config = table.whole_config(product, int(rows[at]))
            key = (config["tile_m"], config["tile_n"], config.get("in_turns", 0), config.get("cluster_m", 0))
            if key in seen:
                continue
            seen.add(key)
            yield table.spec.full_name, config, float(seconds[at])
            if len(seen) == MOST.get(table.spec.full_name, 1):
                break


def call_for(batch: Batch, gpu: GpuModel) -> GemmCall:
    """The call on random operands."""
    number, m, n, k = batch.sizes

    def matrix(rows: int, columns: int, order: str, is_own: bool) -> Tensor:
        size = (number if is_own else 1, *((rows, columns) if order == "r" else (columns, rows)))
        made = torch.randn(size, device="cuda").to(torch.bfloat16)
        return (made if order == "r" else made.transpose(1, 2)).expand(number, rows, columns)

    a, b = matrix(m, k, batch.lies[0], batch.shared != "a"), matrix(k, n, batch.lies[1], batch.shared != "b")
    bias = torch.randn(n, device="cuda").to(torch.bfloat16) if batch.end == "bias" else None
    source = torch.randn((number, m, n), device="cuda").to(torch.bfloat16) if batch.end == "source" else None
    out = torch.empty((number, m, n), device="cuda", dtype=torch.bfloat16)
    end = Epilogue(bias, source, beta=0.0 if source is None else 1.0)
    return GemmCall(a, b, out, Machine.of(gpu), end, "ieee")


def product_of_call(call: GemmCall) -> Product:
    """The product for the models."""
    end = call.epilogue
    return product_of(call.a, call.b, end.bias, end.source, call.out.dtype, is_three_pass=False)


def guarded(batch: Batch) -> tuple[Tensor, Tensor]:
    """NaN in memory, and the part of it for results: between two products there is some that is not theirs."""
    number, m, n, _ = batch.sizes
    step = m * n + GAP
    whole = torch.full((number * step + GAP,), torch.nan, device="cuda", dtype=torch.bfloat16)
    return whole, whole.as_strided((number, m, n), (step, n, 1), GAP)


def expected(call: GemmCall) -> tuple[Tensor, Tensor]:
    """Results in fp64, and what rounding of sums to fp32 and of results to bf16 may make of them."""
    a, b = call.a.double(), call.b.double()
    exact, weight = a @ b, a.abs() @ b.abs()
    for added in (call.epilogue.bias, call.epilogue.source):
        if added is not None:
            exact, weight = exact + added.double(), weight + added.double().abs()
    return exact, call.a.shape[2] * 2.0**-23 * weight + 2.0**-8 * exact.abs()


def check(out: Tensor, exact: Tensor, bound: Tensor, what: str) -> None:
    """Say where results are wrong."""
    wrong = ~((out.double() - exact).abs() <= bound)
    if bool(wrong.any()):
        print(f"wrong: {what}: {int(wrong.sum())} results, the first at {wrong.nonzero()[0].tolist()}")


def theirs(call: GemmCall) -> Callable[[], Tensor]:
    """torch's product of the call."""
    end = call.epilogue
    if end.source is not None:
        source = end.source
        return lambda: torch.baddbmm(source, call.a, call.b)
    if end.bias is not None:
        bias = end.bias
        return lambda: torch.bmm(call.a, call.b) + bias
    return lambda: torch.bmm(call.a, call.b)


if __name__ == "__main__":
    main()
