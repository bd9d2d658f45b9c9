"""A worker process: it answers one request at a time, is replaced when it hangs or dies, and ends with its parent.

Its code may crash it, print without end, or fill memory: the parent gets the fault as an exception.
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

#: Bytes read from the end of a process's output, and the largest file that it may write, its output included.
TAIL_BYTES, MAX_FILE_BYTES = 2000, 256 << 20
_READY, _NOTE, _REPLY, _RAISED = "ready", "note", "reply", "raised"

#: Makes, in the process, the function that answers requests; that may note its place in a request.
Serve = Callable[..., Callable[[Any, Callable[[int], None]], Any]]


class Lost(Exception):
    """Raised when a process was killed for hanging, or died."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


class Worker:
    """One process at a time, restarted on demand; requests are answered in order.

    Args:
        make: Called in the process with `arguments`, importable there; returns the function that answers requests.
        arguments: Arguments of `make`.
        start_s: Time limit of the start, in seconds.
        max_memory_bytes: Limit of its memory.
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
        #: Unanswered requests with their time limits; the process works on the first.
        self._open: deque[tuple[Any, float]] = deque()
        #: Place in the current request that the process noted last.
        self.noted = -1

    @property
    def num_open(self) -> int:
        """Number of unanswered requests."""
        return len(self._open)

    @property
    def wake(self) -> Connection | None:
        """The pipe, readable when there is news."""
        return self._pipe

    def start(self) -> None:
        """Start the process ahead of the first request."""
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
        """Send a request; `poll` returns the answer. Starts the process where there is none."""
        self.start()
        self._open.append((request, patience_s))
        if self._is_ready:
            self._send(request)
            if len(self._open) == 1:
                self._begin()

    def poll(self) -> tuple[Any] | None:
        """The answer to the first request, in a tuple; None while there is none.

        Raises:
            Lost: When the process hung or died over the request; the next one gets a new process.
            StartError: When the process did not start; the request stays open.
            Exception: The exception of the function.
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
        """Kill the process without waiting for it."""
        if self._process is not None:
            self._process.kill()

    def abandon(self) -> None:
        """End the process at once; open requests go to a new one."""
        self.kill()
        if self._process is not None:
            self._process.join()
            assert self._pipe is not None
            self._pipe.close()
        self._process = self._pipe = None

    def forget(self) -> None:
        """End the process at once, and drop all open requests."""
        self._open.clear()
        self.abandon()

    def close(self) -> None:
        """End the process, and remove its log."""
        self.forget()
        self._log.unlink(missing_ok=True)

    def _begin(self) -> None:
        """Start the clock of the next request."""
        self.noted = -1
        if self._open:
            self._until = time.monotonic() + self._open[0][1]

    def _send(self, request: Any) -> None:
        assert self._pipe is not None
        # A process that just died is noticed by the next poll.
        with suppress(OSError):
            self._pipe.send(request)

    def _look_after(self) -> None:
        if not self._process.is_alive():
            # Everything it sent before has been read.
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
    """Begin to load, in the fork server, the modules that all processes for such a device need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD if device == "cpu" else [*PRELOAD, WARM])
    forkserver.ensure_running()


class StartError(Exception):
    """Raised when a process dies before it is ready."""


def _run(pipe: Connection, log: str, make: Serve, arguments: tuple[Any, ...]) -> None:
    """Answer requests until the parent is gone: the main function of the process."""
    end_with_parent()
    # Output of candidates is kept apart from the program's; endless output is cut.
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
            reply = (_REPLY, answer(request, lambda number: pipe.send((_NOTE, number))))
        except Exception as error:  # noqa: BLE001 - the parent hears of it
            reply = (_RAISED, RuntimeError(f"{type(error).__name__}: {error}"))
        pipe.send(reply)
    os._exit(0)


def _limit_files() -> None:
    """Limit the size of files that the process may write, its output included."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [MAX_FILE_BYTES, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), hard))


def _how(code: int | None) -> str:
    """The end of a process as text."""
    if code is not None and code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with exit code {code}"


def _resident_bytes(pid: int | None) -> int:
    """Resident memory of a process; 0 where the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def machine_memory_bytes() -> int:
    """Memory of this machine, or the user's limit of a process (`ulimit -m`) where that is less."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_RSS)
    return whole if limit == resource.RLIM_INFINITY else min(whole, limit)
