"""Compile a sample of recurrent kernels for named GPUs, without a GPU, and write what they take.

    python benchmarks/compile_rnn.py --out tests/data/triton_rnn_resources.csv

The sample is drawn from the space with looser register and shared-memory rules, so that it holds configurations on both
sides of the limits, but few that spill so much that they compile for minutes.

    python benchmarks/compile_rnn.py --first-choices 60 --gpus h200,a100-sxm4-80gb,b200,l4 \\
        --out tests/data/triton_rnn_choices_3.9.0.csv

compiles first choices of random layers instead, head_dim any multiple of 16, with all the optional inputs.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from pathlib import Path
from typing import Any, TextIO

from constrint.errors import ConstrintError, InfeasibleError
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.build import compile_config
from constrint.kernels.rnn.spec import SPECS, best_config, workload_of
from constrint.model import Domain
from constrint.solve import enumerate_space

GPUS = ("mi300x", "h200", "mi355x", "a100-sxm4-80gb", "mi210", "b200")
LAYERS = (
    ("lstm", 64, "bf16"), ("lstm", 128, "bf16"), ("gru", 64, "bf16"), ("elman", 128, "bf16"), ("slstm", 32, "bf16"),
    ("lstm", 768, "bf16"), ("gru", 512, "bf16"), ("lstm", 256, "fp16"), ("lstm", 64, "fp32"), ("elman", 256, "bf16"),
)  # fmt: skip
RULES = ("registers", "register_file", "smem")
#: Tenths of a limit that a configuration may take.
SLACK = 12
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")


def waves_at_most(gpu: Any) -> int:
    """Warps of one partition that leave each thread the most registers."""
    return 2 if gpu.vendor == "nvidia" else 1


def sample(gpu: Any, cell: str, dim: int, dtype: str, direction: str, count: int, seed: int) -> tuple[Any, list[Any]]:
    """A workload and random configurations of it, the limits left out."""
    workload = workload_of(cell, (64, 256, 4, dim), dtype, direction)
    spec = SPECS[workload.kernel]
    spec.check_workload(gpu, workload)
    problem = spec.problem(gpu, workload).without(*RULES)
    use = spec.use(gpu, workload, problem)
    problem.add(10 * use.registers_per_thread <= SLACK * gpu.sm.max_registers_per_thread)
    problem.add(10 * use.smem_bytes <= SLACK * gpu.sm.max_smem_bytes_per_block)
    waves = use.warps // gpu.sm.num_partitions
    problem.add(10 * waves * use.registers_per_thread <= SLACK * gpu.sm.max_registers_per_thread * waves_at_most(gpu))
    # Larger tiles only repeat what smaller ones do, and compile for minutes when they spill.
    problem = problem.with_domain("tile_batch", Domain.from_values([8, 16] if gpu.vendor == "nvidia" else [16, 32]))
    space = enumerate_space(problem)
    return workload, list(space.sample(min(count, space.size), seed=seed))


def draw_layer(rng: random.Random) -> tuple[str, tuple[int, int, int, int], str, str]:
    """Cell, sizes, dtype and direction of a layer that a user may have."""
    dim = rng.choice((48, 64, 80, 112, 128, 144, 176, 208, 240, 256, 272, 336, 400, 512, 624))
    sizes = (rng.choice((16, 64, 256)), 1024, rng.choice((1, 2, 4, 12)), dim)
    cell, dtype = rng.choice(("elman", "gru", "lstm", "slstm")), rng.choice(("fp16", "bf16", "fp32"))
    return cell, sizes, dtype, rng.choice(("forward", "backward"))


def compile_first_choices(file: TextIO, names: list[str], count: int, seed: int) -> None:
    """Compile the first choices of random layers with every optional input; one row each."""
    rng, layers = random.Random(seed), [("h200", ("elman", (64, 1024, 1, 240), "fp16", "forward"))]
    layers += [(rng.choice(names), draw_layer(rng)) for _ in range(count)]
    writer = csv.writer(file)
    fields = ("gpu", "target", "cell", "direction", "batch", "heads", "head_dim", "dtype", *KEYS)
    writer.writerow([*fields, "inputs", "smem_bytes", "registers", "spill_bytes"])
    for name, (cell, sizes, dtype, direction) in layers:
        gpu, workload = load_gpu(name), workload_of(cell, sizes, dtype, direction)
        grads = ("grad_last", "grad1", "grad2", "grad3")[: SPECS[workload.kernel].cell.num_states]
        inputs = ("initial", "rows", "lengths", "reset", *(grads if direction == "backward" else ()))
        try:
            config = best_config(gpu, cell, sizes, dtype, direction)
        except InfeasibleError:
            continue
        c = compile_config(gpu, workload, config, inputs)
        row = [name, gpu.arch.target, cell, direction, sizes[0], sizes[2], sizes[3], dtype, *(config[k] for k in KEYS)]
        writer.writerow([*row, " ".join(inputs), c.smem_bytes, c.registers_per_thread, c.spill_bytes])
        file.flush()


def main() -> None:
    """Compile and write, one row per configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", default=",".join(GPUS))
    parser.add_argument("--count", type=int, default=3, help="configurations per layer and direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first-choices", type=int, metavar="N", help="compile these of N random layers instead")
    args = parser.parse_args()
    import triton

    rng = random.Random(args.seed)
    if args.first_choices:
        with args.out.open("w", newline="") as file:
            file.write(f"# compiled, not measured: triton {triton.__version__}, benchmarks/compile_rnn.py\n")
            compile_first_choices(file, args.gpus.split(","), args.first_choices, args.seed)
        return
    with args.out.open("w", newline="") as file:
        file.write(f"# compiled, not measured: triton {triton.__version__}, benchmarks/compile_rnn.py\n")
        writer = csv.writer(file)
        fields = ("gpu", "target", "cell", "direction", "head_dim", "dtype", *KEYS)
        writer.writerow([*fields, "smem_bytes", "registers", "spill_bytes", "instruction", "error"])
        for name in args.gpus.split(","):
            gpu = load_gpu(name)
            for cell, dim, dtype in LAYERS:
                for direction in ("forward", "backward"):
                    workload, configs = sample(gpu, cell, dim, dtype, direction, args.count, rng.randrange(2**31))
                    for config in configs:
                        row = [name, gpu.arch.target, cell, direction, dim, dtype, *(config[k] for k in KEYS)]
                        try:
                            c = compile_config(gpu, workload, config)
                            row += [c.smem_bytes, c.registers_per_thread, c.spill_bytes, c.instruction, ""]
                        except ConstrintError as error:
                            row += ["", "", "", "", str(error).split(": ")[-1][:80]]
                        writer.writerow(row)
                        file.flush()
            print(f"{name} done", file=sys.stderr)


if __name__ == "__main__":
    main()
