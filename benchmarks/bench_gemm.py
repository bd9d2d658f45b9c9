"""`matmul` against cuBLAS through torch and against the floor, on the GPU of this machine.

    python benchmarks/bench_gemm.py table --out gemm.csv        # every shape: cuBLAS, the first choice, the best of 8
    python benchmarks/bench_gemm.py launches                    # every shape x 200 random valid configurations
    python benchmarks/bench_gemm.py inductor --limit 100        # torch.compile(mode="max-autotune"), Triton's template

The floor is the larger of operations over the highest rate and bytes over the highest bandwidth that this run measured
on the device (cuBLAS on large products, a device-to-device copy). Ratios are cuBLAS's time over ours.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

SQUARE = [(s, s, s) for s in (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)]
PREFILL = [
    (2048, 6144, 2048),
    (4096, 4096, 512),
    (4096, 14336, 4096),
    (4096, 4096, 14336),
    (2048, 12288, 4096),
    (1024, 11008, 4096),
    (512, 4096, 11008),
    (8192, 1024, 28672),
    (2048, 8192, 1024),
    (4096, 6144, 4096),
    (1024, 8192, 8192),
    (2048, 2048, 8192),
]
DECODE = [(m, n, k) for m in (1, 8, 16, 32, 64) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))]
SKINNY = [(2, 11008, 4096), (4, 4096, 11008), (24, 6144, 4096), (48, 4096, 4096), (128, 4096, 11008), (256, 8192, 8192)]
TALL = [(16384, 3072, 768), (16384, 256, 1024), (65536, 128, 256), (32768, 1024, 512), (8192, 64, 4096)]
RAGGED = [(333, 777, 1555), (1000, 1000, 1000), (1023, 2047, 511), (100, 300, 5000), (3001, 1999, 1001)]
RNN = [(16384, 3072, 768), (1024, 3072, 768), (8192, 2048, 512), (640, 2560, 1280), (2048, 1024, 256)]
SHAPES = list(dict.fromkeys(SQUARE + PREFILL + DECODE + SKINNY + TALL + RAGGED + RNN))
#: (dtype, layout of A and B); the other layouts are run for every third shape.
EVERYWHERE = (("bf16", "rr"), ("fp16", "rc"))
EVERY_THIRD = (("bf16", "rc"), ("fp16", "cr"), ("bf16", "cc"))
TUNED = 8
COLUMNS = (
    "m",
    "n",
    "k",
    "dtype",
    "layout",
    "floor_us",
    "cublas_cold_us",
    "first_cold_us",
    "tuned_cold_us",
    "cublas_warm_us",
    "first_warm_us",
    "tuned_warm_us",
    "choose_ms",
    "outcome",
    "first_config",
    "tuned_config",
)


def measured_peaks(timer: Any) -> tuple[float, float]:
    """Highest rate of cuBLAS in FLOP/s over large bf16 products, and bytes per second of a copy, read and written."""
    import torch

    rates = []
    for m, n, k in ((8192, 8192, 8192), (4096, 4096, 4096), (8192, 8192, 2048), (4096, 8192, 8192)):
        a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n)))
        rates.append(2e6 * m * n * k / timer.warm_us(lambda a=a, b=b: a @ b, 500.0))
    source = torch.randn(2**29, device="cuda").bfloat16()
    target = torch.empty_like(source)
    # A kernel, not a copy: in a graph torch's copy becomes a transfer that runs at two thirds of the bandwidth.
    copied = 1e6 * 4 * source.numel() / timer.warm_us(lambda: torch.neg(source, out=target), 500.0)
    return max(rates), copied


def cases() -> list[tuple[tuple[int, int, int], str, str]]:
    """Every shape, dtype and layout."""
    found = [(shape, dtype, layout) for shape in SHAPES for dtype, layout in EVERYWHERE]
    return found + [(shape, dtype, layout) for shape in SHAPES[::3] for dtype, layout in EVERY_THIRD]


def request_for(shape: tuple[int, int, int], dtype: str, layout: str) -> Any:
    """What `matmul` asks the model for these operands."""
    import torch
    from gemm_timing import DTYPES

    from constrint.kernels.gemm.dispatch import request_of

    m, n, k = shape
    element = DTYPES[dtype]
    a = torch.empty((1, m, k) if layout[0] == "r" else (1, k, m), device="cuda", dtype=element)
    b = torch.empty((1, k, n) if layout[1] == "r" else (1, n, k), device="cuda", dtype=element)
    a, b = (a if layout[0] == "r" else a.transpose(1, 2)), (b if layout[1] == "r" else b.transpose(1, 2))
    return request_of(a, b, None, None, element)


def run_table(args: argparse.Namespace) -> None:
    """Time every case; print and write one table."""
    import gemm_timing as timing

    from constrint.hwmodels.detect import describe_torch_device
    from constrint.kernels.gemm.choose import best, choose

    gpu_name = describe_torch_device(0).model
    if gpu_name is None:
        sys.exit("this GPU has no hardware model")
    machine, timer = timing.this_machine(), timing.Timer()
    choose(gpu_name, request_for((128, 128, 128), "bf16", "rr"))
    plan, jobs = [], {}
    for shape, dtype, layout in cases():
        request = request_for(shape, dtype, layout)
        started = time.perf_counter()
        choose(gpu_name, request)
        choose_ms = 1e3 * (time.perf_counter() - started)
        configs = best(gpu_name, request, TUNED)
        plan.append((shape, dtype, layout, choose_ms, configs))
        for config in configs:
            key = timing.compile_key(*shape, dtype, layout, config)
            jobs.setdefault(key, (shape, dtype, layout, config, machine))
    started = time.time()
    failed = [o for o in timing.compile_all(list(jobs.values())) if o != "ok"]
    print(
        f"compiled {len(jobs)} kernels in {time.time() - started:.0f} s, {len(failed)} failed {failed[:5]}", flush=True
    )
    peaks = measured_peaks(timer)
    print(
        f"measured peaks: {peaks[0] / 1e12:.0f} TFLOP/s (cuBLAS, bf16), {peaks[1] / 1e12:.2f} TB/s (copy)", flush=True
    )
    rows = []
    with args.out.open("w", newline="") as file:
        file.write(f"# measured on {timing.description()}, {peaks[0] / 1e12:.0f} TFLOP/s, {peaks[1] / 1e12:.2f} TB/s\n")
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for shape, dtype, layout, choose_ms, configs in plan:
            row = time_case(timer, machine, (shape, dtype, layout), configs, peaks)
            rows.append(row | {"choose_ms": f"{choose_ms:.3f}"})
            writer.writerow(rows[-1])
            file.flush()
    print_table(rows)


def time_case(timer: Any, machine: Any, which: Any, configs: list[Any], peaks: tuple[float, float]) -> dict[str, Any]:
    """cuBLAS before and after, the first choice through `matmul`, and every configuration of the best 8."""
    import gemm_timing as timing

    from constrint.kernels.gemm import matmul

    (m, n, k), dtype, layout = which
    case = timing.make_case(m, n, k, dtype, layout)
    a, b = case.a[0], case.b[0]
    row: dict[str, Any] = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout}
    num_bytes = a.element_size() * (m * k + k * n + m * n)
    row["floor_us"] = f"{1e6 * max(2 * m * n * k / peaks[0], num_bytes / peaks[1]):.2f}"

    def library() -> Any:
        return a @ b

    def ours() -> Any:
        return matmul(a, b)

    try:
        case.out[0].copy_(ours())
        row["outcome"] = timing.is_right(case, lambda: case.out[0].copy_(ours()))
        before = timer.cold_us(library)[0]
        first = timer.cold_us(ours)[0]
        tuned = []
        for config in configs:
            call = timing.caller(case, config, machine)
            outcome = timing.is_right(case, call)
            if outcome != "ok":
                row["outcome"] = f"{outcome} {dict(config)}"
                continue
            tuned.append((timer.cold_us(call)[0], config, call))
        after = timer.cold_us(library)[0]
        first = min(first, timer.cold_us(ours)[0])
        row |= {"cublas_cold_us": f"{min(before, after):.2f}", "first_cold_us": f"{first:.2f}"}
        cold, config, call = min(tuned, key=lambda entry: entry[0])
        row |= {"tuned_cold_us": f"{min(cold, first):.2f}", "tuned_config": " ".join(map(str, config.values()))}
        row["first_config"] = " ".join(map(str, configs[0].values()))
        row["cublas_warm_us"] = f"{timer.warm_us(library, before):.2f}"
        row["first_warm_us"] = f"{timer.warm_us(ours, first):.2f}"
        row["tuned_warm_us"] = f"{timer.warm_us(call, cold):.2f}"
    except Exception as error:  # noqa: BLE001 - a failure is a row of the table
        row["outcome"] = f"{type(error).__name__} {str(error).splitlines()[-1][:80] if str(error) else ''}"
    return row


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per case and the geometric means."""
    print(
        "M x N x K            type    floor  cuBLAS   first   best8  ratio first/best8 | warm cuBLAS   first  ratio  ms"
    )
    ratios: dict[str, list[float]] = {"first": [], "tuned": [], "first warm": [], "first/best8": []}
    for row in rows:
        name = f"{row['m']}x{row['n']}x{row['k']}".ljust(20) + f"{row['dtype']} {row['layout']}"
        if row["outcome"] != "ok" or "tuned_warm_us" not in row:
            print(name, row["outcome"])
            continue
        t = {key: float(row[key]) for key in COLUMNS if key.endswith("_us")}
        ratios["first"].append(t["cublas_cold_us"] / t["first_cold_us"])
        ratios["tuned"].append(t["cublas_cold_us"] / t["tuned_cold_us"])
        ratios["first warm"].append(t["cublas_warm_us"] / t["first_warm_us"])
        ratios["first/best8"].append(t["tuned_cold_us"] / t["first_cold_us"])
        cold = [t[f"{who}_cold_us"] for who in ("cublas", "first", "tuned")]
        figures = "".join(f"{value:8.1f}" for value in (t["floor_us"], *cold))
        both = f"{ratios['first'][-1]:6.2f} {ratios['tuned'][-1]:6.2f}"
        warm = f"{t['cublas_warm_us']:12.1f} {t['first_warm_us']:7.1f} {ratios['first warm'][-1]:5.2f}"
        print(f"{name} {figures} {both} | {warm} {float(row['choose_ms']):6.2f}")
    for name, found in ratios.items():
        if found:
            print(
                f"{name}: geometric mean {statistics.geometric_mean(found):.3f}, worst {min(found):.3f} of {len(found)}"
            )


