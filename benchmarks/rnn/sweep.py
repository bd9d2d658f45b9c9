"""Recurrent layers beside their peers over a sweep of sizes and dtypes, in one run, everyone in turn.

    python -m benchmarks.rnn.sweep --out sweep.csv                               # the table of targets, needs a GPU
    python -m benchmarks.rnn.sweep --list whole --out s.csv --limit 360          # as much as six minutes take
    python -m benchmarks.rnn.sweep --list whole --out s.csv --limit 360          # again: goes on where it was cut
    python -m benchmarks.rnn.sweep --only lstm-1x768 --kinds nn rnn --out one.csv  # what is named alone

The most important layers come first. Rows of one layer are written together, as soon as it is timed, and a run whose
file is there goes on with the layers that it lacks. Each layer has a process of its own; those of a batch are prepared
(compiled, built, chosen for) side by side, then timed one after the other. Times are milliseconds of wall time per call
from plain Python, medians and spread (80th less 20th percentile) of rounds in which everyone takes a turn.

| row | what is timed |
|---|---|
| torch.nn | layers with equal numbers of inputs and units, cuDNN; `projection` is the product for the inputs alone |
| rnn NAME | `rnn(...)` with that back-end on projected inputs |
| module NAME | our module beside `torch.nn`'s, projection included |
| nxai NAME | NX-AI's package on projected inputs, bf16 (`pip install flashrnn einops ninja`; builds 20 to 60 s each) |

`same_...` is the time of the best peer in the same dtype over ours, `best_...` that of the best peer in any dtype:
above 1 ours is faster. Peers of `rnn` are NX-AI's kernels, and `torch.nn` less its projection; that of a module is
`torch.nn`. `fp32` is timed without tf32 anywhere, `tf32` with tf32 everywhere.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.table import Table, described, print_ratios, read_whole
from benchmarks.rnn.cases import ALL, LISTS, Sizes
from benchmarks.rnn.contenders import KINDS
from benchmarks.rnn.entries import NXAI, PROJECTION, TORCH_NN, Entry, Job
from benchmarks.rnn.workers import PREPARE_S, Work, in_turn, work

COLUMNS = (
    *("cell", "heads", "head_dim", "layers", "batch", "time", "dtype", "implementation", "runs_on"),
    *("forward_ms", "forward_spread_ms", "both_ms", "both_spread_ms"),
    *("same_forward", "same_both", "best_forward", "best_both"),
    *("outcome", "layer_rows"),
)
#: What tells one layer from another.
LAYER = ("cell", "heads", "head_dim", "layers", "batch", "time")
#: Layers that are prepared together: their number, and the GPU memory that they take when all run at once.
BATCH, BATCH_BYTES = 12, 100 << 30


def peer_ms(entries: Sequence[Entry], name: str, which: str, dtype: str | None) -> float:
    """The time of the best peer of a row, in one dtype or in any; infinity where there is none."""
    others = [entry for entry in entries if dtype in (None, entry.dtype)]
    torchs = [entry for entry in others if entry.name == TORCH_NN]
    if name.startswith("module"):
        return min((entry.ms(which) for entry in torchs), default=float("inf"))
    if not name.startswith("rnn"):
        return float("inf")
    times = [entry.ms(which) for entry in others if entry.name.startswith(NXAI)]
    for entry in torchs:
        projection = [e for e in others if (e.name, e.dtype) == (PROJECTION, entry.dtype) and e.times]
        times += [max(entry.ms(which) - e.ms(which), 0.0) for e in projection]
    return min(times, default=float("inf"))


def row_of(sizes: Sizes, entry: Entry, entries: Sequence[Entry]) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = dict(zip(LAYER, sizes.key, strict=True))
    row |= {"dtype": entry.dtype, "implementation": entry.name, "runs_on": entry.runs_on}
    for which, figure in entry.times.items():
        row |= {f"{which}_ms": 1e3 * figure.median_s, f"{which}_spread_ms": 1e3 * figure.spread_s}
        for column, dtype in (("same", entry.dtype), ("best", None)):
            peer = peer_ms(entries, entry.name, which, dtype)
            if peer != float("inf"):
                row[f"{column}_{which}"] = peer / (1e3 * figure.median_s)
    return row | {"outcome": entry.outcome, "layer_rows": len(entries)}


def earlier_rows(path: Path, note: str) -> tuple[str, list[dict[str, str]]]:
    """The note and the whole layers of a table that a run goes on with; what was cut short is timed again."""
    if not path.exists():
        return note, []
    said, rows = read_whole(path)
    seen = Counter(tuple(row[name] for name in LAYER) for row in rows)
    kept = [row for row in rows if seen[tuple(row[name] for name in LAYER)] == int(row["layer_rows"])]
    return said if note in said else f"{said}; then {note}", kept


def chosen(args: argparse.Namespace) -> list[Sizes]:
    """The layers that are asked for."""
    part, parts = map(int, args.part.split("/"))
    found = [sizes for sizes in LISTS[args.list]() if not args.only or any(word in str(sizes) for word in args.only)]
    return found[part - 1 :: parts]


def batches(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The layers in their order, in the batches that are prepared together."""
    batch: list[Job] = []
    for job in jobs:
        taken = sum(one.sizes.peak_bytes for one in (*batch, job))
        if batch and (len(batch) == BATCH or taken > BATCH_BYTES):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def run(jobs: Sequence[Job], table: Table, limit: float, patience_s: float = PREPARE_S, work: Work = work) -> int:
    """Time batch after batch until all are done or the time is up; returns how many layers were done."""
    until, done = time.monotonic() + (limit or float("inf")), 0
    for batch in batches(jobs):
        again: list[Job] = []
        for job, found in in_turn(batch, until, patience_s, work):
            if isinstance(found, str) and "nxai" in job.kinds:
                # Building NX-AI's kernels may take longer than anyone waits; ours are timed nevertheless.
                print(f"{job.sizes}: {found}; once more without NX-AI's kernels", flush=True)
                again.append(job._replace(kinds=tuple(kind for kind in job.kinds if kind != "nxai")))
                continue
            entries = found if isinstance(found, list) else [Entry("", "", outcome=found)]
            for entry in entries:
                shown = table.add(**row_of(job.sizes, entry, entries))
                print(*(shown.get(column, "") for column in COLUMNS), flush=True)
            done += 1
        if time.monotonic() < until and again:
            done += run(again, table, until - time.monotonic(), patience_s, work)
        if time.monotonic() > until:
            break
    return done


