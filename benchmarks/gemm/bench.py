"""`matmul` against cuBLAS through torch and against the floor, on the GPU of this machine.

    python benchmarks/bench_gemm.py table --out gemm.csv        # every shape: cuBLAS, the first choice, the best of 8
    python benchmarks/bench_gemm.py dtypes                      # fp8, int8, tf32 and fp32
    python benchmarks/bench_gemm.py launches                    # every shape x 200 random valid configurations
    python benchmarks/bench_gemm.py inductor --limit 100        # torch.compile(mode="max-autotune"), Triton's template

The floor is the larger of operations over the highest rate and bytes over the highest bandwidth that this run measured
on the device (cuBLAS on large products, a device-to-device copy). Ratios are cuBLAS's time over ours. Whoever is
compared is timed in turn, in several rounds; a figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import pickle
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
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
#: Of the comparison with torch.compile.
ROUNDS = 7
#: What 8-bit and 32-bit operands are timed on.
DTYPE_SHAPES = (
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (32, 4096, 4096),
    (128, 4096, 11008),
    (16384, 3072, 768),
    (4096, 14336, 4096),
)
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
    "cublas_spread_us",
    "first_spread_us",
    "tuned_spread_us",
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
    from gemm_compile import compile_all

    from constrint.hwmodels.detect import describe_torch_device
    from constrint.kernels.gemm.choose import best, choose

    gpu_name = describe_torch_device(0).model
    if gpu_name is None:
        sys.exit("this GPU has no hardware model")
    bench = Bench()
    choose(gpu_name, request_for((128, 128, 128), "bf16", "rr"))
    plan, jobs = [], {}
    for shape, dtype, layout in cases()[:: args.every]:
        request = request_for(shape, dtype, layout)
        started = time.perf_counter()
        choose(gpu_name, request)
        choose_ms = 1e3 * (time.perf_counter() - started)
        configs = best(gpu_name, request, TUNED)
        plan.append((shape, dtype, layout, choose_ms, configs))
        for config in configs:
            key = timing.compile_key(*shape, dtype, layout, config)
            jobs.setdefault(key, (shape, dtype, layout, config, bench.machine))
    started = time.time()
    failed = [o for o in compile_all(list(jobs.values())) if o != "ok"]
    print(
        f"compiled {len(jobs)} kernels in {time.time() - started:.0f} s, {len(failed)} failed {failed[:5]}", flush=True
    )
    peaks = measured_peaks(bench.timer)
    print(
        f"measured peaks: {peaks[0] / 1e12:.0f} TFLOP/s (cuBLAS, bf16), {peaks[1] / 1e12:.2f} TB/s (copy)", flush=True
    )
    rows = []
    with args.out.open("w", newline="") as file:
        file.write(f"# measured on {timing.description()}, {peaks[0] / 1e12:.0f} TFLOP/s, {peaks[1] / 1e12:.2f} TB/s\n")
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for shape, dtype, layout, choose_ms, configs in plan:
            row = time_case(bench, (shape, dtype, layout), configs, peaks)
            rows.append(row | {"choose_ms": f"{choose_ms:.3f}"})
            writer.writerow(rows[-1])
            file.flush()
    print(f"timed {len(rows)} cases, {time.time() - started:.0f} s in all", flush=True)
    print_table(rows)


def time_case(bench: Bench, which: Any, configs: list[Any], peaks: tuple[float, float]) -> dict[str, Any]:
    """cuBLAS, the first choice through `matmul`, and every configuration of the best 8, in turn."""
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
        calls = [timing.caller(case, config, bench.machine) for config in configs]
        wrong = bench.check(case, [lambda: case.out[0].copy_(ours()), *calls])
        row["outcome"] = "ok" if not any(wrong) else f"wrong elements: {wrong}"
        timer = bench.timer
        (_, _), (_, _), *cold = timer.cold_in_turn([library, ours, *calls], 21)
        best = min(range(len(calls)), key=lambda i: cold[i][0])
        # Once more, so that the figure that picked the best is not the one it is judged by.
        measured = timer.cold_in_turn([library, ours, calls[best]], 45)
        warm = timer.warm_in_turn([library, ours, calls[best]], measured[0][0])
        for who, (time_us, spread), warm_us in zip(("cublas", "first", "tuned"), measured, warm, strict=True):
            row |= {f"{who}_cold_us": f"{time_us:.2f}", f"{who}_spread_us": f"{spread:.2f}"}
            row[f"{who}_warm_us"] = f"{warm_us:.2f}"
        if best == 0 or float(row["tuned_cold_us"]) > float(row["first_cold_us"]):
            row |= {"tuned_cold_us": row["first_cold_us"], "tuned_warm_us": row["first_warm_us"]}
        row["tuned_config"] = " ".join(map(str, configs[best].values()))
        row["first_config"] = " ".join(map(str, configs[0].values()))
    except Exception as error:  # noqa: BLE001 - a failure is a row of the table
        row["outcome"] = f"{type(error).__name__} {str(error).splitlines()[-1][:80] if str(error) else ''}"
    return row


class Bench:
    """What every case shares: the timer, the machine, and how results are checked."""

    def __init__(self) -> None:
        import gemm_timing as timing
        import torch
        from gemm_replay import Recorder

        self.recorder, self.timer, self.machine = Recorder(), timing.Timer(), timing.this_machine()
        self.wrong = torch.zeros((256, 4), dtype=torch.int32, device="cuda")
        self.checked: tuple[Any, Any] = (None, None)

    def check(self, case: Any, calls: list[Any]) -> list[int]:
        """Wrong elements after each call on a poisoned output."""
        from gemm_replay import Check

        if self.checked[0] is not case:
            self.checked = case, Check(self.recorder, case.out, case.expected, case.bound, self.wrong)
        for number, call in enumerate(calls):
            call()
            self.checked[1](number)
        counts: list[int] = self.wrong[: len(calls), 0].tolist()
        self.wrong.zero_()
        return counts


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per case and the geometric means."""
    print(
        "M x N x K            type    floor  cuBLAS   first   best8  ratio first/best8 | warm cuBLAS   first  ratio  ms"
    )
    names = ("first", "tuned", "first warm", "tuned warm", "first/best8")
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for row in rows:
        name = f"{row['m']}x{row['n']}x{row['k']}".ljust(20) + f"{row['dtype']} {row['layout']}"
        if row["outcome"] != "ok" or "tuned_warm_us" not in row:
            print(name, row["outcome"])
            continue
        t = {key: float(row[key]) for key in COLUMNS if key.endswith("_us")}
        ratios["first"].append(t["cublas_cold_us"] / t["first_cold_us"])
        ratios["tuned"].append(t["cublas_cold_us"] / t["tuned_cold_us"])
        ratios["first warm"].append(t["cublas_warm_us"] / t["first_warm_us"])
        ratios["tuned warm"].append(t["cublas_warm_us"] / t["tuned_warm_us"])
        ratios["first/best8"].append(t["tuned_cold_us"] / t["first_cold_us"])
        cold = [t[f"{who}_cold_us"] for who in ("cublas", "first", "tuned")]
        figures = "".join(f"{value:8.1f}" for value in (t["floor_us"], *cold))
        both = f"{ratios['first'][-1]:6.2f} {ratios['tuned'][-1]:6.2f}"
        warm = f"{t['cublas_warm_us']:12.1f} {t['first_warm_us']:7.1f} {ratios['first warm'][-1]:5.2f}"
        print(f"{name} {figures} {both} | {warm} {float(row['choose_ms']):6.2f}")
    for name, found in ratios.items():
        if found:
            under = ", ".join(f"{sum(r < limit for r in found)} under {limit}" for limit in (0.85, 0.9, 0.95))
            print(
                f"{name}: geometric mean {statistics.geometric_mean(found):.3f}, worst {min(found):.3f} of "
                f"{len(found)}; {under}"
            )
    for who in ("cublas", "first"):
        spreads = [float(r[f"{who}_spread_us"]) / float(r[f"{who}_cold_us"]) for r in rows if r["outcome"] == "ok"]
        if spreads:
            print(
                f"spread of {who}, cold (80th less 20th percentile, of the median): median "
                f"{statistics.median(spreads):.3f}, largest {max(spreads):.3f}"
            )


