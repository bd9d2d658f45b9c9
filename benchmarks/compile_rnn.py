"""Compile a sample of recurrent kernels for named GPUs, without a GPU, and write what they take.

    python benchmarks/compile_rnn.py --random 60 --ranked 40 --seed 1 --out tests/data/triton_rnn_resources_3.9.0.csv

Layers are drawn at random: cell, direction, dtype, head_dim any multiple of 16. `--random` takes configurations of
their spaces with looser register and shared-memory rules, so that there are some on both sides of the limits;
`--ranked` takes one of those that the model ranks first. Both compile a share with all optional inputs. `--first` takes
the first choice, with and without them. `--measured` takes, from a table of `bench_rnn_space.py`, the fastest
configurations of every layer.
Rows are appended to a file that is there already; those of one seed come again.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.model import Problem, Var
from constrint.select import rank
from constrint.select.first_choice import choose
from constrint.select.spec import Config, Workload
from constrint.solve import enumerate_space

SPECS = {spec.operation: spec for spec in TRITON_SPECS}
GPUS = ("a100-sxm4-80gb", "h200", "b200", "mi210", "mi300x", "mi355x")
RULES = ("registers", "register_file", "smem")
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
FIELDS = ("kind", "gpu", "target", "cell", "direction", "batch", "heads", "head_dim", "dtype", *KEYS, "inputs")
FOUND = ("smem_bytes", "registers", "spill_bytes", "instruction", "error")
#: Tenths of a limit that a configuration may take.
SLACK = 13
#: Of the configurations ranked first, one of so many.
TOP = 4
#: Seconds after which a kernel, one that spills without end, is given up.
PATIENCE_S = 45
#: Of the configurations of a layer that were measured: the fastest, and others.
FASTEST, SLOWER = 4, 2
#: Share of kernels with all the optional inputs.
WITH_INPUTS = 0.3


class Job(NamedTuple):
    """What to compile."""

    kind: str
    gpu: str
    cell: str
    direction: str
    sizes: tuple[int, int, int, int]
    dtype: str
    config: dict[str, int]
    has_inputs: bool

    @property
    def workload(self) -> Workload:
        """Sizes and dtype."""
        return workload_of(self.cell, self.sizes, self.dtype, self.direction)

    def cells(self) -> list[Any]:
        """The row's first cells."""
        batch, _, heads, dim = self.sizes
        row = [self.kind, self.gpu, load_gpu(self.gpu).arch.target, self.cell, self.direction, batch, heads, dim]
        return [*row, self.dtype, *(self.config[key] for key in KEYS), int(self.has_inputs)]


def draw_layer(rng: random.Random) -> tuple[str, tuple[int, int, int, int], str, str]:
    """Cell, sizes, dtype and direction of a layer that a user may have."""
    usual, any_dim = (16, 32, 64, 96, 128, 192, 256, 384, 512), range(16, 640, 16)
    dim = rng.choice(usual if rng.random() < 0.6 else any_dim)
    heads = rng.choice((1, 2, 4, 12))
    cell, dtype = rng.choice(("elman", "gru", "lstm", "slstm")), rng.choice(("fp16", "bf16", "bf16", "fp32"))
    sizes = (rng.choice((8, 16, 16, 64, 256)), 1024, heads, dim)
    return cell, sizes, dtype, rng.choice(("forward", "backward"))


