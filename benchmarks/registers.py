"""Compile a sample of kernels, fit register weights to the recorded tables, check the resource rules against them.

Compiling needs triton or NVRTC, fitting needs scipy; neither needs a GPU. Every kernel has the same four commands:

    python benchmarks/registers.py sample --kernel gemm --draw valid=60 free=600 ranked=2 --out tests/data/TABLE.csv
    python benchmarks/registers.py again --kernel gemm --table tests/data/TABLE.csv --number 20 --out OTHER.csv
    python benchmarks/registers.py fit --kernel gemm      # writes constrint/kernels/resources/data/gemm.json
    python benchmarks/registers.py check --kernel gemm    # how the rules do against every recorded table

`again` compiles rows of a recorded table with the version of the compiler that is installed. `fit` prints what fits to
three quarters of the kernels say about the fourth, per target. `check` prints kernels; shared memory stated exactly,
below what was compiled, and said to be needed above it; kernels that a certain limit excludes and that do not spill;
the median and the 90 % error of the register estimate where registers were not short; kernels that spill, how many were
expected to, and the log loss. Fits are small: on a busy machine OPENBLAS_NUM_THREADS=1 makes them ten times faster.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import Beat, Processes
from benchmarks.resources import sample as kit
from benchmarks.resources.check import TITLES, check_rows
from benchmarks.resources.fit import (
    chances_left_out,
    fit_all,
    fitted_models,
    left_out,
    summaries,
    write_weights,
)
from constrint.errors import ConstrintError
from constrint.kernels.resources.registers import DATA, Weights, read_weights
from constrint.tune.trial import Outcome

TABLES = Path(__file__).resolve().parents[1] / "tests" / "data"
KERNELS = ("gemm", "rnn", "rnn.cuda")
COMMAND = "benchmarks/registers.py"
#: What the compiler says of a row; `error` if it refuses.
RESULTS = ("smem_bytes", "registers", "agprs", "spill_bytes", "instruction", "error")
#: Kernels of which a curve says less are those that it is sure of.
SURE = 1e-3
#: Seconds after which a kernel, one that spills without end, is given up.
PATIENCE_S = 45
GIVEN_UP = f"takes more than {PATIENCE_S} s to compile"


def load(kernel: str) -> kit.KernelSample:
    """Load the sample of a kernel, which states its configurations, terms and rules."""
    found: kit.KernelSample = importlib.import_module(f"benchmarks.resources.{kernel.replace('.', '_')}").SAMPLE
    return found


def pairs(texts: list[str]) -> dict[str, int]:
    """Numbers by name from `name=number`."""
    return {name: int(value) for name, _, value in (text.partition("=") for text in texts)}


def sample(args: argparse.Namespace) -> None:
    """Compile a sample and write its table."""
    described = load(args.kernel)
    rows = [
        row
        for target in args.targets or described.targets
        for row in kit.draw(described, target, pairs(args.draw), args.seed, fix=pairs(args.fix), table=args.table)
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    compiled = compile_rows(partial(load, args.kernel), rows, args.jobs)
    command = f"{COMMAND} sample --draw {' '.join(args.draw)} --seed {args.seed}"
    write_table(compiled, columns, args.out, f"{compiler_of(args.kernel)}, by {command}")


def again(args: argparse.Namespace) -> None:
    """Compile rows of a recorded table with the installed compiler."""
    _, recorded = kit.read_table(args.table)
    rows = []
    for target in args.targets or dict.fromkeys(row["target"] for row in recorded):
        of = [row for row in recorded if row["target"] == target and not row["error"]]
        chosen = random.Random(f"{target} {args.seed}").sample(range(len(of)), min(args.number, len(of)))
        rows += [of[place] for place in sorted(chosen)]
    columns = [name for name in recorded[0] if name not in (*RESULTS, "compiler")]
    asked: list[kit.Row] = [{name: row[name] for name in columns} for row in rows]
    compiled = compile_rows(partial(load, args.kernel), asked, args.jobs)
    command = f"{COMMAND} again --table {args.table.name} --number {args.number} --seed {args.seed}"
    write_table(compiled, columns, args.out, f"{compiler_of(args.kernel)}, by {command}")


def fit(args: argparse.Namespace) -> None:
    """Fit the weights and write them with their provenance."""
    described, out = load(args.kernel), args.out or DATA / f"{args.kernel}.json"
    compilers, kernels = kit.read_kernels(described, TABLES)
    if args.families:
        kernels = [kernel for kernel in kernels if kernel.families[0].name.startswith(tuple(args.families))]
    results, fits = left_out(kernels), fit_all(kernels)
    models = fitted_models(kernels, fits, results)
    if args.families and out.exists():
        models = dict(sorted((read_weights(out).models | models).items()))
    today, command = datetime.date.today().isoformat(), f"{COMMAND} fit --kernel {args.kernel}"
    write_weights(Weights(compilers, today, command, models), out)
    chances = chances_left_out(results, fits)
    for target, summary in summaries(results, chances, lambda kernel: kernel.target).items():
        print(f"{target:8} {summary}")
    sure = [result.kernel.spills for result, chance in zip(results, chances, strict=True) if chance < SURE]
    print(f"of {len(sure):,} kernels with a chance below {SURE:g} by the curve alone, {sum(sure)} spill")


def check(args: argparse.Namespace) -> None:
    """Print how the rules do, per table and target."""
    described = load(args.kernel)
    for path in args.tables or [TABLES / name for name in described.tables]:
        compiler, rows = kit.read_table(path)
        print(f"{path.name}: {compiler}")
        print("".join(title.rjust(10) for title in ("target", *TITLES)))
        for target, found in check_rows(described, rows).items():
            print("".join(cell.rjust(10) for cell in [target, *found.cells()]))


def compile_rows(load: Callable[[], kit.KernelSample], rows: list[kit.Row], jobs: int) -> Iterator[kit.Row]:
    """Rows with their compiled resources, after all are compiled.

    Args:
        load: Gives the sample in another process: a function of a module.
        rows: The rows to compile.
        jobs: How many processes; one that a row hangs or crashes goes on with the next row, up to 50 times.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def blame(number: int, outcome: Outcome) -> None:
            error = GIVEN_UP if outcome == Outcome.TIMED_OUT else "the compiler crashed"
            (folder / f"{number}.json").write_text(json.dumps({"error": error}))

        arguments = (jobs, load, rows, folder)
        processes = Processes(folder, compile_share, jobs, blame, arguments=arguments, patience_s=PATIENCE_S)
        try:
            while not processes.poll():
                print(f"\r{len(list(folder.glob('*.json')))}/{len(rows)}    ", end="", file=sys.stderr)
                time.sleep(1)
        finally:
            processes.stop()
        for number, row in enumerate(rows):
            path = folder / f"{number}.json"
            told = json.loads(path.read_text()) if path.exists() else {"error": "not compiled"}
            yield {**row, **dict.fromkeys(RESULTS, ""), **told}


