"""What a spill costs: configurations that may spill, timed beside ones that do not, on the GPU of this machine.

    python -m benchmarks.spill_cost run --gpu h200 --out spill_cost.csv
    python -m benchmarks.spill_cost score benchmarks/results/h200/spill_cost.csv --gpu h200      # no GPU

Both kinds are drawn from what is predicted within `WORST` of the best, if nothing spilled. The compiler on the machine
says which of them spill. A spill's cost is how many times as long spilling kernels take of their predicted times as
others of the same workload do. `score` fits it as a power of the registers that are estimated to be needed over those
that there are: the vendor's figures `spill_exponent` and `step_spill_exponent`.
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
from benchmarks.harness.trials import Run, run_trials
from benchmarks.harness.workloads import gemm, layer
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.model import Var
from constrint.select import KernelSpec, Workload
from constrint.select.core_space import BlockColumns
from constrint.select.limits import register_shares
from constrint.solve import enumerate_space
from constrint.tune import CompiledKernel, Outcome, Trial, compile_many

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
#: Clean kernels of a workload that others are compared with, at least.
LEAST_CLEAN = 3
#: Registers needed over those that there are, by which spills are told apart.
SHARES = (0.0, 1.0, 1.15, 1.3, 1.6, 2.0, 3.0, 9.0)


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
    """Print how many times as long spilling kernels take, by the registers that they are estimated to need."""
    gpu = load_gpu(args.gpu)
    rows = [row for row in read_rows(args.out) if row["outcome"] == "ok" and int(row["spill_bytes"]) >= 0]
    by_workload: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for row in rows:
        ratio = float(row["cold_us"]) / float(row["predicted_us"])
        key = row["kernel"], row["workload"]
        by_workload.setdefault(key, []).append((int(row["spill_bytes"]), ratio, share_of(gpu, row)))
    spilling: list[tuple[str, int, float, float]] = []
    for (kernel, _), of_key in by_workload.items():
        clean = [ratio for spill, ratio, _ in of_key if not spill]
        if len(clean) >= LEAST_CLEAN:
            usual = statistics.median(clean)
            spilling += [(kernel, spill, ratio / usual, share) for spill, ratio, share in of_key if spill]
    number = sum(int(row["spill_bytes"]) > 0 for row in rows)
    print(
        f"{len(rows)} kernels ran, {number} of them spill, {sum(float(row['chance']) for row in rows):.1f} expected to"
    )
    for what, is_gemm in (("products: spill_exponent", True), ("recurrences: step_spill_exponent", False)):
        print(what)
        print_cost([one[1:] for one in spilling if one[0].startswith("gemm") is is_gemm])


def print_cost(spilling: list[tuple[int, float, float]]) -> None:
    """Print spilled bytes and slow-down by the registers needed over those that there are, and the fitted exponent."""
    print(f"{'needed / there':>16} {'kernels':>8} {'bytes, median':>14} {'slower, mean':>13}")
    for least, beyond in pairwise(SHARES):
        some = [(spill, slower) for spill, slower, share in spilling if least <= share < beyond]
        if some:
            spilled, slower = statistics.median(s for s, _ in some), statistics.geometric_mean(t for _, t in some)
            print(f"{f'{least} to {beyond}':>16} {len(some):8} {spilled:14.0f} {slower:13.2f}")
    needed = np.log([share for _, _, share in spilling if share > 1])
    taken = np.log([slower for _, slower, share in spilling if share > 1])
    print(
        f"slower = (needed / there)^{float((needed * taken).sum() / (needed**2).sum()):.2f}, over {len(needed)} kernels"
    )


def share_of(gpu: GpuModel, row: dict[str, str]) -> float:
    """Registers that a row's kernel is estimated to need over those that a thread may have."""
    operation, *numbers, dtype = row["workload"].split()
    given = {name: int(value) for name, _, value in (number.partition("=") for number in numbers)}
    config = {name: int(value) for name, _, value in (pair.partition("=") for pair in row["config"].split())}
    spec = load_spec(row["kernel"])
    sizes = {name: given.pop(name) for name in spec.size_names}
    use = spec.use(gpu, Workload(operation, sizes, dtype, given), {name: Var(name) for name in config})
    assert use is not None
    return float(register_shares(gpu, use, {name: np.array([value]) for name, value in config.items()})[0])


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
    scoring.add_argument("--gpu", required=True)
    scoring.set_defaults(call=score)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
