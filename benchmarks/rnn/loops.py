"""Time the loops of many configurations of recurrent layers, kernels alone: what the cost model is fitted to.

    python -m benchmarks.rnn.loops plan --gpu h200 --out plan.csv                       # no GPU
    python -m benchmarks.rnn.loops run plan.csv --gpu h200 --part 3/15                  # compiles a fifteenth
    python -m benchmarks.rnn.loops run plan.csv --gpu h200 --out rnn_space.csv          # checks and times them

A plan holds, per layer and direction, the model's first choices, the fastest of an older table, and a random sample of
what is predicted within three times the first. Layers of `HELD_OUT` are in no fit. Each configuration is compared with
the kernel's reference on poisoned outputs. Over 1,024 steps the rounding of states adds up to more than the bound of
some layers (and an sLSTM's c and n are in units of its rounded m), but for all configurations alike: wrong is what
exceeds its bound and twice the least error of its layer. The fastest of a layer are timed once more, in turn.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.table import Table, described, read_rows
from benchmarks.harness.workloads import HELD_OUT, LAYERS
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.sample import KEYS
from constrint.kernels.rnn.spec import workload_of
from constrint.select import Config, Workload, rank
from constrint.select.rank import predict
from constrint.solve import enumerate_space

LAYER = ("cell", "batch", "heads", "head_dim", "dtype", "direction")
TIME = 1024
#: Configurations of a layer: first choices, the fastest of an older table, random ones.
FIRST, FASTEST, RANDOM = 16, 6, 5
WORST = 3.0
#: Rounds of each configuration, and of the fastest in turn.
ROUNDS, FINAL_ROUNDS, FINAL = 5, 9, 5
#: A loop that takes longer than this is timed once.
SLOW_MS = 30.0


def layers() -> Iterator[tuple[str, int, int, int, str]]:
    """Cell, batch, heads, head dim and dtype of every layer that is measured."""
    for cell, heads, dim, dtype in LAYERS:
        for batch in (16, 64) if (cell, dtype) == ("lstm", "bf16") else (16,):
            yield cell, batch, heads, dim, dtype
    yield from HELD_OUT


def workload_of_row(row: dict[str, str]) -> Workload:
    """The layer and direction of a row."""
    sizes = (int(row["batch"]), TIME, int(row["heads"]), int(row["head_dim"]))
    return workload_of(row["cell"], sizes, row["dtype"], row["direction"])


def write_plan(args: argparse.Namespace) -> None:
    """Choose the configurations of every layer and direction."""
    gpu, known = load_gpu(args.gpu), defaultdict(list)
    for path in args.after:
        for row in read_rows(path):
            if row["outcome"] == "ok":
                time = float(row.get("loop_ms") or row["whole_ms"])
                known[tuple(row[name] for name in LAYER)].append((time, {key: int(row[key]) for key in KEYS}))
    number = 0
    with Table(args.out, [*LAYER, *KEYS]) as table:
        for cell, batch, heads, dim, dtype in layers():
            for direction in ("forward", "backward"):
                values = cell, str(batch), str(heads), str(dim), dtype, direction
                workload = workload_of_row(dict(zip(LAYER, values, strict=True)))
                fastest = [config for _, config in sorted(known[values], key=lambda one: one[0])[:FASTEST]]
                for config in planned(gpu, workload, fastest, seed=args.seed + number):
                    table.add(**dict(zip(LAYER, values, strict=True)), **config)
                    number += 1
    print(f"{number} configurations")


def planned(gpu: GpuModel, workload: Workload, fastest: list[dict[str, int]], seed: int) -> list[dict[str, int]]:
    """Of the kernels of one layer and direction those that are timed."""
    spec = load_spec(f"{workload.operation}.triton")
    candidates = rank(spec, gpu, workload, top=4 * FIRST).candidates
    first = [{key: int(candidate.config[key]) for key in KEYS} for candidate in candidates]
    space = enumerate_space(spec.problem(gpu, workload))
    drawn = [dict(row) for row in space.sample(min(40 * RANDOM, space.size), seed=seed)]
    columns = {key: np.array([config[key] for config in drawn]) for key in KEYS}
    seconds = predict(spec, gpu, workload, columns).seconds
    near = [config for config, s in zip(drawn, seconds, strict=True) if s < WORST * candidates[0].cost.seconds]
    is_backward = workload.operation.endswith("-backward")
    chosen: dict[tuple[int, ...], dict[str, int]] = {}
    for most, configs in ((FIRST, first), (FASTEST, fastest), (RANDOM, near)):
        before = len(chosen)
        for config in configs:
            # The backward loop is the same kernel where gates are computed again before it.
            config = {key: 0 if is_backward and key == "recompute" else int(config[key]) for key in KEYS}
            if len(chosen) < before + most:
                chosen.setdefault(tuple(config.values()), config)
    return list(chosen.values())


class Loops:
    """One layer in one direction, with tensors on the GPU and what they have to be."""

    def __init__(self, gpu: GpuModel, workload: Workload) -> None:
        from constrint.tune.check import Case

        self.case = Case(load_spec(f"{workload.operation}.triton"), gpu, workload, device="cuda")

    def measured(self, config: Config) -> dict[str, Any]:
        """What the compiler says of a configuration, whether it is right, and its time."""
        launches: Any = self.case.launches(config)
        try:
            kernel = launches[0].compiled()
            error = self.case.check(launches)
        except Exception as failure:  # noqa: BLE001 - a row for whatever a compiler or a driver says
            return {"outcome": type(failure).__name__}
        facts = {"registers": int(kernel.n_regs), "spill_bytes": 4 * int(kernel.n_spills)}
        return facts | {"error_over_bound": error, "loop_ms": self.times_ms([config], ROUNDS)[0]}

    def times_ms(self, configs: list[Config], rounds: int) -> list[float]:
        """Medians of configurations in turn."""
        prepared = [self.case.launches(config) for config in configs]
        times: list[list[float]] = [[] for _ in configs]
        for _ in range(rounds):
            for launches, kept in zip(prepared, times, strict=True):
                if len(kept) != 1 or kept[0] < SLOW_MS:
                    kept.append(timed_ms(launches))
        return [statistics.median(kept) for kept in times]


def judge(found: list[dict[str, Any]]) -> None:
    """Say of every configuration of a layer that ran whether it is right."""
    errors = [facts["error_over_bound"] for facts in found if "error_over_bound" in facts]
    for facts in found:
        if "error_over_bound" in facts:
            is_right = facts["error_over_bound"] <= max(1.0, 2.0 * min(errors))
            facts["outcome"] = "ok" if is_right else "wrong"


def timed_ms(launches: Any) -> float:
    """Milliseconds of launches on the GPU."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for launch in launches:
        launch.run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def run_plan(args: argparse.Namespace) -> None:
    """Compile, or check and time, a plan."""
    gpu, rows = load_gpu(args.gpu), read_rows(args.plan)
    by_layer: dict[tuple[str, ...], list[dict[str, int]]] = defaultdict(list)
    for row in rows:
        by_layer[tuple(row[name] for name in LAYER)].append({key: int(row[key]) for key in KEYS})
    if args.part:
        part, parts = map(int, args.part.split("/"))
        for number, (values, configs) in enumerate(by_layer.items()):
            mine = configs[(part + number) % parts :: parts]
            warm_up(gpu, workload_of_row(dict(zip(LAYER, values, strict=True))), mine)
        return
    columns = [*LAYER, *KEYS, "outcome", "error_over_bound", "registers", "spill_bytes", "loop_ms"]
    with Table(args.out, columns, f"measured: {described()}; kernels alone, T={TIME}") as table:
        for values, configs in by_layer.items():
            layer = dict(zip(LAYER, values, strict=True))
            loops = Loops(gpu, workload_of_row(layer))
            found = [loops.measured(config) for config in configs]
            judge(found)
            order = sorted(range(len(found)), key=lambda one: found[one].get("loop_ms", float("inf")))
            final = [one for one in order[:FINAL] if "loop_ms" in found[one]]
            for one, time in zip(final, loops.times_ms([configs[i] for i in final], FINAL_ROUNDS), strict=True):
                found[one]["loop_ms"] = time
            for config, facts in zip(configs, found, strict=True):
                table.add(**layer, **config, **facts)
            print(" ".join(values), *(f"{found[one]['loop_ms']:.3f}" for one in final), flush=True)


