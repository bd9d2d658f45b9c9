"""Time configurations of a kernel's modelled space on a GPU, and judge the model's choices by the result.

    python -m benchmarks.space plan --kernel gemm --gpu h200 --out plan.json                    # no GPU
    python -m benchmarks.space plan --kernel gemm --gpu h200 --all --list whole --out plan.json
    python -m benchmarks.space run plan.json --gpu h200 --out results.csv          # every GPU of this machine
    python -m benchmarks.space score results.csv --gpu h200                        # no GPU

A plan holds, per workload, the model's first choices and a random sample of the rest that is predicted within `--worst`
of the best, or with `--all` every valid configuration. `run` compiles on all cores, checks each configuration against
the kernel's reference on poisoned outputs, times it with cold and warm caches, and times the quickest and the first
choices once more, in turn with the peer. What hangs, crashes or is wrong is a row, too. `--check-only` leaves out the
times: a random sample is then a broad check.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.peers import baseline_of
from benchmarks.harness.space import Measured, first_choices, read_space
from benchmarks.harness.table import Table, described
from benchmarks.harness.trials import Run, read_trials, run_trials, write_trials
from benchmarks.harness.workloads import listed, of_sizes
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select import KernelSpec, Operation, Workload
from constrint.select.compiled import compile_cached
from constrint.select.rank import predict
from constrint.solve import enumerate_space
from constrint.tune import Outcome, Trial

FIGURES = {"cold_us": "cold_s", "spread_us": "spread_s", "warm_us": "warm_s", "again_us": "again_s"}
FIGURES |= {"baseline_cold_us": "baseline_cold_s", "baseline_warm_us": "baseline_warm_s"}
#: The rank correlation is over configurations within this multiple of the best time.
NEAR = 3.0


def write_plan(args: argparse.Namespace) -> None:
    """Choose the configurations of every workload."""
    gpu, rng = load_gpu(args.gpu), random.Random(args.seed)
    done = {_key(trial) for path in args.after for trial in _trials_of(path)}
    trials: list[Trial] = []
    for name in args.kernel:
        operation = load_kernel(name)
        listed_as = operation.implementations[0].operation
        workloads = of_sizes(name, args.sizes, args.dtype) if args.sizes else listed(listed_as, args.list, args.dtype)
        for workload in workloads or [operation.default_workload(gpu)]:
            try:
                chosen = list(planned(operation, gpu, workload, args, rng))
                if name.rpartition(":")[0].endswith(".py"):  # other processes load it from the file
                    chosen = [dataclasses.replace(trial, kernel=name) for trial in chosen]
            except ConstrintError as error:
                print(f"{workload}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            fresh = {_key(trial): trial for trial in reversed(chosen) if _key(trial) not in done}
            trials += reversed(fresh.values())
    write_trials(args.out, trials)
    print(f"{len(trials)} configurations", file=sys.stderr)


def planned(
    operation: Operation, gpu: GpuModel, workload: Workload, args: argparse.Namespace, rng: random.Random
) -> Iterator[Trial]:
    """The first choices of a workload, then all of its space or a sample."""
    first = first_choices(operation, gpu, workload, max(1, args.top))
    for kernel, config in first[: args.top]:
        yield Trial(kernel, workload, config, is_final=True)
    spec = operation.spec(first[0][0])
    limit = args.worst * _predicted(spec, gpu, workload, [first[0][1]])[0]
    for spec in operation.implementations:
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError:
            continue
        space = enumerate_space(spec.problem(gpu, workload))
        if not space.size:
            continue
        seed = rng.randrange(2**31)
        rows = list(space) if args.all else list(space.sample(min(20 * args.sample, space.size), seed=seed))
        configs = [{name: int(value) for name, value in row.items()} for row in rows]
        if not args.all:
            seconds = _predicted(spec, gpu, workload, configs)
            configs = [config for config, s in zip(configs, seconds, strict=True) if s <= limit][: args.sample]
        yield from (Trial(spec.full_name, workload, config) for config in configs)


def _predicted(spec: KernelSpec, gpu: GpuModel, workload: Workload, configs: list[dict[str, int]]) -> Any:
    columns = {name: np.array([config[name] for config in configs]) for name in (configs[0] if configs else ())}
    return predict(spec, gpu, workload, columns).seconds if configs else []


def _key(trial: Trial) -> tuple[Any, ...]:
    return trial.kernel, str(trial.workload), tuple(sorted(trial.config.items()))


def _trials_of(path: Path) -> Iterator[Trial]:
    for measured in read_space(path, only_ok=False):
        for row, kernel in enumerate(measured.kernels):
            yield Trial(str(kernel), measured.workload, measured.config(row))


def run_plan(args: argparse.Namespace) -> None:
    """Check and time a plan on this machine; write what ran."""
    trials = read_trials(args.plan)
    run = Run(
        load_spec,
        load_gpu(args.gpu),
        device="cpu" if args.cpu else "cuda",
        num_devices=1 if args.cpu else import_module("torch").cuda.device_count(),
        baseline=baseline_of,
        is_timed=not args.check_only,
        num_final=args.final,
        patience_s=args.patience,
    )
    with tempfile.TemporaryDirectory() as folder:
        results = run_trials(run, trials, args.work or Path(folder), limit_s=args.limit, say=print)
    write_results(args.out, trials, results)
    counts = {
        Outcome(code).name: int(n) for code, n in zip(*np.unique(results["outcome"], return_counts=True), strict=True)
    }
    print(f"{len(trials)} configurations of {len({str(t.workload) for t in trials})} workloads: {counts}")


def write_results(path: Path, trials: list[Trial], results: Any) -> None:
    """One row per trial that ran."""
    specs = {trial.kernel: load_spec(trial.kernel) for trial in trials}
    sizes = dict.fromkeys(name for spec in specs.values() for name in spec.size_names)
    options = dict.fromkeys(name for trial in trials for name in trial.workload.options)
    params = dict.fromkeys(name for trial in trials for name in trial.config)
    columns = ["kernel", "dtype", *sizes, *options, *params, "outcome", "error_over_bound", *FIGURES]
    with Table(path, columns, f"measured on {described()}; cold: L2 overwritten before") as table:
        for trial, result in zip(trials, results, strict=False):
            if result["outcome"] != Outcome.NOT_RUN:
                work = trial.workload
                given = dict.fromkeys(options, 0) | {**work.sizes, **work.options, **trial.config}
                figures = {name: 1e6 * float(result[field]) for name, field in FIGURES.items()}
                table.add(
                    kernel=trial.kernel,
                    dtype=work.dtype,
                    **given,
                    outcome=Outcome(result["outcome"]).name.lower(),
                    error_over_bound=float(result["error_over_bound"]),
                    **figures,
                )


def score(args: argparse.Namespace) -> None:
    """Per workload, how the model's first choices compare with the best configuration of a table."""
    gpu = load_gpu(args.gpu)
    print(
        "workload                             configs   best us     peer    first  peer/best  best/first  best/first8  "
        "rank corr  pred/meas"
    )
    shares: list[tuple[float, ...]] = []
    for measured in read_space(args.results):
        if np.isfinite(measured.times[measured.best_figure]).any():
            shares += _score_one(gpu, measured, args)
    again = "the same with the best picked by one figure and judged by the next"
    for place, what in ((0, "best/first"), (2, again), (1, "best/first 8"), (3, again)):
        column = [share[place] for share in shares]
        mean = statistics.geometric_mean(column)
        print(f"{what}: geometric mean {mean:.4f}, worst {min(column):.3f} of {len(column)} shapes")


