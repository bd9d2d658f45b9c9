"""Remake every shipped table of measurements for the GPU of this machine, in one run.

    python -m benchmarks.remake                                   # everything, eight minutes, into the package
    python -m benchmarks.remake --budget 3m --only winners        # some parts
    python -m benchmarks.remake --into out                        # on another machine: one archive, remade-<gpu>.zip
    python -m benchmarks.remake --take out                        # puts the archive's tables into the package
    python -m benchmarks.remake --check                           # no GPU: which tables are stale; 1 if any is
    python -m benchmarks.remake --same COMMIT                     # no GPU: tables hold where machine code is the same
    python -m benchmarks.remake --smoke                           # every part on one or two cases; installs nothing

Parts by value: `library` (torch's own products), `winners` (the workloads of the shipped tables), `layers` (cuDNN's and
our layers), `corrections` (candidates of products drawn at random, and the fit). Candidates are compiled in processes
of their own while the GPU measures. Each part has a share of the time; what one leaves the next may use. Everything is
kept in `--work`: a run that is cut goes on there, and what was finished is in its archive (`--take` it). A table that
exists keeps its rows of other products and layers, unless their device code has changed; corrections are fitted to new
candidates and to those that `benchmarks/results` has of the GPU. The table of the library is put into the package at
once, since later parts read it. Progress is printed on stderr.

`--same` takes a commit, or a folder with a checkout, whose device code the tables were measured with. Configurations
of stale entries are compiled with its code and with that of now, for the GPU of their table. Where the machine code and
the launches are the same, the entry gets the fingerprint of now and a note of how it was carried over (`same_code_as`);
other entries stay stale, and it says what differs. With `--check` it writes nothing. The exit status is 1 where
anything stays stale. What was compiled is kept in `--work`: a run that is cut goes on there.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.remake import tables
from benchmarks.remake.parts import PARTS, Run, Spent, fit_arguments, say
from benchmarks.remake.same.carry import carry_over
from benchmarks.remake.same.stale import stale_of
from benchmarks.remake.same.trees import base_of
from constrint.cli.tune import seconds_of
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, detect, load_gpu

#: What a fit is of, and what it writes.
FITTED = ("candidates", "corrections")
#: Seconds that remain for the archive and the tables when the parts are through, and the most that `--smoke` takes.
RESERVE_S, SMOKE_S = 8.0, 120.0


def remake(gpu: GpuModel, args: argparse.Namespace) -> list[Spent]:
    """Run the parts one after another within the budget, and archive after each of them."""
    started = time.monotonic()
    until = started + (SMOKE_S if args.smoke else args.budget) - RESERVE_S
    run = Run(gpu, folder_of(gpu, args.work), args.smoke)
    names = [name for name in PARTS if name in args.only]
    spent: list[Spent] = []
    with run.in_background("corrections" in names):
        for place, name in enumerate(names):
            shares = [1.0 if args.smoke else PARTS[other].share for other in names[place:]]
            seconds = (until - time.monotonic()) * shares[0] / sum(shares)
            say(f"{name}: {seconds:.0f} s")
            spent.append(run.part(name, seconds))
            say(f"{name}: {spent[-1]}")
            tables.archive(run.stage, gpu.name, [vars(each) for each in spent], args.into or run.folder)
    say(f"{time.monotonic() - started:.0f} s in all")
    return spent


def folder_of(gpu: GpuModel, work: Path) -> Path:
    """The folder of a GPU and of today's device code: what other code was measured with is not gone on with."""
    return work / f"{tables.slug(gpu.name)}-{tables.code_stamp()}"


def install(folder: Path) -> None:
    """Put the tables of a folder's archives into the package, and fit corrections for which the run had no time."""
    for path in tables.take(folder):
        say(f"written: {path}")
    for gpu, group in tables.unfitted(folder):
        arguments = fit_arguments(group, gpu, *(tables.path_of(f"{what}-{group}", gpu) for what in FITTED))
        subprocess.run([sys.executable, "-m", "benchmarks.gemm.correct", *arguments], check=True, stdout=sys.stderr)
        tables.note(gpu, f"corrections-{group}")


def same(args: argparse.Namespace) -> int:
    """Carry over what is stale from the checkout that `--same` names."""
    gpus = tables.gpus() if args.gpu is None else [load_gpu(args.gpu).name]
    entries = list(stale_of(gpus, args.only.__contains__))
    with base_of(args.same) as base:
        return carry_over(entries, base, args.work / "same", say, writes=not args.check)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=seconds_of, default=480.0, metavar="TIME", help="time for everything: 8m")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), metavar=",".join(PARTS))
    parser.add_argument("--gpu", help="the model of the GPU here; detected if left out")
    parser.add_argument("--work", type=Path, default=Path("build/remake"), help="where a run goes on after a cut")
    parser.add_argument("--fresh", action="store_true", help="begin anew: forget what an earlier run measured")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="write the archive there; the package gets the library's table alone, which later parts read",
    )
    parser.add_argument("--take", type=Path, metavar="DIR", help="put the archives of a folder into the package")
    parser.add_argument("--check", action="store_true", help="say which shipped tables are stale")
    parser.add_argument(
        "--same", metavar="BASE", help="carry tables over from a commit, or a checkout, with the same machine code"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="try every part on one or two cases, in a minute or two; installs nothing"
    )
    args = parser.parse_args()
    unknown = [name for name in args.only if name not in PARTS]
    if unknown:
        parser.error(f"--only: there is no part {unknown[0]!r}; parts are {', '.join(PARTS)}")
    return args


def main() -> int:
    """Check, take or remake."""
    args = parse()
    if args.same is not None:
        return same(args)
    if args.check:
        return tables.print_check()
    if args.take is not None:
        install(args.take)
        return 0
    name = args.gpu or detect()[0].model
    if name is None:
        raise ConstrintError("there is no model of the GPU of this machine; name one by --gpu")
    gpu = load_gpu(name)
    # Whoever ends this program ends what it started, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.fresh:
        shutil.rmtree(folder_of(gpu, args.work), ignore_errors=True)
    spent = remake(gpu, args)
    if args.into is None and not args.smoke:
        install(folder_of(gpu, args.work))
    return int(not any(each.outcome == "done" for each in spent))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConstrintError as error:
        sys.exit(f"error: {error}")