def draw_launches(args: argparse.Namespace) -> list[tuple[tuple[int, int, int], dict[str, int]]]:
    """For every shape random points of its space, all different, grouped by shape.

    Shapes with aligned rows draw from one pool, so that they share compiled kernels, and from their own space what the
    pool lacks; others from their own space. The order of tiles is drawn again for each.
    """
    import numpy as np

    from constrint.hwmodels import load_gpu
    from constrint.kernels.gemm.grid_rules import COLUMNS as OVER_COLUMNS
    from constrint.kernels.gemm.grid_rules import grid_rules
    from constrint.kernels.gemm.spec import SPEC
    from constrint.select import Workload
    from constrint.solve import enumerate_space

    gpu, rng = load_gpu(args.gpu), random.Random(args.seed)
    large = Workload("gemm", {"m": 65536, "n": 65536, "k": 65536}, "bf16")
    pool = [dict(row) for row in enumerate_space(SPEC.problem(gpu, large)).sample(args.pool, seed=args.seed)]
    columns = {name: np.array([config[name] for config in pool]) for name in pool[0] if name != "group_m"}
    plan: list[tuple[tuple[int, int, int], dict[str, int]]] = []
    for m, n, k in SHAPES:
        problem = SPEC.problem(gpu, Workload("gemm", {"m": m, "n": n, "k": k}, "bf16"))
        candidates: list[dict[str, int]] = []
        if n % 16 == 0 and k % 16 == 0:
            valid = np.ones(len(pool), dtype=bool)
            for rule in grid_rules(gpu, {"m": m, "n": n, "k": k}, columns, OVER_COLUMNS):
                valid &= rule.condition
            shared = [pool[row] for row in np.flatnonzero(valid)]
            for config in rng.sample(shared, min(3 * args.per_shape, len(shared))):
                rows = -(-m // config["tile_m"])
                orders = [group for group in (1, 2, 4, 8, 16, 32) if group == 1 or group < 2 * rows]
                candidates.append(config | {"group_m": rng.choice(orders)})
        own = enumerate_space(problem).sample(2 * args.per_shape, seed=rng.randrange(2**31))
        candidates += [dict(row) for row in own]
        drawn: dict[tuple[int, ...], dict[str, int]] = {}
        for config in candidates:
            # Partial sums beyond a gigabyte only make the check slow.
            if len(drawn) < args.per_shape and m * n * config["split_k"] < 2**28:
                drawn[tuple(config.values())] = config
        plan += [((m, n, k), config) for config in drawn.values()]
    return plan


def run_launches(args: argparse.Namespace) -> None:
    """Launch random valid configurations of the whole space for every shape and check the results."""
    import gemm_timing as timing
    import torch
    from gemm_compile import compile_all

    started, machine = time.time(), timing.this_machine()
    plan = draw_launches(args)
    jobs = {timing.compile_key(*shape, "bf16", "rr", c): (shape, "bf16", "rr", c, machine) for shape, c in plan}
    outcomes = compile_all(list(jobs.values()))
    failed = {f"not compiled: {o}": outcomes.count(o) for o in set(outcomes) - {"ok"}}
    device = f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}"
    print(f"{device}: compiled {len(jobs)} kernels in {time.time() - started:.0f} s {failed or ''}", flush=True)
    found: dict[str, list[Any]] = {}
    with ThreadPoolExecutor() as pool:
        # The longest shapes first, dealt out to the GPUs.
        dealt = sorted(SHAPES, key=lambda shape: -shape[0] * shape[1] * shape[2])
        num_gpus = torch.cuda.device_count()
        parts = [[row for row in plan if row[0] in dealt[gpu::num_gpus]] for gpu in range(num_gpus)]
        until = started + args.limit
        for outcomes in pool.map(_launch_guarded, range(num_gpus), parts, [until] * num_gpus):
            for row, outcome in outcomes:
                found.setdefault(outcome, []).append(row)
    for outcome in found.keys() - {"ok"}:
        for row in found[outcome]:
            print(*row, outcome)
    launched = [row for rows in found.values() for row in rows]
    least = min(sum(shape == other for other, _ in launched) for shape in SHAPES)
    print(
        f"{len(launched)} of {len(plan)} launches over {len(SHAPES)} shapes, at least {least} each, in "
        f"{time.time() - started:.0f} s: { {outcome: len(rows) for outcome, rows in found.items()} }"
    )


