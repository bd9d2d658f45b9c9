"""Tune the workloads of the shipped tables on the GPU of this machine, products first.

    python -m benchmarks.remake.winners --gpu h100-sxm --store records.sqlite --budget 170

The winners are published where `constrint tune` publishes them (`CONSTRINT_CACHE`); what the store knows of the same
kernels and tools is not measured again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select import Workload
from constrint.select.winners import SHIPPED, TunedEntry, read_tuned, tuned_path
from constrint.tune.engine.interface import Setup
from constrint.tune.engine.local import LocalEngine, devices_of
from constrint.tune.engine.process import start_server
from constrint.tune.goals import goals_of
from constrint.tune.search.registry import make_search
from constrint.tune.session import Goal
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Settings
from constrint.tuning import tune

#: Workloads between two lines that say how far it is.
PROGRESS = 20


class Progress:
    """Says on stderr how far it is."""

    def __init__(self, number: int) -> None:
        self._number, self._done = number, 0

    def started(self, slot: int, session: Any) -> None:
        """Nothing: workloads are many."""

    def tried(self, slot: int, session: Any, record: Any, left_s: float | None) -> None:
        """Nothing: trials are more."""

    def finished(self, slot: int, tuned: Any) -> None:
        """Count a workload."""
        self._done += 1
        if self._done % PROGRESS == 0:
            print(f"{self._done} of {self._number} workloads", file=sys.stderr, flush=True)


def shipped_goals(gpu: GpuModel) -> list[Goal]:
    """The workloads of the GPU's own table and of those of other GPUs, that this GPU takes."""
    own = tuned_path(SHIPPED, gpu.name)
    files = [own, *(file for file in sorted(SHIPPED.glob("tuned-*.json")) if file != own)]
    entries = [entry for file in files for entry in read_tuned(file).entries]
    goals: list[Goal] = []
    for entry in sorted(entries, key=_place):
        workload = Workload(entry.operation, entry.sizes, entry.dtype, entry.options)
        with suppress(ConstrintError):
            goals += [goal for goal in goals_of(load_kernel(entry.operation), gpu, [workload]) if goal not in goals]
    return goals


def _place(entry: TunedEntry) -> tuple[bool, str]:
    """Products first, then LSTMs; forward passes before backward ones of the same cell."""
    return entry.operation != "gemm", {"lstm": "0", "lstm-backward": "1"}.get(entry.operation, entry.operation)


def few(goals: Iterable[Goal], number: int) -> list[Goal]:
    """The first goal of each operation, for a number of operations."""
    first: dict[str, Goal] = {}
    for goal in goals:
        first.setdefault(goal.workload.operation, goal)
    return list(first.values())[:number]


def main() -> None:
    """Tune."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--budget", type=float, default=170.0, help="seconds")
    parser.add_argument("--trials", type=int, default=12, help="configurations of a workload that are tried at most")
    parser.add_argument("--number", type=int, default=0, help="the first workload of N operations alone")
    args = parser.parse_args()
    start_server("cuda")
    import_module("torch")  # records name the version of CUDA only where torch is imported
    gpu, devices = devices_of((0,), args.gpu)
    goals = shipped_goals(gpu)
    goals = few(goals, args.number) if args.number else goals
    print(f"{len(goals)} workloads", file=sys.stderr, flush=True)
    settings = Settings(gpu, partial(make_search, "model"), args.trials, args.budget, resume=True)
    with RecordStore.open(args.store) as store:
        engine = LocalEngine(Setup(load_spec, gpu), devices)
        try:
            tune(goals, settings, engine, store, Progress(len(goals)))
        finally:
            engine.close()


if __name__ == "__main__":
    main()
