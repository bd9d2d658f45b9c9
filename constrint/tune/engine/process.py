"""A worker process: it answers one request at a time, is replaced when it hangs or dies, and ends with its parent.

Its code may crash it, print without end, fill memory, fork, or write to its pipes: the parent gets the fault as an
exception. A reply states the number of its request, so that none is taken for the answer to another one.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import msgspec

from constrint.tune.keeper import MOST_DELAY, delays_of, is_larger, keep, longest_wait
from constrint.tune.messages import (
    BrokenChannel,
    Channel,
    ClosedChannel,
    describe,
    ending,
    read_message,
    unpacked,
    write_message,
)
from constrint.tune.processes import PRELOAD, WARM, end_with_parent
from constrint.tune.trial import Outcome

#: The largest file that a process may write, and the longest message.
MAX_FILE_BYTES, MAX_MESSAGE_BYTES = 256 << 20, 1 << 20
#: Time that a process has to end with all that it started, in seconds.
END_S = 5.0

Asked = TypeVar("Asked")
Told = TypeVar("Told")
#: Makes, in the process, the function that answers requests.
Serve = Callable[..., Callable[[Asked], Told]]


class Lost(Exception):
    """Raised when a process was killed for hanging, or died."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


class StartError(Exception):
    """Raised when a process dies before it is ready."""