def _launch_guarded(gpu: int, rows: list[Any], until: float) -> list[tuple[Any, str]]:
    """Rows and their outcomes, launched on one GPU by processes that may hang or crash."""
    import gemm_timing as timing

    folder = Path(tempfile.mkdtemp())
    (folder / "plan").write_bytes(pickle.dumps(rows))
    (folder / "outcomes").touch()

    def command(first: int, progress: Path) -> list[str]:
        child = [sys.executable, __file__, "launch-rows", str(folder), str(first), str(progress)]
        return ["env", f"CUDA_VISIBLE_DEVICES={timing.visible_device(gpu)}", *child]

    def lost(number: int, how: str) -> None:
        with (folder / "outcomes").open("a") as file:
            file.write(f"{number},{how}\n")

    timing.run_guarded(command, until, lost)
    lines = (line.split(",", 1) for line in (folder / "outcomes").read_text().splitlines())
    return [(rows[int(number)], outcome) for number, outcome in lines]


def launch_rows(folder: Path, first: int, progress: Path) -> None:
    """Launch and check the plan from row `first` on; the row at work stands in `progress`."""
    import gemm_timing as timing
    import torch

    plan, bench = pickle.loads((folder / "plan").read_bytes()), Bench()
    number = first
    with (folder / "outcomes").open("a") as file:
        for shape, group in itertools.groupby(plan[first:], key=lambda row: row[0]):
            case = timing.make_case(*shape, "bf16")
            for _, config in group:
                progress.write_text(str(number))
                try:
                    (wrong,) = bench.check(case, [timing.caller(case, config, bench.machine)])
                    outcome = "ok" if not wrong else f"{wrong} wrong elements"
                except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
                    outcome = type(error).__name__
                    torch.cuda.synchronize()  # ends this process where the device is lost to it
                file.write(f"{number},{outcome}\n")
                file.flush()
                number += 1
    progress.write_text("done")