def run_launches(args: argparse.Namespace) -> None:
    """Launch random valid configurations of the whole space for every shape and check the results."""
    import gemm_timing as timing
    import numpy as np

    from constrint.hwmodels import load_gpu
    from constrint.hwmodels.detect import describe_torch_device
    from constrint.kernels.gemm.grid_rules import COLUMNS as OVER_COLUMNS
    from constrint.kernels.gemm.grid_rules import grid_rules
    from constrint.kernels.gemm.spec import SPEC
    from constrint.select import Workload
    from constrint.solve import enumerate_space

    gpu = load_gpu(describe_torch_device(0).model or "")
    rng, machine, started = random.Random(args.seed), timing.this_machine(), time.time()
    large = Workload("gemm", {"m": 65536, "n": 65536, "k": 65536}, "bf16")
    pool = [dict(row) for row in enumerate_space(SPEC.problem(gpu, large)).sample(args.pool, seed=args.seed)]
    columns = {name: np.array([config[name] for config in pool]) for name in pool[0]}
    plan: list[tuple[Any, Any]] = []
    for m, n, k in SHAPES:
        valid = np.ones(len(pool), dtype=bool)
        for rule in grid_rules(gpu, {"m": m, "n": n, "k": k}, columns, OVER_COLUMNS):
            valid &= rule.condition
        # Partial sums beyond a gigabyte only make the check slow.
        valid &= m * n * columns["split_k"] < 2**28
        rows = np.flatnonzero(valid).tolist()
        plan += [((m, n, k), pool[row]) for row in rng.sample(rows, min(args.per_shape, len(rows)))]
    jobs = {timing.compile_key(*shape, "bf16", "rr", c): (shape, "bf16", "rr", c, machine) for shape, c in plan}
    outcomes = timing.compile_all(list(jobs.values()))
    counts = {f"compile {o}": outcomes.count(o) for o in set(outcomes) - {"ok"}}
    print(f"compiled {len(jobs)} kernels in {time.time() - started:.0f} s", flush=True)
    case, now, launched = None, None, 0
    for shape, config in plan:
        if time.time() - started > args.limit:
            break
        if shape != now:
            now, case = shape, timing.make_case(*shape, "bf16")
        try:
            outcome = timing.is_right(case, timing.caller(case, config, machine))
        except Exception as error:  # noqa: BLE001 - counted
            outcome = type(error).__name__
        launched += 1
        counts[outcome] = counts.get(outcome, 0) + 1
        if outcome != "ok":
            print(shape, config, outcome, flush=True)
    print(f"{launched} of {len(plan)} launches over {len(SHAPES)} shapes in {time.time() - started:.0f} s: {counts}")


