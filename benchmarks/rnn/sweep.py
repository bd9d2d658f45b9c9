"""Recurrent layers beside their peers over a sweep of sizes and dtypes, in one run, everyone in turn.

    python -m benchmarks.rnn.sweep --out results/sweep.csv                         # the table of targets, needs a GPU
    python -m benchmarks.rnn.sweep --list sweep --out s.csv --part 1/4 --limit 500 # a quarter, at most 500 seconds
    python -m benchmarks.rnn.sweep --only lstm-1x768 --kinds nn rnn --out one.csv  # what is named alone

Rows of one layer are written together, as soon as it is timed; `--limit` begins no further layer after so many seconds,
and an interrupted run keeps what it has written. Times are milliseconds of wall time per call from plain Python,
medians and spread (80th less 20th percentile) of rounds in which everyone takes a turn.

| row | what is timed |
|---|---|
| torch.nn | the layer with as many inputs as units, cuDNN; `projection` is the product for the inputs alone |
| rnn NAME | `rnn(...)` with that back-end on projected inputs |
| module NAME | our module beside `torch.nn`'s, projection included |
| nxai NAME | NX-AI's package on projected inputs, bf16 (`pip install flashrnn einops ninja`; builds 20 to 60 s each) |

`same_...` is the time of the best peer in the same dtype over ours, `best_...` that of the best peer in any dtype:
above 1 ours is faster. Peers of `rnn` are NX-AI's kernels, and `torch.nn` less its projection; that of a module is
`torch.nn`. `fp32` is timed without tf32 anywhere, `tf32` with tf32 everywhere. The floor is what an implementation
states (`floor_s`), if it does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.table import Table, attempt, described
from benchmarks.harness.workloads import layer as workload_of
from benchmarks.rnn.bench import Case, compile_all
from benchmarks.rnn.cases import LISTS, Sizes
from benchmarks.rnn.contenders import KINDS, contenders, precision, runs_on
from benchmarks.rnn.names import NXAI, PROJECTION, TORCH_NN
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.rnn.plan import implementations_of
from constrint.tune.measure import Measurement, Timer

PASSES = ("forward", "both")
COLUMNS = (
    *("cell", "heads", "head_dim", "batch", "time", "dtype", "implementation", "runs_on"),
    *("forward_ms", "forward_spread_ms", "both_ms", "both_spread_ms", "floor_forward_ms", "floor_both_ms"),
    *("same_forward", "same_both", "best_forward", "best_both", "outcome"),
)
ROUNDS = 5
#: Layers whose kernels are compiled together, ahead of their turn.
CHUNK = 16


@dataclass
class Entry:
    """What one contender took, in one dtype."""

    dtype: str
    name: str
    times: dict[str, Measurement] = field(default_factory=dict)
    outcome: str = "ok"
    runs_on: str = ""

    def ms(self, which: str) -> float:
        """Milliseconds, or infinity where it did not run."""
        return 1e3 * self.times[which].median_s if which in self.times else float("inf")


def case_of(sizes: Sizes, dtype: str) -> Case:
    """The layer in one dtype."""
    return Case("sweep", sizes.cell, sizes.heads, sizes.dim, sizes.batch, sizes.time, dtype)


def measure(sizes: Sizes, dtype: str, timer: Timer, kinds: tuple[str, ...]) -> list[Entry]:
    """Time everyone on one layer in one dtype, in turn; who fails does not run."""
    case = case_of(sizes, dtype)
    entries, calls = [], []
    with precision(dtype):
        for name, make in contenders(case, kinds):
            entry = Entry(dtype, name, runs_on=runs_on(case, name))
            made: list[Any] = []

            def warm(make: Any = make, made: list[Any] = made) -> None:
                made.extend(make())
                for call in made:
                    call()
                timer.synchronize()

            entry.outcome = attempt(warm)["outcome"]
            entries.append(entry)
            if entry.outcome == "ok":
                calls += [(entry, which, call) for which, call in zip(PASSES, made, strict=True)]
        outcome = attempt(lambda: _time(timer, calls))["outcome"]
    for entry, _, _ in calls:
        entry.outcome = outcome
    return entries


def _time(timer: Timer, calls: Sequence[tuple[Entry, str, Any]]) -> None:
    figures = timer.from_python([call for _, _, call in calls], ROUNDS)
    for (entry, which, _), figure in zip(calls, figures, strict=True):
        entry.times[which] = figure


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


def row_of(sizes: Sizes, entry: Entry, entries: Sequence[Entry], gpu: GpuModel | None) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"cell": sizes.cell, "heads": sizes.heads, "head_dim": sizes.dim, "batch": sizes.batch}
    row |= {"time": sizes.time, "dtype": entry.dtype, "implementation": entry.name, "runs_on": entry.runs_on}
    for which, figure in entry.times.items():
        row |= {f"{which}_ms": 1e3 * figure.median_s, f"{which}_spread_ms": 1e3 * figure.spread_s}
        for column, dtype in (("same", entry.dtype), ("best", None)):
            peer = peer_ms(entries, entry.name, which, dtype)
            if peer != float("inf"):
                row[f"{column}_{which}"] = peer / (1e3 * figure.median_s)
    return row | floors(sizes, entry, gpu) | {"outcome": entry.outcome}


def floors(sizes: Sizes, entry: Entry, gpu: GpuModel | None) -> dict[str, Any]:
    """The least time that the implementation itself states, where it does: `floor_s(gpu, workload)` of its spec."""
    specs = implementations_of(sizes.cell).get(entry.runs_on or entry.name.partition(" ")[2])
    if gpu is None or specs is None or not all(hasattr(spec, "floor_s") for spec in specs.values()):
        return {}
    least = []
    for direction, spec in specs.items():
        shape = sizes.batch, sizes.time, sizes.heads, sizes.dim
        workload = workload_of(sizes.cell, *shape, entry.dtype, backward=direction == "backward")
        floor: Any = spec
        least.append(1e3 * float(floor.floor_s(gpu, workload)))
    return {"floor_forward_ms": least[0], "floor_both_ms": sum(least)}


def chosen(args: argparse.Namespace) -> list[Sizes]:
    """The layers that are asked for."""
    part, parts = map(int, args.part.split("/"))
    found = [sizes for sizes in LISTS[args.list]() if not args.only or any(word in str(sizes) for word in args.only)]
    return found[part - 1 :: parts]


def run(args: argparse.Namespace, table: Table, gpu: GpuModel | None) -> None:
    """Time layer after layer until all are done or the time is up."""
    started, timer, cases = time.perf_counter(), Timer(), chosen(args)
    for place, sizes in enumerate(cases):
        if args.limit and time.perf_counter() - started > args.limit:
            print(f"the time is up: {len(cases) - place} of {len(cases)} layers are left", flush=True)
            return
        dtypes = [dtype for dtype in sizes.dtypes if dtype in (args.dtypes or sizes.dtypes)]
        if gpu is not None and not place % CHUNK and {"rnn", "module"} & set(args.kinds):
            ahead = [
                Case("", s.cell, s.heads, s.dim, s.batch, s.time, d)
                for s in cases[place : place + CHUNK]
                for d in dtypes
            ]
            compile_all(gpu, ahead)
        entries = [entry for dtype in dtypes for entry in measure(sizes, dtype, timer, tuple(args.kinds))]
        for entry in entries:
            shown = table.add(**row_of(sizes, entry, entries, gpu))
            print(*(shown.get(column, "") for column in COLUMNS), flush=True)
        torch.cuda.empty_cache()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--list", choices=LISTS, default="table", help="which layers")
    parser.add_argument(
        "--only", nargs="*", default=(), help="only layers whose name holds one of these: lstm-1x768-b16"
    )
    parser.add_argument("--dtypes", nargs="*", default=(), help="only these of fp16, bf16, fp32, tf32")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="who is timed")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--limit", type=float, default=0.0, metavar="SECONDS", help="begin no layer after so long")
    return parser.parse_args()


def main() -> None:
    """Time what is asked for."""
    args = parse()
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    with Table(args.out, COLUMNS, f"{described()}, cudnn {cudnn}") as table:
        run(args, table, gpu_of(torch.device("cuda")))


if __name__ == "__main__":
    main()