def _score_one(gpu: GpuModel, measured: Measured, args: argparse.Namespace) -> list[tuple[float, ...]]:
    """Shares of the best time that the first choice and the best of eight reach."""
    times, figure = measured.time_us(), measured.times[measured.best_figure]
    predicted = measured.predicted_us(gpu)
    if args.choices == "model":
        operation = load_kernel(measured.workload.operation)
        files = (path for name, _ in measured.by_kernel() for path in load_spec(name).device_files)
        has_nvrtc = any(path.suffix == ".cu" for path in files)
        chosen = first_choices(operation, gpu, measured.workload, 8, has_nvrtc=has_nvrtc)
        found = [measured.find(*choice) for choice in chosen]
        if found[0] is None:
            print(f"{measured.workload}: the first choice was not measured")
            return []
        first = [row for row in found if row is not None]
    else:
        first = np.argsort(np.where(_is_valid(gpu, measured), predicted, np.inf), kind="stable").tolist()
        first = _looked(gpu, measured, first, 8) if args.choices == "looked" else first[:8]
    of_first, of_eight = float(times[first[0]]), float(times[first].min())
    best = min(float(np.nanmin(figure)), of_eight)
    # The least of many figures is too low by chance, so the one picked by a rougher figure is judged by the best one.
    picked = best
    if measured.best_figure == "again_us":
        picked = float(figure[np.nanargmin(np.where(np.isnan(figure), np.nan, measured.times["cold_us"]))])
    near = times <= NEAR * best
    ranks = [np.argsort(np.argsort(column[near])) for column in (predicted, times)]
    correlation = float(np.asarray(np.corrcoef(ranks))[0, 1]) if near.sum() > 2 else float("nan")
    peer = float(measured.times.get("baseline_cold_us", np.array([np.nan]))[0])
    print(
        f"{str(measured.workload).ljust(36)} {len(times):7d} {best:9.1f} {peer:8.1f} {of_first:8.1f} "
        f"{peer / best:10.3f} {best / of_first:11.3f} {best / of_eight:12.3f} {correlation:10.2f} "
        f"{float(np.median(predicted[near] / times[near])):10.2f}"
    )
    if args.verbose:
        for row in [*np.argsort(times)[:3].tolist(), first[0]]:
            print(f"    {times[row]:8.2f} {measured.kernels[row]} {measured.config(row)}")
    return [(best / of_first, best / of_eight, picked / of_first, picked / of_eight)]


