"""`matmul` as it is used, beside what a user of torch would write: epilogues, batches, other dtypes, gradients.

    python -m benchmarks.gemm.used --out used.csv                          # 20 drawn cases of every kind
    python -m benchmarks.gemm.used --kinds gelu batch --count 300 --seed 7 # some kinds, many cases
    python -m benchmarks.gemm.used --count 300 --seconds 140 --resume --out used.csv  # as many as fit, then go on
    python -m benchmarks.gemm.used --first                                 # the first choice alone: no call is tried
    python -m benchmarks.gemm.used --no-tables                             # as on a GPU that nothing was measured on
    python -m benchmarks.gemm.used --each                                  # each kernel and program by name, too
    python -m benchmarks.gemm.used --show used.csv                         # what such a file says; no GPU

Every case is drawn at random; kinds take turns. Each is called six times, so that its trials are over, and then
timed. Who is compared is called from plain Python, in turn, in several rounds: `cold` is a call between two events
after the L2 was overwritten, `loop` calls back to back. Ratios are torch's time over ours. A measurement that others
disturb is made again (`benchmarks/harness/timing.py`). Results are checked against the same expression in higher
precision. Kernels are compiled beforehand, in several processes; with `--seconds` these take `PREPARING` of the time,
and what they have not reached is left to the next run. The time per case is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch

from benchmarks.gemm.used_cases import KINDS, drawn
from benchmarks.gemm.used_hidden import hide
from benchmarks.gemm.used_parts import UsedCase
from benchmarks.harness.table import DISTURBED, Table, described, print_ratios, read_rows, read_whole
from benchmarks.harness.timing import FLUSHED, cold, gpu_here, loop, quiet
from constrint.kernels.launch.plan.trial import use_trials

COLUMNS = ("kind", "case", "who", "how", "median_us", "spread_us", "ratio", "outcome", "program")
#: Where `--first` and `--no-tables` keep what a later process reads, apart from outcomes of trials, and from what was
#: chosen by tables.
CACHES = Path(tempfile.gettempdir())
#: Kernels and programs that `--each` names.
EACH = ("cuda", "descriptor", "pointer", "skinny", "library", "library+pointwise")
#: Calls before a case is timed, and those of a process that compiles: a layer's first call is torch's own.
FIRST_CALLS, PREPARING_CALLS = 6, 2
#: Share of `--seconds` in which kernels are compiled.
PREPARING = 0.55
#: Bytes that torch may keep in a process that compiles, many of which share a GPU.
KEPT_BYTES = 1 << 31

Run = Callable[[], object]


def main() -> None:
    """Run, or show a file."""
    args = parsed()
    if args.show:
        summarise(read_rows(args.show))
        return
    if args.first or args.no_tables:
        kept = CACHES / f"constrint-used-{'first' * args.first}{'hidden' * args.no_tables}"
        os.environ["CONSTRINT_CACHE"] = str(kept)
    if args.no_tables:
        hide(gpu_here().name)
    if args.first:
        use_trials(False)
    if args.prepare:
        prepare(args)
        return
    measure(args)


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--count", type=int, default=20, help="cases of a kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="time of this run; without it every case is run")
    parser.add_argument("--resume", action="store_true", help="keep the rows of --out, and go on after them")
    parser.add_argument("--first", action="store_true", help="the first choice alone: trials are off")
    parser.add_argument("--no-tables", action="store_true", help="hide this GPU's tables, and what was stored by them")
    parser.add_argument("--each", action="store_true", help="each of our kernels and programs by name, too")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile")
    parser.add_argument("--prepare", metavar="I/N", help="only call every N-th case once, from the I-th on")
    parser.add_argument("--skip", type=int, default=0, help="cases that are left out at the beginning")
    parser.add_argument("--until", type=float, default=float("inf"), help="with --prepare: time of the clock to end at")
    return parser.parse_args(argv)


def measure(args: argparse.Namespace) -> None:
    """Compile, check and time the cases of a run, and print a summary."""
    began = time.time()
    until = began + args.seconds if args.seconds else float("inf")
    earlier = read_whole(args.out)[1] if args.resume and args.out and args.out.is_file() else []
    done = {(row["kind"], row["case"]) for row in earlier}
    every = list(cases_of(args))
    args.skip = number_done(every, done)
    share = PREPARING * args.seconds if args.seconds else float("inf")
    reached = compile_beforehand(args, began + share)
    prepared_s, number = time.time() - began, 0
    with Table(args.out, COLUMNS, described(), earlier) as table:
        flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
        left = (case for case in every[args.skip : reached] if (case.kind, case.name) not in done)
        for case in left:
            if time.time() > until:
                break
            run(case, table, flush.zero_, with_each=args.each)
            case.forget()
            number += 1
            print(f"\r{number} {case.kind} {case.name:60.60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    summarise(table.texts())
    timed_s = time.time() - began - prepared_s
    print(
        f"{number} cases in {prepared_s + timed_s:.0f} s: {prepared_s:.0f} s for compiling {reached - args.skip} in "
        f"{args.workers} processes, {timed_s / max(1, number):.2f} s for each measurement; "
        f"{len(every) - args.skip - number} of {len(every)} are left"
    )


def cases_of(args: argparse.Namespace) -> Iterator[UsedCase]:
    """The cases of a run, the same for the same seed; kinds take turns."""
    for cases in zip(*(drawn(kind, args.count, args.seed) for kind in args.kinds), strict=True):
        yield from cases


def number_done(cases: Iterable[UsedCase], done: set[tuple[str, str]]) -> int:
    """How many cases at the beginning are done."""
    number = 0
    for case in cases:
        if (case.kind, case.name) not in done:
            break
        number += 1
    return number


def compile_beforehand(args: argparse.Namespace, until: float) -> int:
    """Let processes call every case once, so that compiled kernels are on disk; the first case that none reached."""
    every = args.count * len(args.kinds)
    given = ["--kinds", *args.kinds, "--count", str(args.count), "--seed", str(args.seed), "--skip", str(args.skip)]
    given += ["--until", str(until)]
    given += [f"--{name.replace('_', '-')}" for name in ("each", "first", "no_tables") if getattr(args, name)]
    with tempfile.TemporaryFile() as errors:
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gemm.used", *given, "--prepare", f"{i}/{args.workers}"],
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )
            for i in range(args.workers)
        ]  # fmt: skip
        reached = [process.communicate()[0].strip().splitlines() for process in started]
        failed = sum(process.returncode != 0 for process in started)
        if failed:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            print(f"{failed} processes that compile failed: {' / '.join(lines[-3:])}", file=sys.stderr)
    ends = [int(lines[-1]) for lines in reached if lines and lines[-1].isdigit()]
    return min(ends, default=every) if until < float("inf") else every


def prepare(args: argparse.Namespace) -> None:
    """Call some cases once; print the first of these that was not reached, or the number of all."""
    first, step = map(int, args.prepare.split("/"))
    at, every = args.skip + first, args.count * len(args.kinds)
    for case in islice(cases_of(args), at, None, step):
        if time.time() > args.until:
            break
        for who, call in case.calls(EACH if args.each else ()).items():
            for _ in range(0 if who == "torch" else PREPARING_CALLS):
                attempt(call)
        case.forget()
        if torch.cuda.memory_reserved() > KEPT_BYTES:
            torch.cuda.empty_cache()
        at += step
    torch.cuda.synchronize()
    print(min(at, every))


def attempt(call: Run) -> str:
    """Call; return what was raised, as text, or nothing."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - what does not run is a row of the table
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
    return ""


