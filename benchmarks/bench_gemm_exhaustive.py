"""Time every valid configuration of the modelled GEMM space, and score the model's choices with that.

    python benchmarks/bench_gemm_exhaustive.py plan --gpu h200 --out plan.npz       # no GPU
    python benchmarks/bench_gemm_exhaustive.py run plan.npz --out raw.npz           # torch, triton, one GPU or more
    python benchmarks/bench_gemm_exhaustive.py plan --gpu h200 --after plan.npz raw.npz --out more.npz    # what lacks
    python benchmarks/bench_gemm_exhaustive.py table plan.npz raw.npz [more.npz more-raw.npz] --out results.csv.gz
    python benchmarks/bench_gemm_exhaustive.py score results.csv.gz --gpu h200      # no GPU

`run` compiles on all cores and times as kernels become ready; a shape stays on one GPU, beside its cuBLAS time.
First every configuration in the order of tiles that `choose` takes, and in every other order if that took at most
`ORDERS_WITHIN` times the best so far: the least of one to three launches, each after the L2 was overwritten
(`quick_us`).
Then the best of those and the model's first choices with captured graphs, 15 replays with a cold L2 (`cold_us`) and
back to back (`warm_us`); and in three rounds of 31 replays the best of these and the model's first 8, once more
(`again_us`, the median of rounds: the figure that picked a configuration as best is not the one it is judged by).
Every launch of the first part is checked on a poisoned output.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gemm_exhaustive as plans
import numpy as np
from gemm_exhaustive import KERNEL_KEYS, ORDERS, Plan, Results, Shape

#: In this order most kernels that a shape needs serve those before it, too.
SHAPES = [
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 1024, 256),
    (4096, 4096, 512),
    (1024, 3072, 768),
    (16384, 3072, 768),
    (32768, 1024, 512),
    (16, 4096, 4096),
    (640, 2560, 1280),
    (1536, 1536, 1536),
    (64, 8192, 8192),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
]
TIMES = ("quick_us", "cold_us", "warm_us", "again_us")
COLUMNS = ("m", "n", "k", *KERNEL_KEYS, "group_m", "outcome", *TIMES, "cublas_cold_us", "cublas_warm_us")
#: Of the model's choices this many are timed properly; compiled first are the best predictions of every shape.
CHOICES = 40
COMPILED_FIRST = 300
PATIENCE_S = 25.0
START_S = 90.0


def write_plan(args: argparse.Namespace) -> None:
    """Enumerate the space of every shape."""
    from gemm_timing import compile_key

    from constrint.hwmodels import load_gpu
    from constrint.kernels.gemm.choose import Request, best
    from constrint.kernels.gemm.spec import SPEC
    from constrint.select import Workload
    from constrint.select.rank import predict
    from constrint.solve import enumerate_space

    gpu = load_gpu(args.gpu)
    was = _left_over(*args.after) if args.after else {}
    numbers: dict[tuple[Any, ...], int] = {}
    jobs: list[tuple[int, int]] = []
    urgent: set[int] = set()
    shapes = []
    for s, (m, n, k) in enumerate(args.shapes):
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, plans.DTYPE)
        problem = SPEC.problem(gpu, workload)
        known = [name for name in (*KERNEL_KEYS, "group_m") if name in problem.variables]
        space, _ = enumerate_space(problem).project(known)
        space |= {name: np.zeros_like(space["group_m"]) for name in KERNEL_KEYS if name not in known}
        points = np.stack([space[name] for name in KERNEL_KEYS], 1).astype(np.int64)
        configs, rows = np.unique(points, axis=0, return_inverse=True)
        valid = np.zeros((len(configs), len(ORDERS)), dtype=bool)
        valid[rows, np.searchsorted(np.sort(ORDERS), space["group_m"])] = True
        # In the order of ORDERS again.
        valid = valid[:, np.searchsorted(np.sort(ORDERS), ORDERS)]
        favourites = [
            (tuple(config.get(name, 0) for name in KERNEL_KEYS), ORDERS.index(config["group_m"]))
            for config in best(gpu.name, Request.of(workload), CHOICES)
        ]
        if args.after:
            ran, finalists = was[m, n, k]
            points_now = set(map(tuple, configs.tolist()))
            favourites = list(dict.fromkeys([*favourites[:8], *(f for f in finalists if f[0] in points_now)]))
            kept = {config for config, _ in favourites}
            chosen = np.array([config in kept or config not in ran for config in map(tuple, configs.tolist())])
            configs, valid = configs[chosen], valid[chosen]
        columns = dict(zip(KERNEL_KEYS, configs.T, strict=True)) | {"group_m": np.ones(len(configs), dtype=np.int64)}
        seconds = predict(SPEC, gpu, workload, problem, columns).seconds
        items = np.empty(len(configs), dtype=np.int64)
        for row, values in enumerate(configs.tolist()):
            key = compile_key(m, n, k, plans.DTYPE, "rr", dict(zip(KERNEL_KEYS, values, strict=True)))
            if key not in numbers:
                numbers[key] = len(jobs)
                jobs.append((s, row))
            items[row] = numbers[key]
        place = {tuple(config): row for row, config in enumerate(configs.tolist())}
        choices = [(place[config], order) for config, order in favourites]
        urgent |= set(items[np.argsort(seconds, kind="stable")[:COMPILED_FIRST]].tolist())
        load_s = 5e-3 * len(configs) + 1.5 * float(seconds.sum())
        shapes.append(Shape((m, n, k), configs, valid, items, np.array(choices), load_s))
        print(f"{shapes[-1].name}: {valid.sum()} configurations, {len(configs)} kernels, {len(jobs)} so far")
    # Likely ones lead; then shape by shape, so that a run that is cut short has whole shapes. Kernels that differ in
    # warps and stages alone stay together.
    rng = random.Random(args.seed)
    drawn: dict[tuple[Any, ...], float] = {}
    alike = [name in ("num_warps", "num_stages") for name in KERNEL_KEYS]

    def place_of(i: int) -> tuple[Any, ...]:
        s, row = jobs[i]
        key = (s, *shapes[s].configs[row][~np.array(alike)].tolist())
        return (i not in urgent, s, drawn.setdefault(key, rng.random()))

    order = sorted(range(len(jobs)), key=place_of)
    renumbered = np.empty(len(jobs), dtype=np.int64)
    renumbered[order] = np.arange(len(jobs))
    shapes = [Shape(s.sizes, s.configs, s.valid, renumbered[s.items], s.choices, s.load_s) for s in shapes]
    Plan(shapes, np.array(jobs)[order]).save(args.out)
    print(f"{len(jobs)} kernels, {args.out.stat().st_size / 1e6:.1f} MB")


def _left_over(plan_path: Path, raw_path: Path) -> dict[tuple[int, int, int], tuple[set[Any], list[Any]]]:
    """By shape: configurations whose kernel has run, and those (with their order) that were timed in rounds."""
    found = {}
    with np.load(raw_path) as raw:
        for i, shape in enumerate(Plan.load(plan_path).shapes):
            has_run = (raw[f"outcome{i}"] != plans.NOT_RUN).any(1)
            timed = np.argwhere(~np.isnan(raw[f"again_us{i}"])).tolist()
            configs = [tuple(config) for config in shape.configs.tolist()]
            finalists = [(configs[row], order) for row, order in timed]
            found[shape.sizes] = {configs[row] for row in np.flatnonzero(has_run)}, finalists
    return found


def run(args: argparse.Namespace) -> None:
    """Compile, time on every GPU, merge."""
    started = time.time()
    import torch
    from gemm_compile import Compilation

    from constrint.kernels.gemm.launch import Machine

    plan = Plan.load(args.plan)
    num_gpus = torch.cuda.device_count()
    capability = torch.cuda.get_device_capability(0)
    machine = Machine(torch.cuda.get_device_properties(0).multi_processor_count, 1, capability == (9, 0))
    jobs: list[Any] = []
    for s, row in plan.jobs.tolist():
        shape = plan.shapes[s]
        order = int(np.argmax(shape.valid[row]))
        jobs.append((shape.sizes, plans.DTYPE, "rr", shape.config(row, order), machine))
    args.work.mkdir(parents=True, exist_ok=True)
    for i, shape in enumerate(plan.shapes):
        Results(args.work, i, shape, "w+")
    dealt = plan.deal(num_gpus)
    os.environ["TRITON_STORE_BINARY_ONLY"] = "1"
    compilation = Compilation(jobs, 10 * capability[0] + capability[1], folder=args.work)
    workers = [_Worker(args, gpu, own, len(jobs), started) for gpu, own in enumerate(dealt) if own]
    _say(started, f"{len(jobs)} kernels, {os.cpu_count()} cores, {num_gpus} GPUs {dealt}")
    told = time.time()
    is_compiled = False
    while time.time() < started + args.limit:
        is_through = [worker.poll() for worker in workers]
        if all(is_through):
            break
        time.sleep(0.3)
        if not is_compiled and (compilation.is_done() or time.time() > started + args.quick_limit):
            is_compiled = True
            compilation.stop()
            (args.work / "compiled").touch()
            _say(started, f"{int((compilation.state > 0).sum())} compiled, no more")
        if time.time() > told + 20:
            told = time.time()
            _say(
                started, f"{int((compilation.state > 0).sum())} compiled, {[int(w.done.sum()) for w in workers]} timed"
            )
    for worker in workers:
        worker.stop()
    compilation.stop()
    _collect(args, plan)
    _say(started, "done")


def _say(started: float, what: str) -> None:
    print(f"{time.time() - started:6.1f} s: {what}", flush=True)


class _Worker:
    """The process of one GPU, started again where it hangs or dies."""

    def __init__(self, args: argparse.Namespace, gpu: int, own: list[int], num_jobs: int, started: float) -> None:
        self.args, self.gpu, self.own, self.num_jobs, self.started = args, gpu, own, num_jobs, started
        self.done = np.memmap(args.work / f"done{gpu}", np.uint8, "w+", shape=(num_jobs,))
        #: Time of the last sign of life; part of the run, and the kernel at work.
        self.beat = np.memmap(args.work / f"beat{gpu}", np.float64, "w+", shape=(3,))
        self.restarts = 0
        self._start()

    def _start(self) -> None:
        from gemm_timing import visible_device

        self.beat[:] = (time.time() + START_S, 0, -1)
        command = [sys.executable, __file__, "worker", str(self.args.plan), str(self.args.work), str(self.gpu)]
        command += [",".join(map(str, self.own)), str(self.started + self.args.quick_limit), str(self.num_jobs)]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible_device(self.gpu)}
        self.process = subprocess.Popen(command, env=environment)

    def poll(self) -> bool:
        """Whether it is through."""
        is_hung = time.time() > self.beat[0] + PATIENCE_S
        if self.process.poll() is None and not is_hung:
            return False
        if self.process.returncode == 0 or self.restarts > 20:
            return True
        self.stop()
        self._blame(plans.HUNG if is_hung else plans.CRASHED)
        self.restarts += 1
        self._start()
        return False

    def _blame(self, outcome: int) -> None:
        part, item = int(self.beat[1]), int(self.beat[2])
        print(f"GPU {self.gpu}, part {part}, kernel {item}: {plans.OUTCOMES[outcome]}", flush=True)
        if item < 0:
            return
        plan = Plan.load(self.args.plan)
        for i in self.own:
            shape = plan.shapes[i]
            results = Results(self.args.work, i, shape)
            for row in np.flatnonzero(shape.items == item):
                results.outcome[row][shape.valid[row]] = outcome
        self.done[item] = 1

    def stop(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _collect(args: argparse.Namespace, plan: Plan) -> None:
    """Put the results of all shapes into one file."""
    import gemm_timing as timing

    arrays: dict[str, Any] = {"device": np.array(timing.description())}
    for i, shape in enumerate(plan.shapes):
        results = Results(args.work, i, shape)
        arrays |= {f"{name}{i}": getattr(results, name) for name in (*TIMES, "outcome", "figures")}
        ran = (results.outcome != plans.NOT_RUN) & shape.valid
        codes, counts = np.unique(results.outcome[ran], return_counts=True)
        outcomes = {plans.OUTCOMES[code]: int(count) for code, count in zip(codes, counts, strict=True)}
        print(
            f"{shape.name.ljust(18)} {int((results.outcome != plans.NOT_RUN).any(1).sum())} of {len(shape.configs)} "
            f"kernels, {int(ran.sum())} of {int(shape.valid.sum())} configurations, {outcomes}, "
            f"{int((~np.isnan(results.cold_us)).sum())} timed properly, cuBLAS {results.figures[1:].round(2)}",
            flush=True,
        )
    np.savez_compressed(args.out, **arrays)


def write_table(args: argparse.Namespace) -> None:
    """The results of one run or more as a table, a row per configuration that ran; of two rows the later one stays."""
    shapes: dict[tuple[int, int, int], dict[tuple[int, ...], list[str]]] = {}
    cublas: dict[tuple[int, int, int], list[str]] = {}
    for plan_path, raw_path in zip(args.files[::2], args.files[1::2], strict=True):
        with np.load(raw_path) as raw:
            device = raw["device"].item()
            for i, shape in enumerate(Plan.load(plan_path).shapes):
                here = shapes.setdefault(shape.sizes, {})
                outcome, times = raw[f"outcome{i}"], [raw[f"{name}{i}"] for name in TIMES]
                cublas[shape.sizes] = [f"{t:.2f}" for t in raw[f"figures{i}"][1:]]
                for row, order in np.argwhere((outcome != plans.NOT_RUN) & shape.valid).tolist():
                    shown = ["" if np.isnan(t[row, order]) else f"{t[row, order]:.4g}" for t in times]
                    config = (*shape.configs[row].tolist(), ORDERS[order])
                    here[config] = [plans.OUTCOMES[outcome[row, order]], *shown]
    with gzip.open(args.out, "wt", newline="", compresslevel=9) as file:
        file.write(f"# measured on {device}, {plans.DTYPE}, row-major; cold: L2 overwritten before; us\n")
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for sizes, rows in shapes.items():
            for config in sorted(rows):
                writer.writerow([*sizes, *config, *rows[config], *cublas[sizes]])


def load(path: Path) -> dict[tuple[int, int, int], dict[tuple[int, ...], dict[str, float]]]:
    """Times in us by shape and configuration (`KERNEL_KEYS` and the order), of the rows that ran."""
    shapes: dict[tuple[int, int, int], dict[tuple[int, ...], dict[str, float]]] = {}
    times = ("quick_us", "cold_us", "warm_us", "again_us", "cublas_cold_us", "cublas_warm_us")
    with gzip.open(path, "rt") as file:
        file.readline()
        reader = csv.reader(file)
        places = {name: place for place, name in enumerate(next(reader))}
        keys = [places[name] for name in (*KERNEL_KEYS, "group_m")]
        columns = [(name, places[name]) for name in times]
        for row in reader:
            if row[places["outcome"]] == "ok":
                here = shapes.setdefault((int(row[0]), int(row[1]), int(row[2])), {})
                here[tuple(int(row[key]) for key in keys)] = {
                    name: float(row[place] or "nan") for name, place in columns
                }
    return shapes


def score(args: argparse.Namespace) -> None:
    """Per shape, how the model's first choices compare with the best of all configurations."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.gemm.choose import Request, best
    from constrint.kernels.gemm.spec import SPEC
    from constrint.select import Workload
    from constrint.select.rank import predict

    gpu = load_gpu(args.gpu)
    ratios, judged = [], []
    print(
        "shape              configs kernels  best us  cuBLAS  first us  cuBLAS/best  best/first  best/first8  rank corr"
        "  pred/meas  (rank correlation over kernels within 3 times the best; ~: from fewer launches)"
    )
    for (m, n, k), rows in load(args.results).items():
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, plans.DTYPE)
        here = _Measured(rows)
        chosen = [
            tuple(config.get(name, 0) for name in (*KERNEL_KEYS, "group_m"))
            for config in best(gpu.name, Request.of(workload), 8)
        ]
        known = [here.time_us(config) for config in chosen if config in rows]
        if not known or chosen[0] not in rows:
            print(f"{m}x{n}x{k}: the first choice was not measured: {chosen[0]}")
            continue
        found = min(here.best_us, *known)
        first, first8 = known[0], min(known)
        ratios.append((found / first, found / first8))
        judged.append((here.called_best_us / first, here.called_best_us / first8))
        fastest: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        for config, times in rows.items():
            kernel, order = config[:-1], (times["quick_us"], config)
            fastest[kernel] = min(fastest.get(kernel, order), order)
        near = [config for time_us, config in fastest.values() if time_us < 3 * here.best_us]
        columns = {name: np.array([config[i] for config in near]) for i, name in enumerate((*KERNEL_KEYS, "group_m"))}
        predicted = predict(SPEC, gpu, workload, SPEC.problem(gpu, workload), columns).seconds * 1e6
        measured = np.array([rows[config]["quick_us"] for config in near])
        ranks = [np.argsort(np.argsort(column)) for column in (predicted, measured)]
        correlation = float(np.corrcoef(ranks)[0, 1])
        library = next(iter(rows.values()))["cublas_cold_us"]
        is_rough = "~" if np.isnan(rows[chosen[0]]["again_us"]) else " "
        print(
            f"{m}x{n}x{k}".ljust(18)
            + f"{len(rows):8d}{len(fastest):8d} {found:8.1f} {library:7.1f} {first:8.1f}{is_rough}"
            f" {library / found:12.3f} {found / first:11.3f} {found / first8:12.3f} {correlation:10.2f}"
            f" {float(np.median(predicted / measured)):10.2f}"
        )
        if args.verbose:
            for config in sorted(rows, key=lambda c: here.time_us(c))[:3]:
                print("    best ", " ".join(map(str, config)), f"{here.time_us(config):.2f}")
            print("    first", " ".join(map(str, chosen[0])), f"{first:.2f}")
    for name, column in (("first", 0), ("first 8", 1)):
        shares = [r[column] for r in ratios]
        print(
            f"best/{name}: geometric mean {statistics.geometric_mean(shares):.4f}, worst {min(shares):.3f} "
            f"of {len(shares)} shapes"
        )
        # The least of many figures is too low by chance.
        shares = [r[column] for r in judged]
        print(
            f"the same with the best picked by one figure and judged by the next: "
            f"{statistics.geometric_mean(shares):.4f}, worst {min(shares):.3f}"
        )


