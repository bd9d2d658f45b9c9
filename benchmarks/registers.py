"""Compile a sample of kernels, fit register weights to the recorded tables, check the resource rules against them.

Compiling needs triton, fitting needs scipy; neither needs a GPU. Every kernel has the same three commands:

    python benchmarks/registers.py sample --kernel gemm --draw valid=60 free=600 ranked=2 --out tests/data/TABLE.csv
    python benchmarks/registers.py fit --kernel gemm      # writes constrint/kernels/resources/data/gemm.json
    python benchmarks/registers.py check --kernel gemm    # how the rules do against every recorded table

`fit` prints what fits to three quarters of the kernels say about the fourth, per target. `check` prints kernels; shared
memory stated exactly, and below what was compiled; the median error of the register estimate where registers were not
short; kernels that spill, and those within the bound; kernels that do not, and those beyond it. Fits are small: on a
busy machine OPENBLAS_NUM_THREADS=1 makes them ten times faster.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
from functools import partial
from pathlib import Path

from constrint.kernels.resources import sample as kit
from constrint.kernels.resources.check import TITLES, check_rows
from constrint.kernels.resources.fit import fit_all, fitted_models, left_out, summaries
from constrint.kernels.resources.weights import DATA, Weights, write_weights

TABLES = Path(__file__).resolve().parents[1] / "tests" / "data"
KERNELS = ("gemm", "rnn")
COMMAND = "benchmarks/registers.py"


def load(kernel: str) -> kit.Sample:
    """What a kernel tells the kit."""
    found: kit.Sample = importlib.import_module(f"constrint.kernels.{kernel}.sample").SAMPLE
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
    compiled = kit.compile_rows(partial(load, args.kernel), rows, args.jobs)
    kit.write_table(compiled, columns, args.out, f"{COMMAND} sample --draw {' '.join(args.draw)} --seed {args.seed}")


def fit(args: argparse.Namespace) -> None:
    """Fit the weights and write them with their provenance."""
    described, out = load(args.kernel), args.out or DATA / f"{args.kernel}.json"
    compilers, kernels = kit.read_kernels(described, TABLES)
    if args.families:
        kernels = [kernel for kernel in kernels if kernel.families[0].name.startswith(tuple(args.families))]
    results = [] if args.families else left_out(kernels, described.method)
    models = fitted_models(kernels, fit_all(kernels, described.method), results)
    today, command = datetime.date.today().isoformat(), f"{COMMAND} fit --kernel {args.kernel}"
    write_weights(Weights(compilers, today, command, models), out)
    for target, summary in summaries(results, lambda kernel: kernel.target).items():
        print(f"{target:8} {summary}")


def check(args: argparse.Namespace) -> None:
    """Print how the rules do, per table and target."""
    described = load(args.kernel)
    for path in args.tables or [TABLES / name for name in described.tables]:
        compiler, rows = kit.read_table(path)
        print(f"{path.name}: {compiler}")
        print("".join(title.rjust(10) for title in ("target", *TITLES)))
        for target, found in check_rows(described, rows).items():
            print("".join(cell.rjust(10) for cell in [target, *found.cells()]))


def main() -> None:
    """Run the named command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (sample, fit, check):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.add_argument("--kernel", choices=KERNELS, required=True)
        sub.set_defaults(run=command)
    of_sample, of_fit, of_check = (commands.choices[name] for name in ("sample", "fit", "check"))
    of_sample.add_argument("--draw", nargs="+", required=True, metavar="DRAW=NUMBER", help="so many rows per target")
    of_sample.add_argument("--targets", nargs="*")
    of_sample.add_argument("--fix", nargs="*", default=[], metavar="NAME=VALUE", help="parameters that are not drawn")
    of_sample.add_argument("--table", type=Path, help="the table that a draw chooses from")
    of_sample.add_argument("--seed", type=int, default=1)
    of_sample.add_argument("--jobs", type=int, default=1)
    of_sample.add_argument("--out", type=Path, required=True)
    of_fit.add_argument("--out", type=Path, help="instead of the file in use")
    of_fit.add_argument("--families", nargs="*", help="these alone, by the start of their names, and no errors")
    of_check.add_argument("tables", nargs="*", type=Path, help="instead of the tables that the weights are fitted to")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