def warm_up(gpu: GpuModel, workload: Workload, configs: list[dict[str, int]]) -> None:
    """Compile configurations of one layer into Triton's cache."""
    import torch

    spec = load_spec(f"{workload.operation}.triton")
    inputs = {name: torch.empty_like(value, device="cuda") for name, value in spec.inputs(gpu, workload).items()}
    outputs = spec.outputs(gpu, workload, inputs)
    for config in configs:
        for launch in spec.launches(gpu, workload, config, inputs, outputs):
            try:
                launch.warm_up()  # type: ignore[attr-defined]
            except Exception as failure:  # noqa: BLE001 - the run records it
                print(workload, dict(config), type(failure).__name__, flush=True)


def main() -> None:
    """Plan or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    plan = commands.add_parser("plan", help="choose configurations; no GPU")
    plan.add_argument("--after", type=Path, nargs="*", default=[], help="older tables, whose fastest are in the plan")
    plan.add_argument("--seed", type=int, default=1)
    plan.set_defaults(do=write_plan)
    run = commands.add_parser("run", help="compile, check and time a plan")
    run.add_argument("plan", type=Path)
    run.add_argument("--part", help="I/N: compile every N-th configuration, and time nothing")
    run.set_defaults(do=run_plan)
    for each in (plan, run):
        each.add_argument("--gpu", required=True)
        each.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