def loosened(gpu: GpuModel, workload: Workload) -> Problem:
    """The space with the limits of registers and shared memory moved outwards."""
    spec = SPECS[workload.operation]
    problem = spec.problem(gpu, workload).without(*RULES)
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    most = gpu.sm.max_registers_per_thread
    problem.add(10 * use.registers_per_thread <= SLACK * most)
    problem.add(10 * use.smem_bytes <= SLACK * gpu.sm.max_smem_bytes_per_block)
    lanes = most * (2 if gpu.vendor == "nvidia" else 1)
    problem.add(10 * (use.warps // gpu.sm.num_partitions) * use.registers_per_thread <= SLACK * lanes)
    return problem


def draw(kind: str, name: str, rng: random.Random, whole_share: float) -> Job | None:
    """One configuration of a random layer; None if there is none."""
    gpu, (cell, sizes, dtype, direction) = load_gpu(name), draw_layer(rng)
    workload = workload_of(cell, sizes, dtype, direction)
    spec = SPECS[workload.operation]
    has_inputs = rng.random() < WITH_INPUTS
    try:
        spec.check_workload(gpu, workload)
        if kind != "random":
            config = dict(rng.choice(rank(spec, gpu, workload, top=1 if kind == "first" else TOP).candidates).config)
        else:
            space = enumerate_space(loosened(gpu, workload))
            if not space.size:
                return None
            few = list(space.sample(min(24, space.size), seed=rng.randrange(2**31)))
            whole = [c for c in few if c["row_split"] == 1]
            config = dict(rng.choice(whole if whole and rng.random() < whole_share else few))
    except ConstrintError:
        return None
    return Job(kind, name, cell, direction, sizes, dtype, {key: int(config[key]) for key in KEYS}, has_inputs)


def first_choice(name: str, workload: Workload) -> Config:
    """The first choice for a workload on a named GPU."""
    return choose(SPECS[workload.operation], load_gpu(name), workload).config


def fastest(path: Path, name: str) -> Iterator[Job]:
    """Of every layer that was measured: the first choice, the fastest configurations and some of the others."""
    layers: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["outcome"] == "ok":
                layers[tuple(row[key] for key in ("cell", "direction", "batch", "heads", "head_dim", "dtype"))].append(
                    row
                )
    rng, seen = random.Random(1), set()
    for (cell, direction, batch, heads, dim, dtype), rows in layers.items():
        rows.sort(key=lambda row: float(row["whole_ms"]))
        sizes = (int(batch), 1024, int(heads), int(dim))
        first = dict(first_choice(name, workload_of(cell, sizes, dtype, direction)))
        some = rows[:FASTEST] + rng.sample(rows[FASTEST:], min(SLOWER, len(rows[FASTEST:])))
        measured = [{key: int(row[key]) for key in KEYS} for row in some]
        for config in [first] * (first not in measured) + measured:
            kernel = (cell, direction, dim, dtype, *config.values())
            if kernel in seen:
                continue  # sizes of the batch and of heads are no part of it
            seen.add(kernel)
            kind = "measured" if config in measured else "first"
            yield Job(kind, name, cell, direction, sizes, dtype, config, False)


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """All that is to be compiled, GPUs in turn, so that an interrupted run has some of each."""
    names = args.gpus.split(",")
    if args.measured is not None:
        yield from fastest(args.measured, names[0])
    rng = {name: random.Random(f"{args.seed} {name}") for name in names}
    seen = set()
    for kind, count in (("first", args.first), ("ranked", args.ranked), ("random", args.random)):
        for name in names * count:
            job = draw(kind, name, rng[name], args.whole)
            if job is None or (args.whole == 1 and job.config["row_split"] > 1):
                continue
            for each in (job._replace(has_inputs=h) for h in (False, True)) if kind == "first" else (job,):
                if str(each.cells()) not in seen:
                    seen.add(str(each.cells()))
                    yield each


def compile_job(job: Job) -> list[Any]:
    """What the kernel takes, or why there is none."""
    spec = SPECS[job.workload.operation]
    grads = ("grad_last", "grad1", "grad2", "grad3")[: spec.cell.num_states] if job.direction == "backward" else ()
    given = ("initial", "rows", "lengths", "reset", *grads) if job.has_inputs else ()
    try:
        found = spec.compile(load_gpu(job.gpu), job.workload, job.config, given)
    except ConstrintError as error:
        return ["", "", "", "", str(error).split(": ")[-1][:80]]
    return [found.smem_bytes, found.registers_per_thread, found.spill_bytes, found.instruction, ""]


def _serve(pipe: Connection) -> None:
    while True:
        pipe.send(compile_job(pipe.recv()))


class Compiler:
    """Compiles in a process of its own, which is ended when a kernel takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def compile(self, job: Job) -> list[Any]:
        """The row's last cells."""
        self.pipe.send(job)
        error = f"takes more than {PATIENCE_S} s to compile"
        if self.pipe.poll(PATIENCE_S):
            try:
                return list(self.pipe.recv())
            except EOFError:
                error = "the compiler crashed"
        self.process.kill()
        self._start()
        return ["", "", "", "", error]


def main() -> None:
    """Compile and write, one row per configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", default=",".join(GPUS))
    parser.add_argument("--random", type=int, default=0, metavar="N", help="random configurations per GPU")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="first choices of N layers per GPU")
    parser.add_argument("--ranked", type=int, default=0, metavar="N", help="configurations ranked first, per GPU")
    parser.add_argument("--measured", type=Path, metavar="TABLE", help="measured configurations, for the first GPU")
    parser.add_argument("--whole", type=float, default=0.5, metavar="SHARE", help="of these with a head in one program")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    import triton

    is_new = not args.out.exists()
    compiler = Compiler()
    with args.out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            file.write(f"# compiled, not measured: triton {triton.__version__}, benchmarks/compile_rnn.py\n")
            writer.writerow([*FIELDS, *FOUND])
        for done, job in enumerate(jobs(args), 1):
            writer.writerow([*job.cells(), *compiler.compile(job)])
            file.flush()
            if done % 50 == 0:
                print(f"{done} compiled", file=sys.stderr)


if __name__ == "__main__":
    main()