def summarise(rows: Sequence[Mapping[str, Any]]) -> None:
    """Say how what `auto` takes does beside the best peer, and where it is slower."""
    for name in ("rnn auto", "module auto"):
        ours = [row for row in rows if row["implementation"] == name]
        for column in ("same_forward", "same_both", "best_forward", "best_both"):
            ratios = [float(row[column]) for row in ours if row.get(column)]
            print_ratios(f"{name}, {column}", ratios, (1.0,))
            for row in ours:
                if row.get(column) and float(row[column]) < 1:
                    print("  slower:", *(row[key] for key in (*LAYER, "dtype", "runs_on")), row[column])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write, or to go on with")
    parser.add_argument("--list", choices=LISTS, default="table", help="which layers")
    parser.add_argument(
        "--only", nargs="*", default=(), help="only layers whose name holds one of these: lstm-1x768-b16"
    )
    parser.add_argument("--dtypes", nargs="*", default=ALL, choices=ALL, help="only these")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="who is timed")
    parser.add_argument(
        "--backends", nargs="*", default=(), help="back-ends of rnn that are timed, instead of the list's"
    )
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--limit", type=float, default=0.0, metavar="SECONDS", help="end after so long")
    parser.add_argument("--patience", type=float, default=PREPARE_S, metavar="SECONDS", help="to prepare a batch")
    return parser.parse_args()


def jobs_of(args: argparse.Namespace, rows: Sequence[Mapping[str, str]]) -> list[Job]:
    """Return the layers that are left to time."""
    done = {tuple(row[name] for name in LAYER) for row in rows}
    jobs = []
    for sizes in chosen(args):
        dtypes = tuple(dtype for dtype in sizes.dtypes if dtype in args.dtypes)
        if dtypes and sizes.key not in done:
            jobs.append(Job(sizes, dtypes, tuple(args.kinds), tuple(args.backends) or sizes.backends))
    return jobs


def main() -> None:
    """Time what is asked for."""
    args = parse()
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    note, rows = earlier_rows(args.out, f"{described()}, cudnn {cudnn}")
    jobs = jobs_of(args, rows)
    with Table(args.out, COLUMNS, note, rows) as table:
        done = run(jobs, table, args.limit, args.patience)
        summarise(table.rows)
    print(
        f"{done} layers were timed, {len(jobs) - done} are left"
        + (f", {len(rows)} rows are from before" if rows else "")
    )


if __name__ == "__main__":
    main()
