"""Layers in processes of their own: they are prepared side by side, and timed one after the other.

Preparing is compiling and solving, which takes a core and little of the GPU; while one process is timed, the others of
its batch wait. What crashes or hangs costs its own layer alone.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.rnn.entries import Entry, Job
from benchmarks.rnn.timing import measure_all, prepare

#: Seconds for preparing a batch of layers where nothing else is said, and for timing one.
PREPARE_S, MEASURE_S = 240.0, 120.0

#: What a process does: says that it is ready, waits for its turn, says what it found.
Work = Callable[[Connection, Job], None]


def work(pipe: Connection, job: Job) -> None:
    """Prepare a layer, and time it when told to."""
    # NX-AI's package names what it builds by some of a layer's sizes: two processes must not build into one folder.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(tempfile.gettempdir()) / f"nxai-{job.sizes}")
    failed = prepare(job)
    pipe.send("ready")
    pipe.recv()
    pipe.send(measure_all(job, failed))


def in_turn(
    jobs: Sequence[Job], until: float, patience_s: float = PREPARE_S, work: Work = work
) -> Iterator[tuple[Job, list[Entry] | str]]:
    """Yield the times of each layer, or the reason why it was not timed; ends early at a time of `time.monotonic()`.

    Args:
        jobs: Layers that are prepared at the same time.
        until: After this nothing begins, and what has not answered is left out.
        patience_s: How long the batch may take to prepare.
        work: The function of each process.
    """
    context = multiprocessing.get_context("spawn")
    processes: list[Any] = []
    pipes: list[Connection] = []
    try:
        for job in jobs:
            here, there = context.Pipe()
            processes.append(context.Process(target=work, args=(there, job), daemon=True))
            processes[-1].start()
            there.close()
            pipes.append(here)
        ready = _ready(pipes, min(until, time.monotonic() + patience_s))
        for job, pipe, process in zip(jobs, pipes, processes, strict=True):
            if time.monotonic() > until:
                return
            answer = _measured(pipe, until) if pipe in ready else None
            if answer is None and time.monotonic() > until:
                return
            yield job, answer or _failure(pipe in ready, process, patience_s)
            process.kill()
    finally:
        for process in processes:
            process.kill()
            process.join()


def _ready(pipes: Sequence[Connection], until: float) -> set[Connection]:
    """Those whose process has prepared its layer in time."""
    ready: set[Connection] = set()
    waiting = set(pipes)
    while waiting and (left := until - time.monotonic()) > 0:
        for pipe in wait(list(waiting), left):
            assert isinstance(pipe, Connection)
            waiting.discard(pipe)
            with suppress(EOFError, ConnectionError):
                pipe.recv()
                ready.add(pipe)
    return ready


def _measured(pipe: Connection, until: float) -> list[Entry] | None:
    """Return what a process measured; None where it does not answer in time."""
    with suppress(EOFError, ConnectionError):
        pipe.send("your turn")
        if pipe.poll(max(0.0, min(until - time.monotonic(), MEASURE_S))):
            found: list[Entry] = pipe.recv()
            return found
    return None


def _failure(was_ready: bool, process: Any, patience_s: float) -> str:
    process.join(1.0)  # one that crashes closes its pipe before it has ended
    if process.exitcode is not None:
        return f"its process ended with {process.exitcode}"
    return f"not timed in {MEASURE_S:.0f} s" if was_ready else f"not prepared in {patience_s:.0f} s"
