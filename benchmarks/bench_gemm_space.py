"""Time configurations of the modelled GEMM space on a GPU: the table that choices are made from, and a random sample.

    python benchmarks/bench_gemm_space.py plan --gpu h200 --out plan.json       # no GPU
    python benchmarks/bench_gemm_space.py run plan.json --out results.csv       # needs torch, triton and the GPU
    python benchmarks/bench_gemm_space.py score results.csv --gpu h200          # no GPU; the model against the table

The plan holds, per shape, every valid configuration of the table that `choose` picks from, other tile orders of the
best of them, and a random sample of the whole space within `--worst` of the best prediction; it is not the whole space.
`run` compiles in parallel, checks every configuration against a product in higher precision on a poisoned output, and
writes one row per configuration with cuBLAS (torch.matmul) in the same run. A configuration that hangs or crashes is
a row too: timing goes on in a new process.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from gemm_exhaustive import KERNEL_KEYS

SHAPES = [
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (1, 4096, 4096),
    (8, 14336, 4096),
    (16, 4096, 4096),
    (16, 8192, 8192),
    (32, 14336, 4096),
    (64, 8192, 8192),
    (128, 4096, 11008),
    (256, 8192, 8192),
    (512, 4096, 4096),
    (1024, 3072, 768),
    (16384, 3072, 768),
    (4096, 4096, 512),
    (2048, 6144, 2048),
    (4096, 14336, 4096),
    (8192, 1024, 28672),
    (640, 2560, 1280),
    (32768, 1024, 512),
    (333, 777, 1555),
]
KEYS = (*KERNEL_KEYS, "group_m")
#: What the first tables mean, which lack parameters that came later and have other names for cold times.
MISSING = {"descriptor": "0", "epilogue_subtile": "1", "producer": "0"}
RENAMED = {"median_us": "cold_us", "cublas_us": "cublas_cold_us"}
TIMES = ("cold_us", "spread_us", "warm_us", "cublas_cold_us", "cublas_warm_us")
#: Other tile orders are tried for this many of the best predictions.
REORDERED = 12
#: Of the pointer kernel, which rarely wins where there are descriptors, this many of the best predictions.
POINTER_ROWS = 25


def write_plan(args: argparse.Namespace) -> None:
    """Choose the configurations of every shape."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.gemm.choose import Request, best
    from constrint.kernels.gemm.spec import SPEC
    from constrint.select import Workload
    from constrint.solve import enumerate_space

    gpu = load_gpu(args.gpu)
    rng = random.Random(args.seed)
    rows: list[list[int]] = []
    for m, n, k in SHAPES:
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, args.dtype)
        table = _few_pointers(best(gpu.name, Request.of(workload), 100_000))
        chosen = {tuple(config.get(key, 0) for key in KEYS): None for config in table}
        problem = SPEC.problem(gpu, workload)
        for config in table[:REORDERED]:
            for group in (1, 4, 16):
                other = {**config, "group_m": group}
                if all(c.holds(other) for c in problem.constraints):
                    chosen.setdefault(tuple(other.get(key, 0) for key in KEYS))
        drawn = [dict(row) for row in enumerate_space(problem).sample(100 * args.sample, seed=rng.randrange(2**31))]
        seconds = _predicted_s(SPEC, gpu, workload, problem, [table[0], *drawn])
        near = [row for row, s in zip(drawn, seconds[1:], strict=True) if s <= args.worst * seconds[0]]
        for row in near[: args.sample]:
            chosen.setdefault(tuple(row.get(key, 0) for key in KEYS))
        rows += [[m, n, k, *config] for config in chosen]
    args.out.write_text(json.dumps({"gpu": gpu.name, "dtype": args.dtype, "rows": rows}))
    print(f"{len(rows)} configurations for {len(SHAPES)} shapes", file=sys.stderr)


def _few_pointers(table: list[Any]) -> list[Any]:
    """The table without the pointer kernel's configurations beyond the best of them."""
    pointers = [config for config in table if not config["descriptor"]]
    left_out = {id(config) for config in pointers[POINTER_ROWS:]}
    return [config for config in table if id(config) not in left_out]


def _predicted_s(spec: Any, gpu: Any, workload: Any, problem: Any, configs: list[dict[str, int]]) -> Any:
    import numpy as np

    from constrint.select.rank import predict

    columns = {name: np.array([config.get(name, 0) for config in configs]) for name in KEYS}
    return predict(spec, gpu, workload, problem, columns).seconds


def time_rows(plan_path: Path, out: Path, first: int, until: float, progress: Path) -> None:
    """Check and time rows from `first` on, one CSV line each; the row at work stands in `progress`."""
    import gemm_timing as timing

    plan = json.loads(plan_path.read_text())
    timer, machine, shape, cublas = timing.Timer(), timing.this_machine(), None, (0.0, 0.0)
    with out.open("a", newline="") as file:
        writer = csv.writer(file)
        for number, row in enumerate(plan["rows"]):
            if number < first:
                continue
            if time.time() > until:
                return
            progress.write_text(str(number))
            if shape != row[:3]:
                shape, case = row[:3], timing.make_case(*row[:3], plan["dtype"])
                a, b = case.a[0], case.b[0]
                cold, _ = timer.cold_us(lambda a=a, b=b: a @ b, 31)
                cublas = (cold, timer.warm_us(lambda a=a, b=b: a @ b, cold))
                print(f"{shape} cuBLAS {cublas[0]:.1f} us cold, {cublas[1]:.1f} warm", file=sys.stderr, flush=True)
            config = dict(zip(KEYS, row[3:], strict=True))
            outcome, times = timing.outcome_of(case, config, machine, timer, worst_us=1.2 * cublas[0])
            writer.writerow([*row, outcome, *(f"{t:.2f}" for t in (*times, *cublas))])
            file.flush()
    progress.write_text("done")


