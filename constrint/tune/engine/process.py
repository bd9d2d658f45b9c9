"""A process that does one thing at a time for this one, is given up when it hangs, and dies with this one.

It may die of what it does, print without end, or fill memory: its parent hears what became of it.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from constrint.tune.processes import PRELOAD, WARM, end_with_parent
from constrint.tune.trial import Outcome

#: What is read of what a process has printed, and the largest file that it may write, that of its output included.
TAIL_BYTES, MAX_FILE_BYTES = 2000, 256 << 20
_READY, _NOTE, _REPLY, _RAISED = "ready", "note", "reply", "raised"

#: Makes, in the process, what answers requests; it may note where it is.
Serve = Callable[..., Callable[[Any, Callable[[int], None]], Any]]


class Lost(Exception):
    """Raised where a process is gone: killed for hanging, or dead."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


class Worker:
    """One process at a time, started again when it is needed; requests are answered in their order.

    Args:
        make: Called in the process with `arguments`, importable there; gives the function that answers requests.
        arguments: Handed on to it.
        start_s: How long it may take until it is ready.
        max_memory_bytes: Memory that it may take.
    """

    def __init__(self, make: Serve, arguments: tuple[Any, ...] = (), *, start_s: float, max_memory_bytes: int) -> None:
        self._make, self._arguments, self._start_s, self._max_memory = make, arguments, start_s, max_memory_bytes
        handle, name = tempfile.mkstemp(prefix="constrint-worker-")
        os.close(handle)
        self._log = Path(name)
        self._process: Any = None
        self._pipe: Connection | None = None
        self._until = 0.0
        self._is_ready = False
        #: Requests without an answer, each with its patience; the process is at the first one.
        self._open: deque[tuple[Any, float]] = deque()
        #: Where the process has noted that it is, in the request at hand.
        self.noted = -1

    @property
    def num_open(self) -> int:
        """Requests that were not answered yet."""
        return len(self._open)

    @property
    def wake(self) -> Connection | None:
        """What becomes readable when there is news."""
        return self._pipe

    def start(self) -> None:
        """Start the process where there is none, so that it is ready when it is asked."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, str(self._log), self._make, self._arguments)
        self._process = context.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._is_ready = False
        self._until = time.monotonic() + self._start_s

    def ask(self, request: Any, patience_s: float) -> None:
        """Send a request; `poll` gives the answer. The process is started where there is none."""
        self.start()
        self._open.append((request, patience_s))
        if self._is_ready:
            self._send(request)
            if len(self._open) == 1:
                self._begin()

    def poll(self) -> tuple[Any] | None:
        """The answer to the first request, in a tuple; None while there is none.

        Raises:
            Lost: When the process hung or died over it; another one is started for the next.
            StartError: When the process did not start; the request is still open.
            Exception: What the function raised.
        """
        if not self._open:
            return None
        self.start()
        assert self._pipe is not None
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                kind, content = self._pipe.recv()
                if kind == _READY:
                    self._is_ready = True
                    for request, _ in self._open:
                        self._send(request)
                    self._begin()
                elif kind == _NOTE:
                    self.noted = int(content)
                else:
                    self._open.popleft()
                    self._begin()
                    if kind == _RAISED:
                        raise content
                    return (content,)
        self._look_after()
        return None

    def kill(self) -> None:
        """Let the process end; does not wait for it."""
        if self._process is not None:
            self._process.kill()

    def abandon(self) -> None:
        """End the process at once; open requests are asked of another one."""
        self.kill()
        if self._process is not None:
            self._process.join()
            assert self._pipe is not None
            self._pipe.close()
        self._process = self._pipe = None

    def forget(self) -> None:
        """End the process at once, and answer nothing of what is open."""
        self._open.clear()
        self.abandon()

    def close(self) -> None:
        """End the process, and leave nothing behind."""
        self.forget()
        self._log.unlink(missing_ok=True)

    def _begin(self) -> None:
        """The process is at the next request now."""
        self.noted = -1
        if self._open:
            self._until = time.monotonic() + self._open[0][1]

    def _send(self, request: Any) -> None:
        assert self._pipe is not None
        # A process that has just died is found by the next look.
        with suppress(OSError):
            self._pipe.send(request)

    def _look_after(self) -> None:
        if not self._process.is_alive():
            # What it sent before it died has been read.
            self._lose(Outcome.CRASHED, _how(self._process.exitcode))
        if time.monotonic() > self._until:
            what = "started within" if not self._is_ready else "answered within"
            self._lose(Outcome.TIMED_OUT, f"not {what} its time")
        if _resident_bytes(self._process.pid) > self._max_memory:
            self._lose(Outcome.CRASHED, f"took more than {self._max_memory / 2**30:.1f} GiB of the host's memory")

    def _lose(self, outcome: Outcome, message: str) -> None:
        printed = self._printed()
        text = f"{message}; it printed: {printed}" if printed else message
        self.abandon()
        if not self._is_ready:
            raise StartError(text)
        self._open.popleft()
        raise Lost(outcome, text)

    def _printed(self) -> str:
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode(errors="replace").strip("\0 \n").splitlines()
            return " | ".join(line.strip() for line in lines[-4:])[-400:]
        return ""


def start_server(device: str) -> None:
    """Begin to load what all processes need that are to work for such a device, while this one does something else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD if device == "cpu" else [*PRELOAD, WARM])
    forkserver.ensure_running()


class StartError(Exception):
    """Raised where a process dies before it can be asked anything."""


def _run(pipe: Connection, log: str, make: Serve, arguments: tuple[Any, ...]) -> None:
    """Answers requests; the whole life of the process."""
    end_with_parent()
    # What candidates print is kept apart from what the program prints; endless output is cut off.
    output = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    _limit_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answer = make(*arguments)
    pipe.send((_READY, None))
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            break
        os.ftruncate(output, 0)
        try:
            told = (_REPLY, answer(request, lambda number: pipe.send((_NOTE, number))))
        except Exception as error:  # noqa: BLE001 - the parent hears of it
            told = (_RAISED, RuntimeError(f"{type(error).__name__}: {error}"))
        pipe.send(told)
    os._exit(0)


def _limit_files() -> None:
    """Let the process write no larger file than is sensible, whatever it prints."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [MAX_FILE_BYTES, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), hard))


def _how(code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with exit code {code}"


def _resident_bytes(pid: int | None) -> int:
    """Memory of a process that is in use; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def machine_memory_bytes() -> int:
    """Memory of this machine; less where the user has bounded what a process may keep (`ulimit -m`)."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_RSS)
    return whole if limit == resource.RLIM_INFINITY else min(whole, limit)
