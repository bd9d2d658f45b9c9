"""Grouped products: configurations as the model chooses them, predicted and measured, beside torch's and a loop.

    python -m benchmarks.gemm.grouped                  # experts of Mixtral, DeepSeek and others; needs a GPU
    python -m benchmarks.gemm.grouped --only mixtral   # those with a name

Rows are dealt to experts at random, evenly, with a few large experts, or all to one. Results are compared in fp64 in
rows next to the ends of experts and in others, on guarded memory. Times are with a cold L2, in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.harness.timing import gpu_here
from constrint import rank
from constrint.hwmodels import GpuModel
from constrint.kernels.grouped import grouped_matmul
from constrint.kernels.grouped.launch import GroupedCall, grouped_launch
from constrint.kernels.grouped.op import workload_of_call
from constrint.select.candidate import Config
from constrint.tune.measure import Timer

#: Configurations that differ in direction, schedule, cluster or size of tile, for each case; ranked ones among which
#: they are looked for.
MOST, RANKED = 7, 3000
#: Rows that are compared beside those next to ends.
COMPARED = 200


@dataclass(frozen=True)
class Experts:
    """One grouped product.

    Args:
        name: What it stands for.
        sizes: Rows of all experts, N, K and experts.
        along_k: Whether weights lie along K.
        dealt: "random", "even", "skewed" or "one".
    """

    name: str
    sizes: tuple[int, int, int, int]
    along_k: bool = False
    dealt: str = "random"


CASES = (
    Experts("mixtral up", (2048, 14336, 4096, 8)),
    Experts("mixtral up", (2048, 14336, 4096, 8), along_k=True),
    Experts("mixtral down", (2048, 4096, 14336, 8)),
    Experts("mixtral up", (16384, 14336, 4096, 8), along_k=True),
    Experts("mixtral down", (16384, 4096, 14336, 8), dealt="even"),
    Experts("deepseek up", (512, 2048, 7168, 32), along_k=True),
    Experts("deepseek up", (4096, 2048, 7168, 32), along_k=True),
    Experts("deepseek down", (4096, 7168, 2048, 32), dealt="skewed"),
    Experts("deepseek up", (16384, 2048, 7168, 64), along_k=True),
    Experts("deepseek down", (16384, 7168, 2048, 64)),
    Experts("small", (1024, 1024, 2048, 16), dealt="skewed"),
    Experts("decode", (64, 2048, 2048, 64), along_k=True, dealt="skewed"),
    Experts("one has all", (8192, 1024, 2048, 64), dealt="one"),
    Experts("odd", (3000, 1032, 2056, 8)),
)


def main() -> None:
    """Run all cases, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a name")
    args = parser.parse_args()
    gpu = gpu_here()
    timer = Timer()
    for case in (each for each in CASES if args.only in each.name):
        run(case, gpu, timer)


