"""`matmul` as it is used, beside what a user of torch would write: epilogues, batches, other dtypes, gradients.

    python -m benchmarks.gemm.used --out used.csv                          # 20 drawn cases of every kind
    python -m benchmarks.gemm.used --kinds gelu batch --count 300 --seed 7 # some kinds, many cases
    python -m benchmarks.gemm.used --each                                  # each kernel and program by name, too
    python -m benchmarks.gemm.used --show used.csv                         # what such a file says; no GPU

Every case is drawn at random. Who is compared is called from plain Python, in turn, in several rounds: `cold` is a call
between two events after the L2 was overwritten, `loop` calls back to back. Ratios are torch's time over ours. Results
are checked against the same expression in higher precision. Kernels are compiled beforehand, in several processes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from benchmarks.gemm.used_cases import KINDS, UsedCase, drawn
from benchmarks.harness.table import Table, described, print_ratios, read_rows

COLUMNS = ("kind", "case", "who", "how", "median_us", "spread_us", "ratio", "outcome", "program")
#: Rounds of calls between events, calls of a loop, and rounds of loops.
COLD_ROUNDS, LOOP_CALLS, LOOP_ROUNDS = 21, 20, 7
#: Kernels and programs that `--each` names.
EACH = ("cuda", "descriptor", "pointer", "skinny", "library", "library+pointwise")
#: Bytes that are overwritten so that no operand stays in the L2.
FLUSHED = 1 << 28

Run = Callable[[], object]


def main() -> None:
    """Run, or show a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--count", type=int, default=20, help="cases of a kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="each of our kernels and programs by name, too")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile")
    parser.add_argument("--prepare", metavar="I/N", help="only call every N-th case once, from the I-th on")
    args = parser.parse_args()
    if args.show:
        summarise(read_rows(args.show))
        return
    if args.prepare:
        prepare(args)
        return
    compile_beforehand(args)
    with Table(args.out, COLUMNS, described()) as table:
        flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
        for done, case in enumerate(cases_of(args)):
            run(case, table, flush.zero_, with_each=args.each)
            print(f"\r{done + 1} {case.kind} {case.name:60.60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    summarise([{name: str(row.get(name, "")) for name in COLUMNS} for row in table.rows])


def cases_of(args: argparse.Namespace) -> Iterator[UsedCase]:
    """The cases of a run, the same for the same seed."""
    for kind in args.kinds:
        yield from drawn(kind, args.count, args.seed)


def compile_beforehand(args: argparse.Namespace) -> None:
    """Let processes call every case once, so that compiled kernels are on disk."""
    given = ["--kinds", *args.kinds, "--count", str(args.count), "--seed", str(args.seed), *["--each"] * args.each]
    with tempfile.TemporaryFile() as errors:
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gemm.used", *given, "--prepare", f"{i}/{args.workers}"],
                stdout=errors, stderr=errors,
            )
            for i in range(args.workers)
        ]  # fmt: skip
        failed = sum(process.wait() != 0 for process in started)
        if failed:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            print(f"{failed} processes that compile failed: {' / '.join(lines[-3:])}", file=sys.stderr)


def prepare(args: argparse.Namespace) -> None:
    """Call some cases once."""
    first, step = map(int, args.prepare.split("/"))
    for case in itertools.islice(cases_of(args), first, None, step):
        calls = case.calls(EACH if args.each else ())
        for who, call in calls.items():
            if who != "torch":
                attempt(call)
    torch.cuda.synchronize()


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
        elif who != "torch":
            outcomes[who] = "ok" if case.is_right(calls[who]) else "wrong result"
    for who, outcome in outcomes.items():
        if who not in calls:
            table.add(kind=case.kind, case=case.name, who=who, outcome=outcome)
    if "torch" not in calls:
        return
    programs = {"ours": case.program()}
    for how, figures in (("cold", cold(calls, flush)), ("loop", loop(calls))):
        theirs = figures["torch"][0]
        for who, (median_us, spread_us) in figures.items():
            table.add(
                kind=case.kind, case=case.name, who=who, how=how, median_us=median_us, spread_us=spread_us,
                ratio=theirs / median_us, outcome=outcomes.get(who, "ok"), program=programs.get(who, ""),
            )  # fmt: skip


def cold(calls: Mapping[str, Run], flush: Run) -> dict[str, tuple[float, float]]:
    """Median and spread in us of calls between events, each after the L2 was overwritten; everyone in turn."""
    seen: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {who: [] for who in calls}
    for _ in range(COLD_ROUNDS):
        for who, call in calls.items():
            start, end = _events()
            flush()
            start.record()
            call()
            end.record()
            seen[who].append((start, end))
    torch.cuda.synchronize()
    return {who: _figure([1e3 * a.elapsed_time(b) for a, b in pairs]) for who, pairs in seen.items()}


def loop(calls: Mapping[str, Run]) -> dict[str, tuple[float, float]]:
    """Median and spread in us per call of calls back to back; everyone in turn."""
    seen: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(LOOP_ROUNDS):
        for who, call in calls.items():
            start, end = _events()
            torch.cuda.synchronize()
            start.record()
            for _ in range(LOOP_CALLS):
                call()
            end.record()
            torch.cuda.synchronize()
            seen[who].append(1e3 * start.elapsed_time(end) / LOOP_CALLS)
    return {who: _figure(values) for who, values in seen.items()}


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    new: Callable[..., torch.cuda.Event] = torch.cuda.Event
    return new(enable_timing=True), new(enable_timing=True)


def _figure(values: list[float]) -> tuple[float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, (high - low) / 2


def summarise(rows: list[dict[str, str]]) -> None:
    """Ratios of every kind, wrong results, and the slowest cases."""
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
