"""The client side of a candidate's worker: starts the process, sends requests, awaits replies, and ends it."""

from __future__ import annotations

import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from constrint.propose.cgroup import ControlGroup
from constrint.propose.limits import exceeded
from constrint.propose.sandbox import SCRATCH, Sandbox
from constrint.propose.wire import MAX_REPLY_BYTES, Failed, Reply, Request, WireMessage, decode_reply
from constrint.tune.keeper import MOST_DELAY, delays_of, descendants, longest_wait
from constrint.tune.messages import BrokenChannel, Channel, ClosedChannel, ending

Answer = TypeVar("Answer", bound=WireMessage)
#: Time limits of a worker's start, and of its end with all that it started, in seconds.
START_S, END_S = 90.0, 15.0
#: Time between two looks at what a process takes, in seconds.
WATCH_S = 0.1


class WorkerLost(Exception):
    """Raised where a worker is gone, hung, or answered nonsense; the text says which."""


class WorkerRefused(Exception):
    """Raised where the candidate raised an exception; the text is its type and its last line."""


class SandboxWorker:
    """A process that executes one candidate.

    Args:
        sandbox: The sandbox that starts it.
        is_interpreted: Whether Triton's interpreter runs kernels, on the CPU.
        uses_gpu: Whether it needs the machine's GPU.
        tasks: Files of the user's own tasks that it reads.

    Attributes:
        folder: Its directory on disk; empty if its directory is in memory.
    """

    def __init__(
        self, sandbox: Sandbox, *, is_interpreted: bool = False, uses_gpu: bool = False, tasks: Sequence[Path] = ()
    ) -> None:
        self.folder = "" if sandbox.kind != "none" else tempfile.mkdtemp(prefix="constrint-source-")
        place = self.folder or SCRATCH
        self._limits, self._excess, self._has_keeper = sandbox.totals, "", sandbox.kind == "none"
        self._process = subprocess.Popen(
            sandbox.command(uses_gpu=uses_gpu, tasks=tasks, scratch=place),
            env=sandbox.environment(is_interpreted=is_interpreted, uses_gpu=uses_gpu, scratch=place),
            cwd=self.folder or "/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        ends = (pipe.fileno() for pipe in pipes if pipe is not None)
        self._channel = Channel(*ends, longest=MAX_REPLY_BYTES)
        self._is_ready, self._closing = False, threading.Event()
        self._group: ControlGroup | None = None
        self._watcher = threading.Thread(target=self._watch, name="constrint-watch", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The process that was started: the worker, or bubblewrap around it."""
        return self._process.pid

    def __enter__(self) -> SandboxWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: Request, kind: type[Answer], patience_s: float) -> Answer:
        """The answer to a request.

        Args:
            request: The request.
            kind: The type of its answer.
            patience_s: The longest wait, in seconds. Time in which the process waited for a processor comes besides,
                within `MOST_DELAY` times this.

        Raises:
            WorkerRefused: When the candidate raised an exception.
            WorkerLost: When there is no answer in time, or it is none.
        """
        if self._closing.is_set():
            raise WorkerLost("the process ended earlier")
        if not self._is_ready:
            self._receive(None, START_S)
            # It has loaded nothing of a candidate yet, and what it starts from now on is in the group.
            self._group = ControlGroup.around((self.pid, *descendants(self.pid)), self._limits)
            self._is_ready = True
        reply = self._receive(request, patience_s)
        if isinstance(reply, Failed):
            raise WorkerRefused(reply.error)
        if not isinstance(reply, kind):
            raise self._lost(f"its answer is none: a {type(reply).__name__} in place of a {kind.__name__}")
        return reply

    def close(self) -> None:
        """End the process and all that it has started, and take away what it wrote."""
        self._closing.set()
        self._end()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._group is not None:
            self._group.end()
            self._group.remove()
        self._watcher.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _receive(self, message: WireMessage | None, patience_s: float) -> Reply:
        """Write a message and read a reply, whichever is possible, until the reply is whole."""
        started, before, channel = time.monotonic(), delays_of(self.pid), self._channel
        if message is not None:
            channel.send(message)
        try:
            # A worker that prints without end is not one that answers.
            while (rest_s := self._rest_s(started, before, patience_s)) > 0:
                channel.flush()
                if (body := channel.receive()) is not None:
                    return decode_reply(body)
                channel.listen()
                waits_to_write = [channel.requests] if channel.has_unsent else []
                select.select([channel.replies, channel.output], waits_to_write, [], rest_s)
        except ClosedChannel as error:
            raise self._lost(str(error), END_S) from None
        except BrokenChannel as error:
            raise self._lost(str(error)) from None
        raise self._lost(f"no answer within {patience_s:g} s")

    def _rest_s(self, started: float, before: dict[int, float], patience_s: float) -> float:
        """Seconds that are left of a wait; on a busy machine a process that waits for a processor does not hang."""
        rest_s = started + patience_s - time.monotonic()
        if rest_s > 0:
            return rest_s
        return rest_s + min(longest_wait(before, delays_of(self.pid)), MOST_DELAY * patience_s)

    def _end(self) -> None:
        """Ask for the end of the process, without waiting for it."""
        # Of a sandbox this is the process that all others in it die with; without one its keeper ends them.
        self._process.send_signal(signal.SIGTERM if self._has_keeper else signal.SIGKILL)
        self._process.send_signal(signal.SIGCONT)

    def _watch(self) -> None:
        """End the process when all that is in it takes more memory, or is more processes, than one candidate may."""
        while not self._closing.wait(WATCH_S):
            excess = exceeded(self._process.pid, self._limits)
            if excess:
                self._excess = excess
                self._end()
                return

    def _lost(self, what: str, patience_s: float = 0.0) -> WorkerLost:
        with suppress(subprocess.TimeoutExpired):
            what += f" ({ending(self._process.wait(patience_s))})"
        printed = self._channel.printed
        self.close()
        what = self._excess or what
        return WorkerLost(f"{what}; it printed: {printed}" if printed else what)
