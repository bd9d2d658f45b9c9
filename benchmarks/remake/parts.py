"""The parts of a remake: each runs programs of this folder as processes of their own, and stages its tables.

A part that crashes or takes too long costs itself alone. Programs write row by row into the work folder and go on with
what is there. The staged tables have the names of `tables`; a part stages whole tables, with the rows that stay.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gemm.library import families
from benchmarks.harness.table import read_table
from benchmarks.remake import tables
from benchmarks.rnn import cudnn_table
from benchmarks.rnn.cases import LISTS
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.correction import GROUPS
from constrint.kernels.gemm.library.cost import COLUMNS, place_of_row
from constrint.select.winners import SHIPPED, TunedTable, read_tuned, write_tuned

#: Seconds of a part that a program takes to start and to write, beside its own limit; and, of them, those between
#: Ctrl-C and its end by force.
GRACE_S, SAVING_S = 20.0, 8.0
#: Products by group of types, of which candidates are planned and compiled while the library is measured.
PRODUCTS = {"bf16-fp16": 48, "fp8": 12}
TRIALS = 12


@dataclass
class Spent:
    """The outcome of a part.

    Args:
        part: Its name.
        outcome: "done", or "failed" where it staged nothing.
        seconds: The time it took.
        note: The measured and the remaining work.
    """

    part: str
    outcome: str
    seconds: float
    note: str

    def __str__(self) -> str:
        return f"{self.outcome} in {self.seconds:.0f} s; {self.note}"


class Run:
    """One remake on one GPU.

    Args:
        gpu: The model of the GPU.
        folder: Where programs write, and later runs go on.
        is_smoke: Whether each part runs one or two cases alone.
    """

    def __init__(self, gpu: GpuModel, folder: Path, is_smoke: bool) -> None:
        self.gpu, self.folder, self.is_smoke = gpu, folder.resolve(), is_smoke
        self.stage = self.folder / "stage"
        self.stage.mkdir(parents=True, exist_ok=True)
        # Compiled kernels, tables of first choices and winners of this run lie together.
        self._env = {**os.environ, "CONSTRINT_CACHE": str(self.folder / "cache"), "PYTHONUNBUFFERED": "1"}
        self._ahead: dict[str, subprocess.Popen[bytes]] = {}

    def part(self, name: str, seconds: float) -> Spent:
        """Run a part for at most `seconds`, and stage its tables."""
        started = time.monotonic()
        try:
            outcome, note = PARTS[name].run(self, seconds)
        except (ConstrintError, OSError, ValueError, KeyError) as error:
            outcome, note = "failed", f"{type(error).__name__}: {error}"
        return Spent(name, outcome, time.monotonic() - started, note)

    def program(self, module: str, *arguments: str, seconds: float) -> bool:
        """Run a program to its end; false where it failed, or was ended: at first by Ctrl-C, so that it saves."""
        process = self._start(module, *arguments)
        try:
            return process.wait(max(1.0, seconds - SAVING_S)) == 0
        except subprocess.TimeoutExpired:
            say(f"{module} is ended after {seconds - SAVING_S:.0f} s")
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAVING_S)
            return False
        finally:
            _end(process)

    def limit(self, seconds: float, of_smoke: float) -> float:
        """The limit that a program is told, of the seconds that its part has."""
        return of_smoke if self.is_smoke else max(2.0, seconds - GRACE_S)

    def _start(self, module: str, *arguments: str, is_behind: bool = False) -> subprocess.Popen[bytes]:
        behind = ["nice", "-n", "10"] if is_behind and shutil.which("nice") else []
        command = [*behind, sys.executable, "-m", module, *arguments]
        # What programs print is progress; the result is what they write.
        return subprocess.Popen(command, env=self._env, stdout=sys.stderr, start_new_session=True)

    @contextmanager
    def in_background(self, is_wanted: bool) -> Iterator[None]:
        """Plan and compile the candidates of products, group after group, while other parts measure."""
        try:
            if is_wanted:
                for group in PRODUCTS:
                    self._ahead[group] = self._prepare(group)
            yield
        finally:
            for process in self._ahead.values():
                _end(process)

    def _prepare(self, group: str) -> subprocess.Popen[bytes]:
        number = 2 if self.is_smoke else PRODUCTS[group]
        few = ("--each", "1", "--others", "0") if self.is_smoke else ("--each", "3", "--others", "1")
        where = ("--gpu", self.gpu.name, "--out", str(self.planned(group)))
        what = ("--number", str(number), "--seed", "4242", "--dtypes", *group.split("-"))
        # Two cores are left to what measures meanwhile.
        jobs = ("--jobs", str(max(1, (os.cpu_count() or 1) - 2)))
        return self._start("benchmarks.gemm.candidates", "prepare", *where, *what, *few, *jobs, is_behind=True)

    def planned(self, group: str) -> Path:
        """The candidates of a group of types."""
        return self.folder / f"planned-{group}.csv"

    def wait_for(self, group: str, seconds: float) -> bool:
        """Whether the candidates of a group are compiled in time."""
        process = self._ahead.get(group)
        with suppress(subprocess.TimeoutExpired):
            return process is not None and process.wait(max(0.1, seconds)) == 0
        return False


def say(text: str) -> None:
    """Say how far it is."""
    print(f"remake: {text}", file=sys.stderr, flush=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# Torch's own products.


def library(run: Run, seconds: float) -> tuple[str, str]:
    """Measure torch's own products, in an order that leaves every kind as complete as the others where it is cut."""
    out = run.folder / "library.csv"
    few = ("--share", "0.001") if run.is_smoke else ()
    where = ("--gpu", run.gpu.name, "--out", str(out), "--limit", f"{run.limit(seconds, 2):.0f}")
    run.program("benchmarks.gemm.library", *where, *few, seconds=seconds)
    if not out.is_file():
        return "failed", "no product was measured"
    notes, new = _noted_rows(out)
    new_keys = {place_of_row(dict(zip(COLUMNS, row, strict=True))) for row in new}
    older_notes, older = _noted_rows(tables.path_of("library", run.gpu.name))
    kept = [row for row in older if place_of_row(dict(zip(COLUMNS, row, strict=True))) not in new_keys]
    target = run.stage / "library.csv"
    _write(target, [*notes, *(note for note in older_notes if kept and note not in notes)], COLUMNS, [*new, *kept])
    if not run.is_smoke:  # what is measured next may choose the library
        path = tables.path_of("library", run.gpu.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(target.read_bytes())
    number = sum(family.number for family in families())
    return "done", f"{len(new)} of {number} products measured, {len(kept)} rows stay"


def _noted_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """The comment lines of a table, and its whole rows."""
    if not path.is_file():
        return [], []
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    return notes, [row for row in rows[1:] if len(row) == len(rows[0])]


def _write(path: Path, notes: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {note}\n" for note in notes)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    part.replace(path)


# Winners.


def winners(run: Run, seconds: float) -> tuple[str, str]:
    """Tune the workloads of the shipped tables; a winner that was not measured again stays while its code does."""
    limit = run.limit(seconds - 0.5 * GRACE_S, 12)
    few = ("--number", "2", "--trials", "2") if run.is_smoke else ("--trials", str(TRIALS))
    where = ("--gpu", run.gpu.name, "--store", str(run.folder / "records.sqlite"), "--budget", f"{limit:.0f}")
    run.program("benchmarks.remake.winners", *where, *few, seconds=seconds)
    shipped = tables.path_of("winners", run.gpu.name)
    new = read_tuned(run.folder / "cache" / shipped.name)
    if not new.entries:
        return "failed", new.problem or "no workload has a winner"
    # A kernel in CUDA C++ has other tools than one in Triton, and so an entry of its own: the fastest is the winner.
    measured = {_goal(entry): entry for entry in sorted(new.entries, key=lambda entry: -entry.seconds)}
    older = read_tuned(shipped).entries
    now = tables.hashes_of({entry.kernel for entry in older})
    left = [entry for entry in older if _goal(entry) not in measured]
    fresh = [entry for entry in left if now[entry.kernel] in ("", entry.source_hash)]
    entries = sorted((*measured.values(), *fresh), key=lambda entry: (entry.kernel, _goal(entry)))
    write_tuned(TunedTable(run.gpu.name, tuple(entries)), run.stage / "winners.json")
    num_stale = len(left) - len(fresh)
    goals = {_goal(entry) for file in SHIPPED.glob("tuned-*.json") for entry in read_tuned(file).entries}
    tuned = f"{len(measured)} of {len(goals | measured.keys())} workloads tuned"
    return "done", f"{tuned}, {len(fresh)} winners stay, {num_stale} stale ones are dropped"


def _goal(entry: Any) -> tuple[str, ...]:
    parts = (entry.sizes, entry.options, entry.fixed)
    return entry.operation, entry.dtype, *(repr(sorted(part.items())) for part in parts)


# Layers.


def layers(run: Run, seconds: float) -> tuple[str, str]:
    """Time layers on cuDNN and on what `auto` takes, the most usual ones first."""
    out = run.folder / "layers.csv"
    limit = run.limit(seconds, 25)
    few = ("--only", "lstm-1x64-b16-t35", "--dtypes", "fp16") if run.is_smoke else ()
    how = ("--list", "sweep", "--kinds", "nn", "rnn", "--backends", "auto", "--limit", f"{limit:.0f}")
    run.program("benchmarks.rnn.sweep", "--out", str(out), *how, *few, seconds=seconds)
    if not out.is_file():
        return "failed", "no layer was timed"
    made = ["Made by benchmarks.remake of benchmarks.rnn.sweep, milliseconds per call from Python on:"]
    made.append(read_table(out)[0])
    of = {"cudnn": cudnn_table.rows_of([out]), **cudnn_table.rows_of_ours([out])}
    counts = []
    for implementation, rows in of.items():
        if not rows or implementation not in tables.IMPLEMENTATIONS:
            continue
        notes, path = made, tables.path_of(f"layers-{implementation}", run.gpu.name)
        if path.is_file() and not _is_stale(f"layers-{implementation}", run.gpu.name):
            notes, rows = cudnn_table.kept_rows(path, rows, made)
        more = cudnn_table.PROJECTED if implementation == "cudnn" else ()
        cudnn_table.write(run.stage / f"layers-{implementation}.csv", notes, rows, more)
        counts.append(f"{implementation} {len(rows)}")
    done, number = len({tuple(row[:6]) for row in read_table(out)[2]}), len(list(LISTS["sweep"]()))
    return ("done" if counts else "failed"), f"{done} of {number} layers timed; rows: {', '.join(counts) or 'none'}"


def _is_stale(name: str, gpu: str) -> bool:
    return any(state.stale > 0 for state in tables.states() if state.table == f"{name} {gpu}")


# Corrections.


def corrections(run: Run, seconds: float) -> tuple[str, str]:
    """Time the prepared candidates, and fit what the models are off by to them and to what was recorded before."""
    until, notes = time.monotonic() + seconds, []
    left = sum(PRODUCTS.values())
    for group, number in PRODUCTS.items():
        notes.append(f"{group}: {_correct(run, group, (until - time.monotonic()) * number / left)}")
        left -= number
    is_timed = any(run.folder.glob("candidates-*.csv"))
    return ("done" if is_timed else "failed"), "; ".join(notes)


def _correct(run: Run, group: str, seconds: float) -> str:
    until = time.monotonic() + seconds
    if not run.wait_for(group, 0.4 * seconds):
        return "its candidates were not compiled in time"
    out = run.folder / f"candidates-{group}.csv"
    limit = 4.0 if run.is_smoke else max(4.0, 0.4 * (until - time.monotonic()))
    how = ("--gpu", run.gpu.name, "--out", str(out), "--limit", f"{limit:.0f}", "--compiled")
    run.program("benchmarks.gemm.candidates", "time", str(run.planned(group)), *how, seconds=limit + GRACE_S)
    number = len(_noted_rows(out)[1])
    if run.is_smoke or not number:
        return f"{number} candidates timed"
    (run.stage / out.name).write_bytes(out.read_bytes())
    fitted = run.stage / f"corrections-{group}.json"
    arguments = fit_arguments(group, run.gpu.name, out, fitted)
    is_fitted = run.program("benchmarks.gemm.correct", *arguments, seconds=until - time.monotonic())
    return f"{number} candidates timed, {'fitted' if is_fitted else 'not fitted in time: `--take` fits them'}"


def fit_arguments(group: str, gpu: str, candidates: Path, out: Path) -> list[str]:
    """Arguments of `benchmarks.gemm.correct`: new candidates, and those that were recorded on the GPU before."""
    earlier = sorted(tables.results_of(gpu).glob("gemm_candidates*.csv.gz"))
    same = [str(path) for path in earlier if _group_of(path) == group]
    return [str(candidates), *same, "--gpu", gpu, "--write", "--out", str(out)]


def _group_of(path: Path) -> str:
    _, names, rows = read_table(path)
    return GROUPS.get(rows[0][names.index("dtype")], "") if rows else ""


class Part(NamedTuple):
    """A part, and its share of the time."""

    run: Callable[[Run, float], tuple[str, str]]
    share: float


#: In the order of their value.
PARTS = {
    "library": Part(library, 0.22),
    "winners": Part(winners, 0.36),
    "layers": Part(layers, 0.29),
    "corrections": Part(corrections, 0.13),
}
