"""Time GEMM configurations of the modelled space on a GPU: the model's first choices and a random sample.

    python benchmarks/bench_gemm_space.py plan --gpu h200 --out plan.json       # no GPU; needs constrint
    python benchmarks/bench_gemm_space.py run plan.json --out results.csv       # needs torch, triton and the GPU
    python benchmarks/bench_gemm_space.py score results.csv --gpu h200          # no GPU; the model against the table

`run` compiles in parallel, checks every configuration against torch on fresh random inputs with a poisoned output,
and writes one row per configuration with cuBLAS (torch.matmul) in the same run.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHAPES = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (512, 512, 512),
    (16, 4096, 4096),
    (64, 8192, 8192),
    (128, 4096, 11008),
    (1024, 3072, 768),
    (16384, 3072, 768),
    (4096, 4096, 512),
    (333, 777, 1555),
]
KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent", "group_m")


def write_plan(args: argparse.Namespace) -> None:
    """Choose configurations: the model's first `--top`, and a random sample of those it thinks within `--worst`."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_kernel
    from constrint.select import Workload, rank
    from constrint.solve import enumerate_space

    gpu, spec = load_gpu(args.gpu), load_kernel("gemm")
    rng = random.Random(args.seed)
    plan = []
    for m, n, k in SHAPES:
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, args.dtype)
        ranking = rank(spec, gpu, workload, top=args.top)
        problem = spec.problem(gpu, workload)
        space = enumerate_space(problem)
        limit = args.worst * ranking.candidates[0].cost.seconds
        chosen = {tuple(c.config[key] for key in KEYS): None for c in ranking.candidates}
        for row in space.sample(args.sample * 20, seed=rng.randrange(2**31)):
            if len(chosen) >= args.top + args.sample:
                break
            fixed = {key: row[key] for key in KEYS}
            if _predicted_s(spec, gpu, workload, problem, fixed) <= limit:
                chosen.setdefault(tuple(fixed.values()))
        plan += [[m, n, k, *config] for config in chosen]
    args.out.write_text(json.dumps({"gpu": gpu.name, "dtype": args.dtype, "rows": plan}))
    print(f"{len(plan)} configurations for {len(SHAPES)} shapes", file=sys.stderr)


def _predicted_s(spec: Any, gpu: Any, workload: Any, problem: Any, config: dict[str, int]) -> float:
    import numpy as np

    from constrint.select.rank import predict

    columns = {name: np.array([value]) for name, value in config.items()}
    return float(predict(spec, gpu, workload, problem, columns).seconds[0])


def launch(a: Any, b: Any, c: Any, partial: Any, config: dict[str, int], num_sms: int, warm: bool) -> None:
    """Enqueue one GEMM (and its split-K reduction); with `warm`, only compile."""
    import triton
    import triton.language as tl

    from constrint.kernels.gemm.kernel_triton import gemm_kernel

    (m, k), n = a.shape, b.shape[1]
    split = config["split_k"]
    out = c if split == 1 else partial[: split * m * n].view(split, m, n)
    tiles = triton.cdiv(m, config["tile_m"]) * triton.cdiv(n, config["tile_n"])
    blocks = min(tiles, num_sms * config.get("blocks_per_sm", 1)) if config["persistent"] else tiles * split
    arguments = (
        a, b, out, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        0 if split == 1 else out.stride(0), out.stride(-2), out.stride(-1), blocks,
    )  # fmt: skip
    constants = {key: config[key] for key in ("tile_m", "tile_n", "tile_k", "group_m", "split_k")} | {
        "persistent": bool(config["persistent"]),
        "num_xcds": 1,
        "xcd_remap": False,
        "even_k": k % (config["tile_k"] * split) == 0,
        "input_precision": "ieee",
        "acc_dtype": tl.float32,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    if warm:
        gemm_kernel.warmup(*arguments, grid=(blocks,), **constants)
        return
    gemm_kernel[(blocks,)](*arguments, **constants)
    if split > 1:
        c.copy_(out.sum(0))


def _compile(job: tuple[str, list[int]]) -> str:
    import torch

    dtype = getattr(torch, job[0])
    m, n, k, *values = job[1]
    config = dict(zip(KEYS, values, strict=True))
    try:
        a = torch.empty((m, k), device="cuda", dtype=dtype)
        b = torch.empty((k, n), device="cuda", dtype=dtype)
        c = torch.empty((m, n), device="cuda", dtype=dtype)
        partial = torch.empty(config["split_k"] * m * n if config["split_k"] > 1 else 1, device="cuda")
        launch(a, b, c, partial, config, 132, warm=True)
    except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
        return type(error).__name__
    return "ok"


@dataclass(frozen=True)
class Case:
    """Operands of one shape on the device, the reference, and cuBLAS's time."""

    a: Any
    b: Any
    c: Any
    partial: Any
    expected: Any
    cublas_us: float


def make_case(m: int, n: int, k: int, dtype: Any) -> Case:
    """Fresh random operands; the reference in fp64, or cuBLAS where that would take too long."""
    import torch
    import triton

    a = torch.randn((m, k), device="cuda").to(dtype)
    b = torch.randn((k, n), device="cuda").to(dtype)
    expected = a.double() @ b.double() if m * n * k < 2**37 else (a @ b).double()
    cublas = triton.testing.do_bench(lambda: a @ b, warmup=10, rep=40, return_mode="median")
    partial = torch.empty(32 * m * n if m * n <= 2**24 else 1, device="cuda")
    return Case(a, b, torch.empty((m, n), device="cuda", dtype=dtype), partial, expected, 1e3 * cublas)


def measure(case: Case, config: dict[str, int], num_sms: int) -> tuple[str, list[float]]:
    """Check one configuration on a poisoned output, then time it: (outcome, median and quantiles in ms)."""
    import triton

    if config["split_k"] > 1 and config["split_k"] * case.c.numel() > case.partial.numel():
        return "workspace", []

    def call() -> None:
        launch(case.a, case.b, case.c, case.partial, config, num_sms, warm=False)

    try:
        case.c.fill_(float("nan"))
        call()
        error = ((case.c.double() - case.expected).norm() / case.expected.norm()).item()
        if not error < 6e-3:
            return f"wrong {error:.1e}", []
        return "ok", triton.testing.do_bench(call, warmup=4, rep=16, quantiles=[0.5, 0.2, 0.8])
    except Exception as failure:  # noqa: BLE001 - recorded as the row's outcome
        return type(failure).__name__, []


def run_plan(args: argparse.Namespace) -> None:
    """Compile in parallel, then check and time one by one."""
    import torch
    import triton

    plan = json.loads(args.plan.read_text())
    name = {"bf16": "bfloat16", "fp16": "float16"}[plan["dtype"]]
    os.environ.setdefault("TRITON_CACHE_DIR", "/tmp/triton-cache")
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1)) as pool:
        compiled = list(pool.map(_compile, [(name, row) for row in plan["rows"]], chunksize=4))
    print({o: compiled.count(o) for o in set(compiled)}, file=sys.stderr)
    device = torch.cuda.get_device_properties(0)
    with args.out.open("w", newline="") as file:
        file.write(
            f"# measured on {device.name}, torch {torch.__version__}, triton {triton.__version__}, "
            f"python {platform.python_version()}, {plan['dtype']}, warm L2, median of do_bench\n"
        )
        writer = csv.writer(file)
        writer.writerow(["m", "n", "k", *KEYS, "outcome", "median_us", "spread_us", "cublas_us"])
        shape, case = None, None
        for row, outcome in zip(plan["rows"], compiled, strict=True):
            if case is None or shape != row[:3]:
                shape, case = row[:3], make_case(*row[:3], getattr(torch, name))
            times: list[float] = []
            if outcome == "ok":
                outcome, times = measure(case, dict(zip(KEYS, row[3:], strict=True)), device.multi_processor_count)
            median, low, high = times or [float("nan")] * 3
            spread = 1e3 * (high - low)
            writer.writerow([*row, outcome, f"{1e3 * median:.2f}", f"{spread:.2f}", f"{case.cublas_us:.2f}"])


