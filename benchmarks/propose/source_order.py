"""Whether the gates order source rightly: for each of the six tasks two correct candidates and cheats, again and again.

    python -m benchmarks.propose.source_order --gpu h200 --repeats 20 --out orders.csv
    python -m benchmarks.propose.source_order --gpu h200 --device 1 --first 10 --repeats 10 --out others.csv
    python -m benchmarks.propose.source_order --gpu h200 --costs

Inputs are drawn anew in every repeat, and every candidate of every repeat has a process of its own. Where the GPU is at
hand the candidates run on it, and those that pass are timed in the first repeats, while nothing else runs; elsewhere
Triton's interpreter runs them, on the CPU. A repeat of a task is right where both correct candidates come before all
cheats, and each cheat was refused by the gate that it should be.

With `--out` each task's repeat is written when it is complete, and the same command goes on after what is written.
`--costs` says what the steps of one examination take.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.harness.table import Table, described, read_whole
from constrint.hwmodels import GpuModel, load_gpu
from constrint.propose import GateSettings, examine, fast_p, find_task, list_tasks, order
from constrint.propose.examination import Examination, Failing
from constrint.propose.process import WorkerLost, WorkerRefused
from constrint.propose.sandbox import sandbox_for
from constrint.propose.score import Examined
from constrint.tune.search.llm.records import SourceProposal
from tests.propose.cheats import cheats_of

COLUMNS = ("repeat", "task", "is_right", "candidate", "gate", "refused_by", "speed_up", "seconds", "message")
#: A repeat of a task.
Group = tuple[int, str]


@dataclass(frozen=True)
class Entry:
    """One candidate of a task, and the gate that should refuse it; none for a correct one."""

    name: str
    proposal: SourceProposal
    gate: str


def entries_of(task: str) -> list[Entry]:
    """The candidates of a task, the correct ones first."""
    texts = [(path.stem, path.read_text(), "") for path in find_task(task).examples]
    texts += [(cheat.name, cheat.source, cheat.gate) for cheat in cheats_of(task)]
    return [Entry(name, SourceProposal(task=task, language="triton", source=text), gate) for name, text, gate in texts]


@dataclass(frozen=True)
class Found:
    """What came of a candidate, and how long its examination took."""

    examined: Examined
    seconds: float


def is_right(entries: list[Entry], found: list[Examined]) -> bool:
    """Whether the correct ones come first and every candidate was refused where it should be."""
    num_correct = sum(not entry.gate for entry in entries)
    first = {entries[place].gate for place in order(found)[:num_correct]}
    return first == {""} and [one.refused_by for one in found] == [entry.gate for entry in entries]


def examined(entry: Entry, gpu: GpuModel, settings: GateSettings, until: float) -> Found | None:
    """Examine a candidate without timing it; None where the time is up before it begins."""
    started = time.monotonic()
    if started > until:
        return None
    found = examine(entry.proposal, gpu, replace(settings, is_timed=False))
    return Found(found, time.monotonic() - started)


def examine_groups(
    groups: Sequence[Group], gpu: GpuModel, settings: GateSettings, jobs: int, until: float
) -> Iterator[tuple[Group, list[Found]]]:
    """Examine the candidates of all groups side by side; gives the groups that were complete in time, in order.

    No group waits for another one to end, so that all jobs have work until the last candidates.
    """
    with ThreadPoolExecutor(jobs) as pool:
        futures: list[tuple[Group, list[Future[Found | None]]]] = [
            (group, [pool.submit(examined, entry, gpu, settings, until) for entry in entries_of(group[1])])
            for group in groups
        ]
        for group, several in futures:
            found = [one for one in (future.result() for future in several) if one is not None]
            if len(found) == len(several):
                yield group, found


def time_all(entries: Sequence[Entry], found: Sequence[Found], gpu: GpuModel, settings: GateSettings) -> list[Found]:
    """The same with those that passed timed, one at a time; their processes start side by side."""
    with ThreadPoolExecutor(len(found)) as pool:
        again = pool.map(lambda entry, one: timed(entry, one.examined, gpu, settings), entries, found)
        return [replace(one, examined=other) for one, other in zip(found, again, strict=True)]


def timed(entry: Entry, found: Examined, gpu: GpuModel, settings: GateSettings) -> Examined:
    """The same with the last gate timed, where the ones before it were passed."""
    if not found.is_sound or found.is_interpreted:
        return found
    examination = Examination(entry.proposal, gpu, settings)
    try:
        passed = examination.fast()
    except (Failing, WorkerRefused, WorkerLost) as error:
        last = msgspec.structs.replace(found.results[-1], passed=False, message=str(error), is_modelled=False)
        return replace(found, results=(*found.results[:-1], last))
    finally:
        examination.close()
    last = msgspec.structs.replace(
        found.results[-1], message=passed.message, seconds=passed.seconds, is_modelled=passed.is_modelled
    )
    assert examination.timed is not None
    speed_up = examination.timed.baseline_s / examination.timed.seconds
    return replace(found, results=(*found.results[:-1], last), speed_up=speed_up)


def costs(entry: Entry, gpu: GpuModel, settings: GateSettings) -> Iterator[tuple[str, float]]:
    """The steps of one examination with the seconds that they take."""
    examination = Examination(entry.proposal, gpu, replace(settings, is_timed=False))
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("legal", examination.legal),
        ("start of the process", examination._running),
        ("compiles", examination.compiles),
        ("right", examination.right),
        ("honest", examination.honest),
    )
    try:
        for name, step in steps:
            started = time.monotonic()
            step()
            yield name, time.monotonic() - started
    finally:
        examination.close()


def add(table: Table, group: Group, found: Sequence[Found], *, is_first: bool) -> bool:
    """Write a group, and print what is new or wrong; whether it is right."""
    (repeat, task), entries = group, entries_of(group[1])
    good = is_right(entries, [one.examined for one in found])
    for entry, one in zip(entries, found, strict=True):
        result = one.examined
        table.add(
            repeat=repeat,
            task=task,
            is_right=int(good),
            candidate=entry.name,
            gate=entry.gate,
            refused_by=result.refused_by,
            speed_up=result.speed_up,
            seconds=one.seconds,
            message=result.message,
        )
        if is_first or not good:
            score = "-" if result.score is None else f"{result.score:.2f}"
            print(f"{repeat:3} {task:14} {entry.name:32} {result.refused_by or 'passed':9} {score:>6} {result.message}")
    return good


def compare(given: argparse.Namespace, gpu: GpuModel, settings: GateSettings) -> dict[str, list[bool]]:
    """Run all repeats that are not written yet; of each task whether its repeats are right."""
    started = time.monotonic()
    until, note = started + given.budget_s, described()
    _, earlier = read_whole(given.out) if given.out and given.out.exists() else (note, [])
    repeats = range(given.first, given.first + given.repeats)
    rights: dict[str, list[bool]] = {task: [] for task in given.tasks}
    written: dict[Group, list[dict[str, str]]] = {}
    for row in earlier:
        written.setdefault((int(row["repeat"]), row["task"]), []).append(row)
    written = {group: rows for group, rows in written.items() if len(rows) == len(entries_of(group[1]))}
    for (repeat, task), rows in written.items():
        if repeat in repeats and task in rights:
            rights[task].append(rows[0]["is_right"] == "1")
    groups = [(repeat, task) for repeat in repeats for task in given.tasks if (repeat, task) not in written]
    timed_ones = [group for group in groups if settings.is_timed and group[0] < given.timed]
    with Table(given.out, COLUMNS, note, (row for rows in written.values() for row in rows)) as table:

        def tell(group: Group, found: Sequence[Found]) -> None:
            rights[group[1]].append(add(table, group, found, is_first=group[0] == given.first))
            done = [good for several in rights.values() for good in several]
            seconds = sum(one.seconds for one in found) / len(found)
            print(
                f"repeat {group[0]} {group[1]}: {sum(done)} of {len(done)} orders are right so far, {seconds:.1f} s "
                f"for a candidate, after {time.monotonic() - started:.0f} s",
                flush=True,
            )

        # Only the candidates that are timed have to have the machine for themselves.
        first = list(examine_groups(timed_ones, gpu, settings, given.jobs, until))
        entries = [entry for group, _ in first for entry in entries_of(group[1])]
        if entries and time.monotonic() < until:
            again = iter(time_all(entries, [one for _, found in first for one in found], gpu, settings))
            first = [(group, [next(again) for _ in found]) for group, found in first]
            for group, found in first:
                tell(group, found)
            best = [[one.examined for one in found] for _, found in first]
            chosen = [found[order(found)[0]] for found in best]
            print("  ".join(f"fast_{p} = {fast_p(chosen, p):.2f}" for p in (0, 0.8, 1, 1.5, 2)))
        others = [group for group in groups if group not in timed_ones]
        for group, found in examine_groups(others, gpu, settings, given.jobs, until):
            tell(group, found)
    return rights


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.propose.source_order",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--gpu", default="h200")
    arguments.add_argument("--device", help="index of the GPU; sets CUDA_VISIBLE_DEVICES, which workers are given")
    arguments.add_argument("--tasks", nargs="*", default=list(list_tasks()))
    arguments.add_argument("--repeats", type=int, default=20)
    arguments.add_argument("--first", type=int, default=0, help="number of the first repeat")
    arguments.add_argument("--timed", type=int, default=1, help="repeats of a lower number time correct candidates")
    arguments.add_argument("--budget-s", type=float, default=1e9, help="begin no candidate after so many seconds")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--out", type=Path, help="a CSV file; what is written there is not done again")
    arguments.add_argument("--costs", action="store_true", help="only say what the steps of an examination take")
    arguments.add_argument("--allow-unsandboxed", action="store_true")
    given = arguments.parse_args()
    if given.device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = given.device
    gpu, settings = load_gpu(given.gpu), GateSettings(allow_unsandboxed=given.allow_unsandboxed)
    sandbox = sandbox_for(given.allow_unsandboxed)
    print(f"sandbox: {sandbox.kind} {sandbox.note}".rstrip(), flush=True)
    if given.costs:
        for task in given.tasks:
            shown = (f"{name} {seconds:.2f} s" for name, seconds in costs(entries_of(task)[0], gpu, settings))
            print(f"{task}: {', '.join(shown)}", flush=True)
        return
    for task, right in compare(given, gpu, settings).items():
        print(f"{task}: ordered rightly in {sum(right)} of {len(right)} repeats")


if __name__ == "__main__":
    main()
