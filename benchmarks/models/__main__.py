"""Models before and after `constrint.patch`: eight blocks of transformers, random weights, eager and compiled.

    python -m benchmarks.models --out models.csv               # all blocks, eager and by torch.compile
    python -m benchmarks.models --kinds Llama BERT --how eager # some
    python -m benchmarks.models --show models.csv              # what such a file says; no GPU
    python -m benchmarks.models --table models.csv             # the table in Markdown; no GPU
    python -m benchmarks.models --small                        # small sizes, for a machine without a GPU

A forward pass has no gradients; a training step is a forward and a backward pass, without an optimizer. Times are the
host's and the device's together, calls back to back, before and after the patch in turn; the ratio is the median of
those of the rounds. Outputs and gradients in bf16
are held against the same model in fp32: errors after the patch have to be at most 1.5 times those before it, and half a
unit. Every block is compiled in a process of its own, all at once; then each has the GPU alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, described, read_whole
from benchmarks.models.work import Task, serve

KINDS = ("Llama", "Qwen", "Mixtral", "BERT", "ViT", "T5", "Whisper", "GPT-2")
HOWS = ("eager", "compile")
COLUMNS = (
    "model", "layers", "how", "what", "before_us", "after_us", "spread", "ratio", "replaced", "left",
    "error_before", "error_after", "gradient_before", "gradient_after", "outcome", "ready_s",
)  # fmt: skip


def main() -> None:
    """Run, or show a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--how", nargs="+", choices=HOWS, default=list(HOWS))
    parser.add_argument("--layers", type=int, choices=(1, 2), default=1)
    parser.add_argument("--small", action="store_true", help="small sizes, two rounds")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after this time; what is left is no row")
    args = parser.parse_args()
    if args.show or args.table:
        note, rows = read_whole(args.show or args.table)
        lines = [*table_lines(rows), "", f"ms before and after the patch, and their ratio; {note}.", ""]
        print("\n".join(lines) if args.table else summary_of(rows), end="")
        return
    tasks = [Task(name, how, args.layers, args.small) for how in args.how for name in args.kinds]
    with Table(args.out, COLUMNS, f"{described()}, transformers {_version()}") as table:
        measure(tasks, table, time.monotonic() + args.seconds)
        print(summary_of(table.texts()), end="")


def _version() -> str:
    from importlib.metadata import version

    return version("transformers")


def measure(tasks: list[Task], table: Table, end: float) -> None:
    """Start all processes; when all are ready, or half of the time has gone, let one after the other measure."""
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, tuple[Task, Any]] = {}
    for task in tasks:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(task, theirs), daemon=True)
        process.start()
        theirs.close()
        running[ours] = task, process
    ready: dict[Connection, float] = {}
    patience = began + 0.6 * (end - began)
    try:
        while len(ready) < len(running) and time.monotonic() < end:
            limit = patience if time.monotonic() < patience or not ready else time.monotonic()
            _hear(running, ready, table, max(0.05, min(end, limit) - time.monotonic()))
            if time.monotonic() >= patience:
                _measure_ready(running, ready, table, end)
        _measure_ready(running, ready, table, end)
    finally:
        for pipe, (task, process) in running.items():
            print(f"{task.name} {task.how}: no time was left", file=sys.stderr)
            process.terminate()
            pipe.close()


def _hear(running: dict[Connection, Any], ready: dict[Connection, float], table: Table, seconds: float) -> None:
    """Take the words of processes that are ready, or failed."""
    for pipe in wait([pipe for pipe in running if pipe not in ready], timeout=seconds):
        assert isinstance(pipe, Connection)
        try:
            word, value = pipe.recv()
        except EOFError:
            word, value = "rows", [{"outcome": "the process ended"}]
        if word == "ready":
            ready[pipe] = value
        else:
            _add(running.pop(pipe)[0], value, table, 0.0)


def _measure_ready(running: dict[Connection, Any], ready: dict[Connection, float], table: Table, end: float) -> None:
    """Let the processes that are ready measure, one at a time."""
    for pipe, seconds in list(ready.items()):
        if time.monotonic() > end:
            return
        del ready[pipe]
        task, process = running[pipe]
        try:
            pipe.send("go")
            rows = pipe.recv()[1] if pipe.poll(max(1.0, end - time.monotonic() + 5.0)) else None
        except (EOFError, OSError):
            rows = [{"outcome": "the process ended"}]
        if rows is None:
            return
        del running[pipe]
        _add(task, rows, table, seconds)
        process.join(20.0)


def _add(task: Task, rows: list[dict[str, Any]], table: Table, seconds: float) -> None:
    for row in rows:
        shown = table.add(model=task.name, layers=task.layers, how=task.how, ready_s=seconds, **row)
        print(" ".join(f"{name}={value}" for name, value in shown.items()), file=sys.stderr, flush=True)


def summary_of(rows: list[dict[str, str]]) -> str:
    """Ratios of every kind of call, as text, and what was wrong or slower."""
    lines = []
    for how, what, group in _groups(rows):
        ratios = [float(row["ratio"]) for row in group]
        under = ", ".join(f"{row['model']} {row['ratio']}" for row in group if float(row["ratio"]) < 1.0)
        mean = statistics.geometric_mean(ratios)
        lines.append(
            f"{how:8} {what:8} before / after: mean {mean:.3f}, worst {min(ratios):.3f}; slower: {under or '-'}"
        )
    lines += [f"{row['model']} {row['how']} {row['what']}: {row['outcome']}" for row in rows if row["outcome"] != "ok"]
    return "\n".join(lines) + "\n"


def _groups(rows: list[dict[str, str]]) -> Iterator[tuple[str, str, list[dict[str, str]]]]:
    timed = [row for row in rows if row["ratio"]]
    for how in HOWS:
        for what in ("forward", "step"):
            group = [row for row in timed if (row["how"], row["what"]) == (how, what)]
            if group:
                yield how, what, group


def table_lines(rows: list[dict[str, str]]) -> list[str]:
    """The table in Markdown: ms before and after, and their ratio, of every block."""
    heads = [(how, what) for how, what, _ in _groups(rows)]
    names = [f"{what}, {'eager' if how == 'eager' else 'torch.compile'}" for how, what in heads]
    lines = [f"| block | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for model in (kind for kind in KINDS if any(row["model"] == kind for row in rows)):
        cells = []
        for how, what in heads:
            of = (row for row in rows if (row["model"], row["how"], row["what"]) == (model, how, what) and row["ratio"])
            cells.append(next((_cell(row) for row in of), ""))
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return lines


def _cell(row: dict[str, str]) -> str:
    before, after = (1e-3 * float(row[name]) for name in ("before_us", "after_us"))
    wrong = "" if row["outcome"] == "ok" else f" ({row['outcome']})"
    return f"{before:.2f} / {after:.2f} = {float(row['ratio']):.2f}{wrong}"


if __name__ == "__main__":
    main()
