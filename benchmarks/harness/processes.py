"""Processes that may hang or die: each works on numbered items, is watched, and restarts after a lost item."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.tune.pool import PATIENCE_S, compile_for, compile_trial
from constrint.tune.processes import PRELOAD
from constrint.tune.trial import Load, Outcome, Trial

#: Most restarts of one process; after that its share stays undone.
MAX_RESTARTS = 50


class Beat:
    """A process's heartbeat: its time, and the current item (-1: none)."""

    def __init__(self, folder: Path, name: str, number: int, *, is_new: bool = False) -> None:
        self._shared = np.memmap(folder / f"{name}{number}", np.float64, "w+" if is_new else "r+", shape=(2,))

    def at(self, item: int) -> None:
        """Begin an item."""
        self._shared[:] = time.time(), item

    @property
    def item(self) -> int:
        """The current item."""
        return int(self._shared[1])

    @property
    def age_s(self) -> float:
        """Seconds since the last heartbeat."""
        return time.time() - float(self._shared[0])


class Processes:
    """One process per share of the work.

    `work(beat, number, *arguments)` does the share `number`, skips finished items, and reports the current one by
    `beat`. It must be importable in another process.

    Args:
        folder: Folder of the heartbeats.
        work: Main function of each process.
        num: Number of processes.
        blame: Called with the item at which a process hung or died, and the outcome.
        arguments: Further arguments of `work`.
        patience_s: Time limit of an item, in seconds.
        start_s: Time limit of the first heartbeat, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        work: Callable[..., None],
        num: int,
        blame: Callable[[int, Outcome], None],
        *,
        arguments: tuple[Any, ...] = (),
        patience_s: float = 25.0,
        start_s: float = 90.0,
    ) -> None:
        self._folder, self._work, self._blame, self._arguments = folder, work, blame, arguments
        self._patience_s, self._start_s = patience_s, start_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._beats = [Beat(folder, work.__name__, number, is_new=True) for number in range(num)]
        self._restarts = [0] * num
        self._processes = [self._start(number) for number in range(num)]

    def poll(self) -> bool:
        """Whether all have finished; restarts processes that hung or died.

        Raises:
            ConstrintError: When a process ends before its first item.
        """
        through = [self._is_through(number) for number in range(len(self._processes))]
        return all(through)

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()

    def _start(self, number: int) -> Any:
        self._beats[number].at(-1)
        process = self._context.Process(
            target=_run, args=(self._work, self._folder, number, self._arguments), daemon=True
        )
        process.start()
        return process

    def _is_through(self, number: int) -> bool:
        process, beat = self._processes[number], self._beats[number]
        is_hung = process.is_alive() and beat.age_s > (self._patience_s if beat.item >= 0 else self._start_s)
        if process.is_alive() and not is_hung:
            return False
        if process.exitcode == 0 or self._restarts[number] >= MAX_RESTARTS:
            return True
        process.kill()
        process.join()
        if beat.item < 0:
            raise ConstrintError(
                f"process {number} of {self._work.__name__!r} {'hung' if is_hung else 'died'} before its first trial; "
                "its output above says why."
            )
        self._blame(beat.item, Outcome.TIMED_OUT if is_hung else Outcome.CRASHED)
        self._restarts[number] += 1
        self._processes[number] = self._start(number)
        return False


def _run(work: Callable[..., None], folder: Path, number: int, arguments: tuple[Any, ...]) -> None:
    work(Beat(folder, work.__name__, number), number, *arguments)


def start_compiling(
    load: Load,
    gpu: GpuModel,
    trials: Sequence[Trial],
    folder: Path,
) -> tuple[Processes, Any]:
    """Start processes that compile trials in order into Triton's cache; returns them and each trial's outcome.

    Args:
        load: Finds a kernel by its name.
        gpu: The GPU to compile for.
        trials: The trials.
        folder: Folder for the outcomes.
    """
    state = np.memmap(folder / "compiled", np.uint8, "w+", shape=(max(1, len(trials)),))
    workers = max(1, min(os.cpu_count() or 1, len(trials)))

    def blame(number: int, outcome: Outcome) -> None:
        if state[number] == Outcome.NOT_RUN:
            state[number] = outcome

    arguments = (workers, load, gpu, trials, folder)
    return Processes(folder, compile_share, workers, blame, arguments=arguments, patience_s=PATIENCE_S), state


def compile_share(
    beat: Beat, worker: int, num_workers: int, load: Load, gpu: GpuModel, trials: Sequence[Trial], folder: Path
) -> None:
    """Compile every `num_workers`-th trial; the main function of a process."""
    os.nice(10)
    state = np.memmap(folder / "compiled", np.uint8, "r+", shape=(max(1, len(trials)),))
    compile_for(gpu)
    for number in range(worker, len(trials), num_workers):
        if state[number] != Outcome.NOT_RUN:
            continue
        beat.at(number)
        try:
            compile_trial(load, gpu, trials[number], into_cache=True)
            state[number] = Outcome.OK
        except Exception:  # noqa: BLE001 - the outcome of the trial
            state[number] = Outcome.COMPILE_FAILED