def run(case: Experts, gpu: GpuModel, timer: Timer) -> None:
    """Check and time a case; print a line for it and one for every configuration."""
    torch.manual_seed(len(case.name))
    a, b, ends = operands(case)
    host = [int(end) for end in ends.tolist()]
    picked, exact, bound = expected(a, b, host)

    def check(out: Tensor, what: str) -> None:
        wrong = ~((out[picked].double() - exact).abs() <= bound)
        if bool(wrong.any()):
            print(f"wrong: {case} {what}: {int(wrong.sum())} results, rows {picked[wrong.any(1)][:4].tolist()}")

    calls: dict[str, Callable[[], object]] = {
        "loop": lambda: loop(a, b, host),
        "auto": lambda: grouped_matmul(a, b, ends),
    }
    if hasattr(torch, "_grouped_mm"):
        calls["torch._grouped_mm"] = lambda: torch._grouped_mm(a, b, offs=ends)
    check(grouped_matmul(a, b, ends), "auto")
    predicted: dict[str, float] = {}
    for number, (config, seconds) in enumerate(chosen(gpu, a, b)):
        whole = torch.full((len(a) + 2, b.shape[2]), torch.nan, device="cuda", dtype=a.dtype)
        launch = grouped_launch(gpu, GroupedCall(a, b, ends, whole[1:-1]), config)
        launch.run()
        check(whole[1:-1], str(config))
        if not bool(whole[0].isnan().all() and whole[-1].isnan().all()):
            print(f"wrote beside its results: {case} {config}")
        name = f"{number} " + " ".join(f"{key}={value}" for key, value in config.items())
        calls[name], predicted[name] = launch.run, 1e6 * seconds
    times = timer.cold([timer.graph(call) for call in calls.values()], 15)
    measured = {name: 1e6 * each.median_s for name, each in zip(calls, times, strict=True)}
    least = min(measured[name] for name in predicted)
    named = ", ".join(f"{name} {us:.1f}" for name, us in measured.items() if name not in predicted)
    print(f"{case.name} {case.sizes} {case.dealt}: {named}, best of {len(predicted)} {least:.1f} us", flush=True)
    for name, us in predicted.items():
        print(f"  {name}: predicted {us:.1f}, measured {measured[name]:.1f} us")


def operands(case: Experts) -> tuple[Tensor, Tensor, Tensor]:
    """A, B, and where the rows of each expert end."""
    rows, n, k, experts = case.sizes
    a = torch.randn((rows, k), device="cuda", dtype=torch.bfloat16)
    b = torch.randn((experts, n, k) if case.along_k else (experts, k, n), device="cuda", dtype=torch.bfloat16)
    weights = torch.rand(experts) ** (4 if case.dealt == "skewed" else 1)
    if case.dealt == "even":
        weights = torch.ones(experts)
    elif case.dealt == "one":
        weights = (torch.arange(experts) == experts // 3).float()
    ends = (weights.cumsum(0) / weights.sum() * rows).round().to(torch.int32)
    ends[-1] = rows
    return a, b.transpose(1, 2) if case.along_k else b, ends.to("cuda")


def chosen(gpu: GpuModel, a: Tensor, b: Tensor) -> Iterator[tuple[Config, float]]:
    """The best configurations by the model that differ, with predicted seconds."""
    workload = workload_of_call(a, b, None)
    seen: set[tuple[object, ...]] = set()
    for each in rank("grouped", gpu, workload, top=RANKED).candidates:
        c = each.config
        area = (c["tile_m"] * c["tile_n"]).bit_length()
        key = (c["turned"], c["in_turns"], c["cluster_m"] * c["cluster_n"] > 1, area)
        if key not in seen:
            seen.add(key)
            yield c, each.cost.seconds
        if len(seen) == MOST:
            return


def loop(a: Tensor, b: Tensor, ends: list[int]) -> Tensor:
    """A product for each expert."""
    out = a.new_empty((len(a), b.shape[2]))
    for expert, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if end > begin:
            torch.mm(a[begin:end], b[expert], out=out[begin:end])
    return out


def expected(a: Tensor, b: Tensor, ends: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows that are compared, their results in fp64, and what rounding may make of them."""
    near = {row for end in (0, *ends) for row in (end - 2, end - 1, end, end + 1, end + 63) if 0 <= row < len(a)}
    picked = torch.tensor(sorted(near | set(range(0, len(a), max(1, len(a) // COMPARED)))), device="cuda")
    owners = torch.bucketize(picked, torch.tensor(ends, device="cuda"), right=True)
    exact = torch.empty((len(picked), b.shape[2]), device="cuda", dtype=torch.float64)
    bound = torch.empty_like(exact)
    for expert in sorted(set(owners.tolist())):
        own = owners == expert
        rows, weights = a[picked[own]].double(), b[expert].double()
        exact[own] = rows @ weights
        bound[own] = a.shape[1] * 2.0**-23 * (rows.abs() @ weights.abs()) + 2.0**-8 * exact[own].abs()
    return picked, exact, bound


if __name__ == "__main__":
    main()