def run_plan(args: argparse.Namespace) -> None:
    """Compile in parallel, then time in child processes that may hang or crash."""
    import gemm_timing as timing
    from gemm_compile import compile_all

    plan = json.loads(args.plan.read_text())
    started = time.time()
    machine = timing.this_machine()
    jobs = {}
    for m, n, k, *values in plan["rows"]:
        config = dict(zip(KEYS, values, strict=True))
        key = timing.compile_key(m, n, k, plan["dtype"], "rr", config)
        jobs.setdefault(key, ((m, n, k), plan["dtype"], "rr", config, machine))
    outcomes = compile_all(list(jobs.values()))
    counts = {o: outcomes.count(o) for o in set(outcomes)}
    print(f"compiled {len(jobs)} kernels in {time.time() - started:.0f} s: {counts}", file=sys.stderr, flush=True)
    with args.out.open("w", newline="") as file:
        file.write(
            f"# measured on {timing.description()}, {plan['dtype']}, row-major; cold: L2 overwritten before; us\n"
        )
        csv.writer(file).writerow(["m", "n", "k", *KEYS, "outcome", *TIMES])

    def lost(number: int, how: str) -> None:
        with args.out.open("a", newline="") as file:
            csv.writer(file).writerow([*plan["rows"][number], how, *["nan"] * len(TIMES)])

    until = started + args.limit
    timing.run_guarded(
        lambda first, progress: [
            sys.executable, __file__, "rows", str(args.plan), str(args.out), str(first), str(until), str(progress),
        ],
        until + 20,
        lost,
    )  # fmt: skip


def load_table(path: Path) -> tuple[str, dict[tuple[int, int, int], list[dict[str, str]]]]:
    """The dtype, and the rows that ran of every shape.

    Of a table of all configurations (`bench_gemm_exhaustive.py`, compressed) those within twice the best time, with the
    best figure there is as `cold_us`.
    """
    shapes: dict[tuple[int, int, int], list[dict[str, str]]] = {}
    is_whole = path.suffix == ".gz"
    with gzip.open(path, "rt") if is_whole else path.open() as file:
        dtype = file.readline().split(", ")[4]
        for written in csv.DictReader(file):
            row = MISSING | {RENAMED.get(name, name): value for name, value in written.items()}
            if row["outcome"] == "ok":
                if is_whole:
                    row["cold_us"] = row["again_us"] or row["cold_us"] or row["quick_us"]
                shapes.setdefault((int(row["m"]), int(row["n"]), int(row["k"])), []).append(row)
    if is_whole:
        for shape, rows in shapes.items():
            limit = 2 * min(float(row["cold_us"]) for row in rows)
            shapes[shape] = [row for row in rows if float(row["cold_us"]) <= limit]
    return dtype, shapes


def score(args: argparse.Namespace) -> None:
    """Print, per shape, how the model's first choices compare with the best configuration found."""
    import numpy as np

    from constrint.hwmodels import load_gpu
    from constrint.kernels.gemm.spec import SPEC
    from constrint.select import Workload
    from constrint.select.rank import predict

    gpu = load_gpu(args.gpu)
    dtype, shapes = load_table(args.results)
    ratios = []
    print("shape                 configs  best us  cuBLAS us  first us  best/first  best/first8  rank corr  pred/meas")
    for (m, n, k), here in shapes.items():
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, dtype)
        columns = {key: np.array([int(r[key]) for r in here]) for key in KEYS}
        predicted = predict(SPEC, gpu, workload, SPEC.problem(gpu, workload), columns).seconds * 1e6
        measured = np.array([float(r["cold_us"]) for r in here])
        order = np.argsort(predicted, kind="stable")
        best = measured.min()
        ranks = [np.argsort(np.argsort(x)) for x in (predicted, measured)]
        correlation = float(np.corrcoef(*ranks)[0, 1])
        first, first8 = measured[order[0]], measured[order[:8]].min()
        ratios.append((best / first, best / first8))
        print(
            f"{m}x{n}x{k}".ljust(22) + f"{len(here):7d} {best:8.1f} {float(here[0]['cublas_cold_us']):10.1f} "
            f"{first:9.1f} {best / first:11.3f} {best / first8:12.3f} {correlation:10.2f} "
            f"{float(np.median(predicted / measured)):10.2f}"
        )
    for name, column in (("first", 0), ("first 8", 1)):
        found = [r[column] for r in ratios]
        print(f"best/{name}: geometric mean {statistics.geometric_mean(found):.3f}, worst {min(found):.3f}")


def main() -> None:
    """Dispatch to plan, run, rows (a child of run) or score."""
    if sys.argv[1:2] == ["rows"]:
        plan, out, first, until, progress = sys.argv[2:]
        time_rows(Path(plan), Path(out), int(first), float(until), Path(progress))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    plan_parser = commands.add_parser("plan")
    plan_parser.add_argument("--gpu", required=True)
    plan_parser.add_argument("--dtype", default="bf16")
    plan_parser.add_argument("--sample", type=int, default=40)
    plan_parser.add_argument("--worst", type=float, default=1.8)
    plan_parser.add_argument("--seed", type=int, default=1)
    plan_parser.add_argument("--out", type=Path, required=True)
    plan_parser.set_defaults(call=write_plan)
    run = commands.add_parser("run")
    run.add_argument("plan", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--limit", type=float, default=400.0, help="seconds after which no row is begun")
    run.set_defaults(call=run_plan)
    scored = commands.add_parser("score")
    scored.add_argument("results", type=Path)
    scored.add_argument("--gpu", required=True)
    scored.set_defaults(call=score)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