def run(case: UsedCase, table: Table, flush: Run, *, with_each: bool) -> None:
    """Check and time one case; write its rows."""
    calls, outcomes = dict(case.calls(EACH if with_each else ())), {}
    for who in list(calls):
        failed = attempt(calls[who])
        if failed:
            outcomes[who] = failed
            del calls[who]
            continue
        for _ in range(FIRST_CALLS - 1):
            torch.cuda.synchronize()  # what a trial has enqueued is over, and the next call ends it
            attempt(calls[who])
        if who != "torch":
            outcomes[who] = "ok" if case.is_right(calls[who]) else "wrong result"
    for who, outcome in outcomes.items():
        if who not in calls:
            table.add(kind=case.kind, case=case.name, who=who, outcome=outcome)
    if "torch" not in calls:
        return
    programs = {"ours": case.program()}
    for how, figures in (("cold", quiet(lambda: cold(calls, flush))), ("loop", quiet(lambda: loop(calls)))):
        theirs = figures["torch"][0]
        for who, (median_us, spread_us) in figures.items():
            table.add(
                kind=case.kind, case=case.name, who=who, how=how, median_us=median_us, spread_us=spread_us,
                ratio=theirs / median_us, outcome=outcomes.get(who, "ok"), program=programs.get(who, ""),
            )  # fmt: skip


def summarise(rows: list[dict[str, str]]) -> None:
    """Ratios of every kind, wrong results, the slowest cases, and figures that others have disturbed."""
    timed = [row for row in rows if row["ratio"]]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for how in ("cold", "loop"):
            ours = [r for r in timed if (r["kind"], r["how"], r["who"]) == (kind, how, "ours")]
            print_ratios(f"{kind:14} {how}", [float(r["ratio"]) for r in ours], (0.9, 1.0))
            shares = list(_shares_of_best(timed, kind, how))
            if shares:
                print(f"{'':19} ours / best by name: {statistics.geometric_mean(shares):.3f}")
    for how in ("cold", "loop"):
        slow = sorted((r for r in timed if r["who"] == "ours" and r["how"] == how), key=lambda r: float(r["ratio"]))
        for row in slow[:24]:
            if float(row["ratio"]) < 0.95:
                case = f"{row['kind']} {row['case']} {how}"
                print(f"  {row['ratio']} {case}: {row['median_us']} us {row['program']}{_best_by_name(timed, row)}")
    for row in rows:
        if row["who"] == "ours" and row["outcome"] != "ok" and row["how"] != "loop":
            print(f"  {row['kind']} {row['case']}: {row['outcome']}")
    for row in timed:
        if float(row["spread_us"]) > DISTURBED * float(row["median_us"]):
            case = f"{row['kind']} {row['case']} {row['how']}"
            print(f"  disturbed: {case} of {row['who']}: {row['median_us']} +- {row['spread_us']} us")


def _best_by_name(rows: list[dict[str, str]], slow: dict[str, str]) -> str:
    """Which of those that were named was the quickest in the case of a row, as text."""
    same = (row for row in rows if all(row[name] == slow[name] for name in ("kind", "case", "how")))
    named = [row for row in same if row["who"] not in ("torch", "ours")]
    best = min(named, key=lambda row: float(row["median_us"]), default=None)
    return f"; best {best['who']} {best['median_us']}" if best else ""


def _shares_of_best(rows: list[dict[str, str]], kind: str, how: str) -> Iterator[float]:
    """Of each case, the least time of those that were named over the time of `auto`."""
    cases: dict[str, dict[str, float]] = {}
    for row in rows:
        if (row["kind"], row["how"]) == (kind, how):
            cases.setdefault(row["case"], {})[row["who"]] = float(row["median_us"])
    for times in cases.values():
        named = [time for who, time in times.items() if who not in ("torch", "ours")]
        if named and "ours" in times:
            yield min(named) / times["ours"]


if __name__ == "__main__":
    main()