def score(args: argparse.Namespace) -> None:
    """Print, per shape, how the model's first choices compare with the best configuration found."""
    import numpy as np

    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_kernel
    from constrint.select import Workload
    from constrint.select.rank import predict

    gpu, spec = load_gpu(args.gpu), load_kernel("gemm")
    with args.results.open() as file:
        dtype = file.readline().split(", ")[4]
        rows = list(csv.DictReader(file))
    ratios = []
    print("shape                 configs  best us  cuBLAS us  first us  best/first  best/first8  rank corr  pred/meas")
    for shape in dict.fromkeys((r["m"], r["n"], r["k"]) for r in rows):
        here = [r for r in rows if (r["m"], r["n"], r["k"]) == shape and r["outcome"] == "ok"]
        m, n, k = (int(s) for s in shape)
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, dtype)
        columns = {key: np.array([int(r[key]) for r in here]) for key in KEYS}
        predicted = predict(spec, gpu, workload, spec.problem(gpu, workload), columns).seconds * 1e6
        measured = np.array([float(r["median_us"]) for r in here])
        order = np.argsort(predicted, kind="stable")
        best = measured.min()
        ranks = [np.argsort(np.argsort(x)) for x in (predicted, measured)]
        correlation = float(np.corrcoef(*ranks)[0, 1])
        first, first8 = measured[order[0]], measured[order[:8]].min()
        ratios.append((best / first, best / first8))
        print(
            f"{m}x{n}x{k}".ljust(22) + f"{len(here):7d} {best:8.1f} {float(here[0]['cublas_us']):10.1f} {first:9.1f} "
            f"{best / first:11.3f} {best / first8:12.3f} {correlation:10.2f} "
            f"{float(np.median(predicted / measured)):10.2f}"
        )
    for name, column in (("first", 0), ("first 8", 1)):
        print(f"geometric mean best/{name}: {statistics.geometric_mean(r[column] for r in ratios):.3f}")


def main() -> None:
    """Dispatch to plan, run or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    plan = commands.add_parser("plan")
    plan.add_argument("--gpu", required=True)
    plan.add_argument("--dtype", default="bf16")
    plan.add_argument("--top", type=int, default=30)
    plan.add_argument("--sample", type=int, default=90)
    plan.add_argument("--worst", type=float, default=5.0)
    plan.add_argument("--seed", type=int, default=1)
    plan.add_argument("--out", type=Path, required=True)
    plan.set_defaults(call=write_plan)
    run = commands.add_parser("run")
    run.add_argument("plan", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.set_defaults(call=run_plan)
    scored = commands.add_parser("score")
    scored.add_argument("results", type=Path)
    scored.add_argument("--gpu", required=True)
    scored.set_defaults(call=score)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
