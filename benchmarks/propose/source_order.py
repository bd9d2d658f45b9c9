"""Whether the gates order source rightly: for each of the six tasks two correct candidates and cheats, again and again.

    python -m benchmarks.propose.source_order --gpu h200 --repeats 20

Inputs are drawn anew in every repeat. Where the GPU is at hand the candidates run on it, and those that pass are timed
in the first repeats; elsewhere Triton's interpreter runs them, on the CPU. A repeat is right where both correct
candidates come before all cheats, and each cheat was refused by the gate that it should be.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec

from constrint.hwmodels import GpuModel, load_gpu
from constrint.propose.records import SourceProposal
from constrint.propose.source import Settings, examine, fast_p, find_task, list_tasks, order
from constrint.propose.source.examination import Examination, Failing
from constrint.propose.source.process import Lost, Refused
from constrint.propose.source.sandbox import sandbox_for
from constrint.propose.source.score import Examined
from tests.propose.source.cheats import cheats_of


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


def is_right(entries: list[Entry], found: list[Examined]) -> bool:
    """Whether the correct ones come first and every candidate was refused where it should be."""
    num_correct = sum(not entry.gate for entry in entries)
    first = {entries[place].gate for place in order(found)[:num_correct]}
    return first == {""} and [one.refused_by for one in found] == [entry.gate for entry in entries]


def run(gpu: GpuModel, tasks: list[str], settings: Settings, jobs: int) -> dict[str, list[Examined]]:
    """One repeat of all tasks; what is timed has the machine for itself."""
    entries = [entry for task in tasks for entry in entries_of(task)]
    untimed = replace(settings, is_timed=False)
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda entry: examine(entry.proposal, gpu, untimed), entries))
    if settings.is_timed:
        with ThreadPoolExecutor(len(found)) as pool:
            found = list(pool.map(lambda entry, one: timed(entry, one, gpu, settings), entries, found))
    taken = iter(found)
    return {task: [next(taken) for _ in entries_of(task)] for task in tasks}


def timed(entry: Entry, found: Examined, gpu: GpuModel, settings: Settings) -> Examined:
    """The same with the last gate timed, where the ones before it were passed."""
    if not found.is_sound or found.is_interpreted:
        return found
    examination = Examination(entry.proposal, gpu, settings)
    try:
        passed = examination.fast()
    except (Failing, Refused, Lost) as error:
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


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.propose.source_order", description=__doc__.splitlines()[0]
    )
    arguments.add_argument("--gpu", default="h200")
    arguments.add_argument("--tasks", nargs="*", default=list(list_tasks()))
    arguments.add_argument("--repeats", type=int, default=20)
    arguments.add_argument("--timed", type=int, default=1, help="repeats in which correct candidates are timed")
    arguments.add_argument("--budget-s", type=float, default=1e9, help="begin no repeat after so many seconds")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--allow-unsandboxed", action="store_true")
    given = arguments.parse_args()
    gpu, started = load_gpu(given.gpu), time.monotonic()
    settings = Settings(allow_unsandboxed=given.allow_unsandboxed)
    print(f"sandbox: {sandbox_for(given.allow_unsandboxed).kind}")
    rights = dict.fromkeys(given.tasks, 0)
    done = 0
    for repeat in range(given.repeats):
        if time.monotonic() - started > given.budget_s:
            break
        is_timed = repeat < given.timed
        by_task = run(gpu, given.tasks, replace(settings, is_timed=is_timed), given.jobs)
        done += 1
        for task, found in by_task.items():
            entries = entries_of(task)
            good = is_right(entries, found)
            rights[task] += good
            for entry, one in zip(entries, found, strict=True):
                if repeat == 0 or not good:
                    score = "-" if one.score is None else f"{one.score:.2f}"
                    print(
                        f"{repeat:3} {task:14} {entry.name:32} {one.refused_by or 'passed':9} {score:>6} {one.message}"
                    )
        so_far = f"{sum(rights.values())} of {done * len(rights)} orders are right so far"
        print(f"repeat {repeat}: {so_far}, after {time.monotonic() - started:.0f} s", flush=True)
        if is_timed:
            best = [found[order(found)[0]] for found in by_task.values()]
            print("  ".join(f"fast_{p} = {fast_p(best, p):.2f}" for p in (0, 0.8, 1, 1.5, 2)))
    for task, right in rights.items():
        print(f"{task}: ordered rightly in {right} of {done} repeats")


if __name__ == "__main__":
    main()