def compile_share(
    beat: Beat, worker: int, num_workers: int, load: Callable[[], kit.KernelSample], rows: list[kit.Row], folder: Path
) -> None:
    """Compile every `num_workers`-th row, those that are not done; runs in a process of its own."""
    sample = load()
    for number in range(worker, len(rows), num_workers):
        path = folder / f"{number}.json"
        if path.exists():
            continue
        beat.at(number)
        try:
            compiled = sample.compile(rows[number])
        except ConstrintError as error:
            told: dict[str, Any] = {"error": str(error)[-120:]}
        else:
            registers = compiled.registers_per_thread, compiled.accumulator_registers, compiled.spill_bytes
            told = dict(zip(RESULTS, (compiled.smem_bytes, *registers, compiled.instruction), strict=False))
        path.write_text(json.dumps(told))


def compiler_of(kernel: str) -> str:
    """Name and version of the compiler of a kernel."""
    if kernel.endswith("cuda"):
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_version

        return nvrtc_version()
    import triton

    return f"triton {triton.__version__}"


def write_table(rows: Iterator[kit.Row], columns: list[str], out: Path, source: str) -> None:
    """Write a table."""
    with out.open("w", newline="") as file:
        file.write(f"# compiled, not measured: {source}\n")
        writer = csv.DictWriter(file, [*columns, *RESULTS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run the named command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (sample, again, fit, check):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.add_argument("--kernel", choices=KERNELS, required=True)
        sub.set_defaults(run=command)
    of_sample, of_again, of_fit, of_check = commands.choices.values()
    of_again.add_argument("--table", type=Path, required=True, help="the recorded table")
    of_again.add_argument("--number", type=int, required=True, help="rows per target")
    for compiling in (of_sample, of_again):
        compiling.add_argument("--targets", nargs="*")
        compiling.add_argument("--seed", type=int, default=1)
        compiling.add_argument("--jobs", type=int, default=1)
        compiling.add_argument("--out", type=Path, required=True)
    of_sample.add_argument("--draw", nargs="+", required=True, metavar="DRAW=NUMBER", help="per target")
    of_sample.add_argument("--fix", nargs="*", default=[], metavar="NAME=VALUE", help="parameters that are not drawn")
    of_sample.add_argument("--table", type=Path, help="the table that a draw chooses from")
    of_fit.add_argument("--out", type=Path, help="instead of the file in use")
    of_fit.add_argument("--families", nargs="*", help="these alone, by the start of their names; others stay")
    of_check.add_argument("tables", nargs="*", type=Path, help="instead of the tables that the weights are fitted to")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