def _looked(gpu: GpuModel, measured: Measured, rows: list[int], number: int) -> list[int]:
    """The first rows that do not spill as compiled here, which is what is looked at before a launch."""
    found: list[int] = []
    for row in rows:
        spec = load_spec(str(measured.kernels[row]))
        told = compile_cached(spec, gpu, measured.workload, measured.config(row))
        if not isinstance(told, str) and not told.spill_bytes:
            found.append(row)
        if len(found) == number:
            break
    return found


def _is_valid(gpu: GpuModel, measured: Measured) -> NDArray[np.bool_]:
    """Which rows the kernels' rules still allow."""
    valid = np.zeros(len(measured.kernels), dtype=bool)
    for kernel, rows in measured.by_kernel():
        columns = measured.of_rows(rows)
        valid[rows] = True
        for rule in load_spec(kernel).problem(gpu, measured.workload).constraints:
            if rule.variables <= columns.keys():
                valid[rows] &= rule.holds_columns(columns)
    return valid


def main() -> None:
    """Dispatch to plan, run or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    plan = commands.add_parser("plan")
    plan.add_argument("--kernel", nargs="+", required=True, help="operations, implementations or FILE.py:NAME")
    plan.add_argument("--list", choices=("space", "whole", "table"), default="space", help="which shapes of a product")
    plan.add_argument("--sizes", help="512x512x512,64x8192x8192 in the order of the kernel's sizes")
    plan.add_argument("--dtype", help="of products and of --sizes; a list of layers has its own")
    plan.add_argument("--top", type=int, default=8, help="first choices")
    plan.add_argument("--sample", type=int, default=40, help="random ones of every implementation")
    plan.add_argument("--worst", type=float, default=1.8, help="how much slower than the best these may be predicted")
    plan.add_argument("--all", action="store_true", help="every valid configuration instead")
    plan.add_argument("--after", type=Path, nargs="*", default=[], help="results: plan what they lack")
    plan.add_argument("--seed", type=int, default=1)
    plan.set_defaults(call=write_plan)
    run = commands.add_parser("run")
    run.add_argument("plan", type=Path)
    run.add_argument("--work", type=Path, help="folder for results as they come in; a temporary one if left out")
    run.add_argument("--limit", type=float, default=400.0, help="seconds after which all ends")
    run.add_argument("--final", type=int, default=20, help="the quickest that are timed once more")
    run.add_argument("--patience", type=float, default=25.0, help="seconds after which a configuration counts as hung")
    run.add_argument("--check-only", action="store_true")
    run.add_argument("--cpu", action="store_true", help="for kernels that run on the CPU")
    run.set_defaults(call=run_plan)
    scorer = commands.add_parser("score")
    scorer.add_argument("results", type=Path)
    ways = "model: of a table of whole spaces; looked: passing over what spills as compiled here"
    scorer.add_argument("--choices", choices=("rows", "model", "looked"), default="rows", help=ways)
    scorer.add_argument("--verbose", action="store_true", help="the best three and the first choice of every workload")
    scorer.set_defaults(call=score)
    for command in (plan, run, scorer):
        command.add_argument("--gpu", required=True, help="the hardware model")
    for command in (plan, run):
        command.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