class _Measured:
    """Times of one shape's configurations on one scale: that of the figures taken in rounds."""

    def __init__(self, rows: dict[tuple[int, ...], dict[str, float]]) -> None:
        self.rows = rows
        final = [t for t in rows.values() if not np.isnan(t["again_us"])]
        self.best_us = min(t["again_us"] for t in final)
        self.called_best_us = min(final, key=lambda t: t["cold_us"])["again_us"]
        self.scales = {
            name: float(np.median([t["again_us"] / t[name] for t in final])) for name in ("cold_us", "quick_us")
        }

    def time_us(self, config: tuple[int, ...]) -> float:
        """The best figure there is, brought to the scale of the others."""
        times = self.rows[config]
        for name, scale in (("again_us", 1.0), *self.scales.items()):
            if not np.isnan(times[name]):
                return scale * times[name]
        return float("inf")


def main() -> None:
    """Dispatch to plan, run, worker (a child of run), table or score."""
    if sys.argv[1:2] == ["worker"]:
        from gemm_exhaustive_worker import work

        plan, folder, gpu, own, until, num_jobs = sys.argv[2:]
        work(Path(plan), Path(folder), int(gpu), [int(i) for i in own.split(",")], float(until), int(num_jobs))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    plan_parser = commands.add_parser("plan")
    plan_parser.add_argument("--gpu", required=True)
    plan_parser.add_argument("--seed", type=int, default=1)
    plan_parser.add_argument("--out", type=Path, required=True)
    plan_parser.add_argument("--after", type=Path, nargs=2, help="a plan and what its run gave: plan the rest")
    plan_parser.add_argument(
        "--shapes", type=lambda text: [tuple(map(int, s.split("x"))) for s in text.split(",")], default=SHAPES
    )
    plan_parser.set_defaults(call=write_plan)
    runner = commands.add_parser("run")
    runner.add_argument("plan", type=Path)
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--work", type=Path, default=Path("/tmp/gemm-exhaustive"))
    runner.add_argument("--quick-limit", type=float, default=300.0, help="seconds after which the first part ends")
    runner.add_argument("--limit", type=float, default=400.0, help="seconds after which all ends")
    runner.set_defaults(call=run)
    table = commands.add_parser("table")
    table.add_argument("files", type=Path, nargs="+", help="a plan and what its run gave, once or more")
    table.add_argument("--out", type=Path, required=True)
    table.set_defaults(call=write_table)
    scorer = commands.add_parser("score")
    scorer.add_argument("results", type=Path)
    scorer.add_argument("--gpu", required=True)
    scorer.add_argument("--verbose", action="store_true", help="the best three and the first choice of every shape")
    scorer.set_defaults(call=score)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