class WorkerReply(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message of a process.

    Args:
        number: Number of the request; -1 for "ready".
        answer: The answer, packed; empty where there is none.
        error: The exception that was raised in place of an answer.
    """

    number: int
    answer: bytes = b""
    error: str = ""


class Worker(Generic[Asked, Told]):
    """One process at a time, restarted on demand; requests are answered in order.

    Args:
        make: Called in the process with `arguments`, importable there; returns the function that answers requests.
        arguments: Arguments of `make`.
        asked, told: Types of a request and of its answer.
        start_s: Time limit of the start, in seconds.
        max_memory_bytes: Limit of the memory of the process and of all that it starts.

    On a busy machine a process waits for a processor; a request has that time besides its limit, within `MOST_DELAY`.

    Attributes:
        was_fresh: Whether the last request was the first one of its process.
        ready_at: When the process was last heard to have started, by `time.monotonic`.
    """

    def __init__(
        self,
        make: Serve[Asked, Told],
        arguments: tuple[Any, ...],
        asked: type[Asked],
        told: type[Told],
        *,
        start_s: float,
        max_memory_bytes: int,
    ) -> None:
        self._make, self._arguments, self._asked = make, arguments, asked
        self._start_s, self._max_memory = start_s, max_memory_bytes
        self._answers = msgspec.msgpack.Decoder(told)
        self._process: Any = None
        self._pipes: list[Connection] = []
        self._channel: Channel | None = None
        self._until = 0.0
        #: The waits of its threads for a processor at the start of the request.
        self._delays: dict[int, float] = {}
        self._is_ready = False
        #: Unanswered requests with their time limits; the process works on the first, whose number is `_number`.
        self._open: deque[tuple[Asked, float]] = deque()
        self._number = self._num_answered = 0
        self._is_closed = False
        self.was_fresh = True
        self.ready_at = 0.0

    @property
    def num_open(self) -> int:
        """Number of unanswered requests."""
        return len(self._open)

    @property
    def wake(self) -> int | None:
        """The pipe of the replies, readable when there is news, or the end of a process that closed its pipe."""
        if self._channel is None or self._is_closed:
            return None if self._process is None else int(self._process.sentinel)
        return self._channel.replies

    def start(self) -> None:
        """Start the process ahead of the first request."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        theirs_in, requests = context.Pipe(duplex=False)
        (replies, theirs_out), (output, theirs_print) = (context.Pipe(duplex=False) for _ in range(2))
        theirs = (theirs_in, theirs_out, theirs_print)
        arguments = (theirs, self._make, self._arguments, self._asked)
        self._process = context.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        for pipe in theirs:
            pipe.close()
        self._pipes = [requests, replies, output]
        self._channel = Channel(*(pipe.fileno() for pipe in self._pipes), longest=MAX_MESSAGE_BYTES)
        self._is_ready, self._is_closed, self._num_answered = False, False, 0
        self._until = time.monotonic() + self._start_s

    def ask(self, request: Asked, patience_s: float) -> None:
        """Send a request; `poll` returns the answer. Starts the process where there is none."""
        self.start()
        self._open.append((request, patience_s))
        if self._is_ready:
            self._send(len(self._open) - 1)
            if len(self._open) == 1:
                self._begin()

    def poll(self) -> Told | None:
        """The answer to the first request; None while there is none.

        Raises:
            Lost: When the process hung, died or wrote nonsense over the request; the next one gets a new process.
            StartError: When the process did not start; the request stays open.
            RuntimeError: When the function raised an exception.
        """
        if not self._open:
            return None
        self.start()
        try:
            if (reply := self._reply()) is not None:
                return self._answer(reply)
        except ClosedChannel:
            # How the process ended is known a moment later.
            self._until = self._until if self._is_closed else min(self._until, time.monotonic() + END_S)
            self._is_closed = True
        except BrokenChannel as error:
            self._lose(Outcome.CRASHED, str(error))
        self._look_after()
        return None

    def retry(self) -> None:
        """Ask the request that was answered last again, before all others, of a new process."""
        self._open.appendleft(self._last)
        self.abandon()

    def abandon(self) -> None:
        """End the process and all that it started; open requests go to a new one."""
        self.kill()
        if self._process is not None:
            self._process.join(END_S)
            if self._process.is_alive():
                self._process.kill()
        for pipe in self._pipes:
            pipe.close()
        self._process, self._channel, self._pipes = None, None, []

    def kill(self) -> None:
        """Ask the process to end, without waiting for it; its keeper, which no candidate runs in, does so at once."""
        if self._process is not None:
            self._process.terminate()
            with suppress(OSError):
                os.kill(self._process.pid, signal.SIGCONT)

    def forget(self) -> None:
        """End the process at once, and drop all open requests."""
        self._open.clear()
        self.abandon()

    def _begin(self) -> None:
        """Start the clock of the next request."""
        if self._open:
            self._until = time.monotonic() + self._open[0][1]
            self._delays = delays_of(self._process.pid)

    def _reply(self) -> WorkerReply | None:
        """The reply to the first request; None while there is none."""
        assert self._channel is not None
        self._channel.flush()
        body = self._channel.receive()
        if body is None:
            return None
        reply = unpacked(body, _REPLIES)
        if self._is_ready and reply.number == self._number:
            return reply
        if self._is_ready:
            raise BrokenChannel("its answer is none: it is to another request")
        self._is_ready, self.ready_at = True, time.monotonic()
        for place in range(len(self._open)):
            self._send(place)
        self._begin()
        return None

    def _send(self, place: int) -> None:
        assert self._channel is not None
        self._channel.send((self._number + place, self._open[place][0]))

    def _answer(self, reply: WorkerReply) -> Told:
        """The answer of a reply; a wrong one is the fault of the request."""
        answer = unpacked(reply.answer, self._answers) if reply.answer else None
        self._pop()
        self._num_answered += 1
        self._begin()
        if answer is None:
            raise RuntimeError(reply.error)
        return answer

    def _pop(self) -> None:
        self._last, self.was_fresh = self._open.popleft(), self._num_answered == 0
        self._number += 1

    def _look_after(self) -> None:
        assert self._channel is not None
        self._channel.listen()
        if not self._process.is_alive():
            self._lose(Outcome.CRASHED, ending(self._process.exitcode))
        if self._is_closed and time.monotonic() > self._until:
            self._lose(Outcome.CRASHED, "it closed its pipes")
        if is_larger(self._process.pid, self._max_memory):
            self._lose(Outcome.CRASHED, f"took more than {self._max_memory / 2**30:.1f} GiB of the host's memory")
        late = time.monotonic() - self._until
        if late > 0 and late > self._delay():
            what = "started within" if not self._is_ready else "answered within"
            self._lose(Outcome.TIMED_OUT, f"not {what} its time")

    def _delay(self) -> float:
        """How long a thread has waited for a processor since the request began, within `MOST_DELAY` of its limit."""
        if not self._is_ready:
            return 0.0
        waited_s = longest_wait(self._delays, delays_of(self._process.pid))
        return min(waited_s, MOST_DELAY * self._open[0][1])

    def _lose(self, outcome: Outcome, message: str) -> None:
        """End the process over the first request."""
        assert self._channel is not None
        printed = self._channel.printed
        text = f"{message}; it printed: {printed}" if printed else message
        self.abandon()
        if not self._is_ready:
            raise StartError(text)
        self._pop()
        raise Lost(outcome, text)


_REPLIES = msgspec.msgpack.Decoder(WorkerReply)


def start_server(device: str) -> None:
    """Begin to load, in the fork server, the modules that all processes for such a device need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD if device == "cpu" else [*PRELOAD, WARM])
    forkserver.ensure_running()


def _run(pipes: tuple[Connection, ...], make: Serve[Any, Any], arguments: tuple[Any, ...], asked: type) -> None:
    """The main function of the process."""
    keep(lambda: _serve(pipes, make, arguments, asked))


def _serve(pipes: tuple[Connection, ...], make: Serve[Any, Any], arguments: tuple[Any, ...], asked: type) -> None:
    """Answer requests until the parent is gone."""
    end_with_parent()
    requests, replies, output = (pipe.fileno() for pipe in pipes)
    _close_others({requests, replies, output})
    # What candidates print is kept apart from what the program prints.
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    _limit_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    read = msgspec.msgpack.Decoder(tuple[int, asked])  # type: ignore[valid-type]
    answer = make(*arguments)
    write_message(replies, WorkerReply(-1))
    while (body := read_message(requests)) is not None:
        number, request = read.decode(body)
        try:
            reply = WorkerReply(number, msgspec.msgpack.encode(answer(request)))
        except BaseException as error:  # noqa: BLE001 - the parent hears of it
            reply = WorkerReply(number, error=describe(error))
        write_message(replies, reply)


def _close_others(kept: set[int]) -> None:
    """Turn what this process inherited, such as the pipe whose end is the end of the fork server, into nothing."""
    parent = multiprocessing.parent_process()
    nothing = os.open(os.devnull, os.O_RDWR)
    own = kept | {0, 1, 2, nothing} | ({parent.sentinel} if parent is not None else set())
    for name in os.listdir("/dev/fd"):
        if int(name) not in own:
            # One that is closed would be another file's number later.
            with suppress(OSError):
                os.fstat(int(name))
                os.dup2(nothing, int(name))


def _limit_files() -> None:
    """Limit the size of files that the process may write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [MAX_FILE_BYTES, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), hard))


def machine_memory_bytes() -> int:
    """Memory of this machine, or the user's limit of a process (`ulimit -m`) where that is less."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_RSS)
    return whole if limit == resource.RLIM_INFINITY else min(whole, limit)
