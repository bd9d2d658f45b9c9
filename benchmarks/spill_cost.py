"""What a spill costs: configurations that may spill, timed beside ones that do not, on the GPU of this machine.

    python -m benchmarks.spill_cost run --gpu h200 --out spill_cost.csv
    python -m benchmarks.spill_cost score benchmarks/results/h200/spill_cost.csv      # no GPU

Both kinds are drawn from what is predicted within `WORST` of the best, if nothing spilled. The compiler on the machine
says which of them spill. A spill's cost is how many times as long spilling kernels take of their predicted times as
others do: the figure `spill_slowdown` of the vendor.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.table import Table, described, read_rows
from benchmarks.harness.workloads import gemm, layer
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.model import Var
from constrint.select import KernelSpec, Workload
from constrint.select.core_space import BlockColumns
from constrint.solve import enumerate_space
from constrint.tune import CompiledKernel, Outcome, Trial, compile_many
from constrint.tune.worker import Run, run_trials

SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 3072, 768), (1024, 3072, 768), (64, 8192, 8192))
WORKLOADS = [
    *(gemm(shape, dtype) for shape in SHAPES for dtype in ("bf16",)),
    *(gemm((4096, 4096, 4096), dtype) for dtype in ("tf32", "int8", "fp8")),
    *(
        layer("lstm", 16, 256, heads, dim, "bf16", backward=b)
        for heads, dim in ((12, 64), (1, 768))
        for b in (False, True)
    ),
    *(
        layer("gru", 16, 256, heads, dim, "fp32", backward=b)
        for heads, dim in ((12, 64), (1, 256))
        for b in (False, True)
    ),
]
#: Drawn of each kernel: what may spill, and what hardly can; and how much longer than the best they may take.
RISKY, SAFE, WORST = 14, 6, 1.7
#: Chances of the two kinds.
LEAST_RISK, MOST_SAFE = 0.15, 0.02
#: Bytes a thread by which spills are told apart.
STEPS = (1, 65, 257, 1 << 30)


def drawn(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, rng: random.Random
) -> Iterator[tuple[Any, float, float]]:
    """Configurations with their chance to spill and their predicted seconds if they do not."""
    space = enumerate_space(spec.problem(gpu, workload))
    rows = [dict(row) for row in space.sample(min(space.size, 6000), seed=rng.randrange(2**31))]
    if not rows:
        return
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    use = spec.use(gpu, workload, {name: Var(name) for name in columns})
    blocks = BlockColumns.of(gpu, use, columns)
    seconds = spec.cost(gpu, workload, columns, blocks.blocks_per_sm).seconds
    near = np.flatnonzero(seconds <= WORST * seconds.min())
    rng.shuffle(order := near.tolist())
    for wanted, most in ((blocks.chances >= LEAST_RISK, RISKY), (blocks.chances <= MOST_SAFE, SAFE)):
        for row in [row for row in order if wanted[row]][:most]:
            yield {n: int(v) for n, v in rows[row].items()}, float(blocks.chances[row]), float(seconds[row])


def run(args: argparse.Namespace) -> None:
    """Draw, compile, check and time."""
    gpu, rng = load_gpu(args.gpu), random.Random(args.seed)
    trials, foreseen = [], []
    for workload in WORKLOADS:
        for spec in load_kernel(workload.operation).implementations:
            try:
                spec.check_workload(gpu, workload)
                if spec.use(gpu, workload, {p.name: Var(p.name) for p in spec.params(gpu, workload)}) is None:
                    continue
            except ConstrintError:
                continue
            for config, chance, seconds in drawn(spec, gpu, workload, rng):
                trials.append(Trial(spec.full_name, workload, config))
                foreseen.append((chance, seconds))
    compiled = compile_many(load_spec, gpu, trials)
    plan = Run(load_spec, gpu, num_final=0)
    with tempfile.TemporaryDirectory() as folder:
        results = run_trials(plan, trials, Path(folder), limit_s=args.limit, say=print)
    columns = [
        "kernel",
        "workload",
        "config",
        "chance",
        "predicted_us",
        "cold_us",
        "registers",
        "spill_bytes",
        "outcome",
    ]
    with Table(args.out, columns, f"measured on {described()}; seed {args.seed}") as table:
        for trial, (chance, seconds), found, result in zip(trials, foreseen, compiled, results, strict=True):
            taken = found if isinstance(found, CompiledKernel) else None
            table.add(
                kernel=trial.kernel,
                workload=str(trial.workload),
                config=" ".join(f"{name}={value}" for name, value in trial.config.items()),
                chance=chance,
                predicted_us=1e6 * seconds,
                cold_us=1e6 * float(result["cold_s"]),
                registers=taken.registers_per_thread if taken else -1,
                spill_bytes=taken.spill_bytes if taken else -1,
                outcome=Outcome(result["outcome"]).name.lower(),
            )
    score(args)


def score(args: argparse.Namespace) -> None:
    """Print measured over predicted of clean and of spilling kernels, per kernel and in all."""
    rows = [row for row in read_rows(args.out) if row["outcome"] == "ok" and int(row["spill_bytes"]) >= 0]
    ratios: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for row in rows:
        ratio = float(row["cold_us"]) / float(row["predicted_us"])
        key = row["kernel"], row["workload"]
        ratios.setdefault(key, []).append((int(row["spill_bytes"]), ratio, float(row["chance"])))
    relative: list[tuple[str, int, float]] = []
    for (kernel, _), of_key in ratios.items():
        clean = [ratio for spill, ratio, _ in of_key if not spill]
        if len(clean) >= 3:
            usual = statistics.median(clean)
            relative += [(kernel, spill, ratio / usual) for spill, ratio, _ in of_key if spill]
    print(f"{len(rows)} kernels ran, {sum(int(row['spill_bytes']) > 0 for row in rows)} of them spill")
    print(f"{'kernel':24} {'bytes a thread':>18} {'kernels':>8} {'slower, median':>15} {'quartiles':>14}")
    for kernel in ("all", *sorted({kernel for kernel, _, _ in relative})):
        for least, beyond in [(1, STEPS[-1]), *pairwise(STEPS)]:
            some = [ratio for name, spill, ratio in relative if kernel in ("all", name) and least <= spill < beyond]
            if len(some) >= 4:
                low, middle, high = statistics.quantiles(some, n=4)
                most = "" if beyond == STEPS[-1] else str(beyond - 1)
                print(
                    f"{kernel:24} {f'{least} to {most}':>18} {len(some):8} {middle:15.2f} {f'{low:.2f} {high:.2f}':>14}"
                )
    expected = sum(float(row["chance"]) for row in rows)
    print(f"expected to spill: {expected:.1f}, spilled: {sum(int(row['spill_bytes']) > 0 for row in rows)}")


def main() -> None:
    """Run or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running, scoring = commands.add_parser("run"), commands.add_parser("score")
    running.add_argument("--gpu", required=True)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--limit", type=float, default=400.0, help="seconds after which all ends")
    running.set_defaults(call=run)
    scoring.add_argument("out", type=Path)
    scoring.set_defaults(call=score)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