def run_dtypes(args: argparse.Namespace) -> None:
    """8-bit and 32-bit operands: the first choice beside torch's library calls, B by columns."""
    import gemm_timing as timing
    import torch
    from gemm_compile import compile_all

    from constrint.hwmodels.detect import describe_torch_device
    from constrint.kernels.gemm import matmul
    from constrint.kernels.gemm.choose import choose

    gpu_name = describe_torch_device(0).model or ""
    timer, machine = timing.Timer(), timing.this_machine()
    one = torch.ones((), device="cuda")

    def scaled(a: Any, b: Any, fast: bool) -> Any:
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)

    libraries = {
        "fp8": {"_scaled_mm": lambda a, b: scaled(a, b, False), "_scaled_mm fast": lambda a, b: scaled(a, b, True)},
        "int8": {"_int_mm": lambda a, b: torch._int_mm(a, b)},
        "tf32": {"matmul": lambda a, b: a @ b},
        "fp32": {"matmul": lambda a, b: a @ b},
    }
    jobs = []
    for dtype in libraries:
        torch.set_float32_matmul_precision("highest" if dtype == "fp32" else "high")
        for shape in DTYPE_SHAPES:
            jobs.append((shape, dtype, "rc", choose(gpu_name, request_for(shape, dtype, "rc")), machine))
    print(f"{timing.description()}; compiled: {set(compile_all(jobs))}", flush=True)
    bandwidth = measured_peaks(timer)[1]
    print(
        "dtype M x N x K            library                 floor  library    ours  ratio | warm library    ours  ratio"
    )
    for dtype, calls in libraries.items():
        torch.set_float32_matmul_precision("highest" if dtype == "fp32" else "high")
        rows, ratios = [], []
        for m, n, k in DTYPE_SHAPES:
            case = timing.make_case(m, n, k, dtype, "rc")
            a, b = case.a[0], case.b[0]
            outcome = timing.is_right(case, lambda case=case, a=a, b=b: case.out[0].copy_(matmul(a, b)))
            if outcome != "ok":
                print(dtype, m, n, k, outcome, flush=True)
            known = {}
            for name, call in calls.items():
                with contextlib.suppress(RuntimeError, ValueError):
                    call(a, b)
                    known[name] = lambda call=call, a=a, b=b: call(a, b)
            everyone = [*known.values(), lambda a=a, b=b: matmul(a, b)]
            cold = [t for t, _ in timer.cold_in_turn(everyone)]
            warm = timer.warm_in_turn(everyone, cold[-1])
            num_bytes = a.element_size() * (m * k + k * n) + case.out.element_size() * m * n
            rows += [
                (f"{m}x{n}x{k}", name, 2e-6 * m * n * k, num_bytes, cold[i], cold[-1], warm[i], warm[-1])
                for i, name in enumerate([*known, "none"][: max(1, len(known))])
            ]
            del case, a, b, everyone, known
        # What the library reaches at best on any of them is the rate of the floor.
        peak = max(row[2] / min(row[4:]) for row in rows)
        for shape, name, mflop, num_bytes, theirs, ours, theirs_warm, ours_warm in rows:
            floor = max(mflop / peak, 1e6 * num_bytes / bandwidth)
            ratios.append((theirs / ours, theirs_warm / ours_warm, name))
            print(
                f"{dtype.ljust(5)} {shape.ljust(20)} {name.ljust(20)} {floor:8.1f} {theirs:8.1f} {ours:7.1f} "
                f"{theirs / ours:6.2f} | {theirs_warm:12.1f} {ours_warm:7.1f} {theirs_warm / ours_warm:6.2f}"
            )
        for name in dict.fromkeys(r[2] for r in ratios):
            of_one = [r for r in ratios if r[2] == name]
            for i, state in enumerate(("cold", "warm")):
                found = [r[i] for r in of_one]
                print(
                    f"{dtype} against {name}, {state}: geometric mean {statistics.geometric_mean(found):.3f}, worst "
                    f"{min(found):.3f}, {sum(r < 0.85 for r in found)} of {len(found)} under 0.85"
                )
        print(f"{dtype}: highest rate seen {peak:.0f} TFLOP/s", flush=True)