def run_inductor(args: argparse.Namespace) -> None:
    """torch.compile(mode="max-autotune") restricted to its Triton template, shape by shape until the limit."""
    import gemm_timing as timing
    import torch
    from torch._inductor import config as inductor

    from constrint.kernels.gemm import matmul

    inductor.max_autotune_gemm_backends = "TRITON"
    inductor.max_autotune = True
    timer, started = timing.Timer(), time.time()
    print("M x N x K             template us  ours us  ratio  compile s  choose and compile s")
    for m, n, k in ((4096, 4096, 4096), (2048, 2048, 2048), (16, 4096, 4096), (1024, 3072, 768), (16384, 3072, 768),
                    (64, 8192, 8192), (1024, 1024, 1024), (512, 512, 512), (4096, 4096, 512), (128, 4096, 11008),
                    (333, 777, 1555), (8192, 8192, 8192)):  # fmt: skip
        if time.time() - started > args.limit:
            break
        a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n)))
        begun = time.time()
        matmul(a, b)
        torch.cuda.synchronize()
        ours_s, begun = time.time() - begun, time.time()
        torch._dynamo.reset()
        compiled = torch.compile(torch.matmul, fullgraph=True, dynamic=False, options={"max_autotune": True})
        compiled(a, b)
        torch.cuda.synchronize()
        theirs_s = time.time() - begun
        theirs = timer.cold_us(lambda c=compiled, a=a, b=b: c(a, b))[0]
        ours = timer.cold_us(lambda a=a, b=b: matmul(a, b))[0]
        name = f"{m}x{n}x{k}".ljust(20)
        print(f"{name} {theirs:12.1f} {ours:8.1f} {theirs / ours:6.2f} {theirs_s:10.1f} {ours_s:10.2f}", flush=True)


def main() -> None:
    """Dispatch to table, launches or inductor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    table = commands.add_parser("table")
    table.add_argument("--out", type=Path, required=True)
    table.set_defaults(call=run_table)
    launches = commands.add_parser("launches")
    launches.add_argument("--pool", type=int, default=900, help="random configurations that shapes draw from")
    launches.add_argument("--per-shape", type=int, default=200)
    launches.add_argument("--seed", type=int, default=3)
    launches.add_argument("--limit", type=float, default=300.0)
    launches.set_defaults(call=run_launches)
    inductor = commands.add_parser("inductor")
    inductor.add_argument("--limit", type=float, default=100.0)
    inductor.set_defaults(call=run_inductor)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
