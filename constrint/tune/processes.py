"""Processes that may hang or die: each has a share of numbered items, is watched, and goes on after the one it lost."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from constrint.errors import ConstrintError
from constrint.tune.trial import Outcome

#: Imported once, before processes are forked.
PRELOAD = [
    "torch",
    "triton",
    "constrint.tune.pool",
    "constrint.tune.engine.device",
    "constrint.tune.search.maker",
    "constrint.tune.search.model",
    "constrint.kernels.registry",
]
#: Imported with these where kernels are to be compiled for a GPU and run on it.
WARM = "constrint.tune.engine.warm"
PR_SET_PDEATHSIG = 1
#: Restarts of one process; after that its share stays undone.
MAX_RESTARTS = 50


class Beat:
    """A process's sign of life: when it last gave one, and the item it is at (-1: none)."""

    def __init__(self, folder: Path, name: str, number: int, *, is_new: bool = False) -> None:
        self._shared = np.memmap(folder / f"{name}{number}", np.float64, "w+" if is_new else "r+", shape=(2,))

    def at(self, item: int) -> None:
        """Say that work on an item begins."""
        self._shared[:] = time.time(), item

    @property
    def item(self) -> int:
        """The item that the process is at."""
        return int(self._shared[1])

    @property
    def age_s(self) -> float:
        """Seconds since the last sign."""
        return time.time() - float(self._shared[0])


class Processes:
    """One process for each share of the work.

    `work(beat, number, *arguments)` does the share `number`, skips what is done, and says by `beat` where it is. It has
    to be importable in another process.

    Args:
        folder: Where the signs of life lie.
        work: What each process does.
        num: How many processes.
        blame: Told the item at which a process hung or died, and which of both.
        arguments: Handed on to `work`.
        patience_s: How long an item may take.
        start_s: How long the first sign may take.
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
        """Whether all are through; starts those again that hung or died.

        Raises:
            ConstrintError: When a process ends before it is at any item: there is nothing to leave out.
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


def end_with_parent() -> None:
    """End this process when the one that asked for it is gone, even while a kernel hangs."""
    if sys.platform == "linux":
        # The fork server, which is this process's parent, ends with its own one.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        # The fork server may have ended before this process asked to end with it.
        asking = multiprocessing.parent_process()
        if asking is not None:
            asking.join()
            os._exit(1)

    threading.Thread(target=watch, name="constrint-parent", daemon=True).start()