def run_inductor(args: argparse.Namespace) -> None:
    """torch.compile(mode="max-autotune") restricted to its Triton template, shape by shape until the limit."""
    import gemm_timing as timing
    import torch
    from torch._inductor import config as inductor

    from constrint.kernels.gemm import matmul

    inductor.max_autotune_gemm_backends = "TRITON"
    inductor.max_autotune = True
    timer, started = timing.Timer(), time.time()
    ratios = []
    print("M x N x K             template us (spread)  ours us (spread)  ratio  compile s  choose and compile s")
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
        calls = [lambda c=compiled, a=a, b=b: c(a, b), lambda a=a, b=b: matmul(a, b)]
        # Captured anew in every round: where a kernel's code and operands lie makes a difference, too.
        rounds = [timer.cold_in_turn(calls) for _ in range(ROUNDS)]
        theirs, ours = (statistics.median(r[who][0] for r in rounds) for who in range(2))
        apart = [max(r[who][0] for r in rounds) - min(r[who][0] for r in rounds) for who in range(2)]
        ratios.append(theirs / ours)
        print(
            f"{m}x{n}x{k}".ljust(20) + f"{theirs:14.2f} ({apart[0]:.2f}) {ours:12.2f} ({apart[1]:.2f}) "
            f"{theirs / ours:9.3f} {theirs_s:10.1f} {ours_s:10.2f}",
            flush=True,
        )
    print(
        f"geometric mean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f} of {len(ratios)}; cold L2, "
        f"medians of {ROUNDS} rounds of 31 replays in turn; spread: largest less smallest round; {timing.description()}"
    )


def main() -> None:
    """Dispatch to table, dtypes, launches, launch-rows (its child) or inductor."""
    if sys.argv[1:2] == ["launch-rows"]:
        folder, first, progress = sys.argv[2:]
        launch_rows(Path(folder), int(first), Path(progress))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    table = commands.add_parser("table")
    table.add_argument("--out", type=Path, required=True)
    table.add_argument("--every", type=int, default=1, help="only every so many cases")
    table.set_defaults(call=run_table)
    launches = commands.add_parser("launches")
    launches.add_argument("--gpu", default="h200", help="the model of the GPU at hand")
    launches.add_argument("--pool", type=int, default=1500, help="random configurations that shapes draw from")
    launches.add_argument("--per-shape", type=int, default=200)
    launches.add_argument("--seed", type=int, default=3)
    launches.add_argument("--limit", type=float, default=300.0)
    launches.set_defaults(call=run_launches)
    dtypes = commands.add_parser("dtypes")
    dtypes.set_defaults(call=run_dtypes)
    inductor = commands.add_parser("inductor")
    inductor.add_argument("--limit", type=float, default=100.0)
    inductor.set_defaults(call=run_inductor)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
