"""The client side of a candidate's worker: starts the process, sends requests, awaits replies, and ends it."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from constrint.propose.sandbox import SCRATCH, Sandbox
from constrint.propose.wire import (
    HEAD,
    MAX_REPLY_BYTES,
    MAX_TEXT,
    Failed,
    Reply,
    Request,
    WireMessage,
    decode_reply,
    encode,
)

Answer = TypeVar("Answer", bound=WireMessage)
#: Time limit of a worker's start, in seconds, and bytes of one read.
START_S, CHUNK_BYTES = 90.0, 1 << 20


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
        self._output = bytearray()
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
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        for end in (self._in, self._out, self._err):
            os.set_blocking(end, False)
        self._is_ready = self._is_closed = False

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
            patience_s: The longest wait, in seconds.

        Raises:
            WorkerRefused: When the candidate raised an exception.
            WorkerLost: When there is no answer in time, or it is none.
        """
        if self._is_closed:
            raise WorkerLost("the process ended earlier")
        if not self._is_ready:
            self._receive(b"", START_S)
            self._is_ready = True
        reply = self._receive(encode(request), patience_s)
        if isinstance(reply, Failed):
            raise WorkerRefused(reply.error)
        if not isinstance(reply, kind):
            raise self._lost(f"its answer is none: a {type(reply).__name__} in place of a {kind.__name__}")
        return reply

    def close(self) -> None:
        """End the process and all that it has started, and take away what it wrote."""
        self._is_closed = True
        # Of a sandbox this is the process that all others in it die with.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _receive(self, message: bytes, patience_s: float) -> Reply:
        """Write a message and read a reply, whichever is possible, until the reply is whole."""
        until = time.monotonic() + patience_s
        left, got, length = memoryview(message), bytearray(), -1
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            selector.register(self._err, selectors.EVENT_READ)
            if left:
                selector.register(self._in, selectors.EVENT_WRITE)
            while length < 0 or len(got) < length:
                ready = selector.select(max(0.0, until - time.monotonic()))
                # A worker that prints without end is not one that answers.
                if not ready or time.monotonic() > until:
                    raise self._lost(f"no answer within {patience_s:g} s")
                for key, _ in ready:
                    if key.fd == self._in:
                        left = self._write(left)
                        if not left:
                            selector.unregister(self._in)
                    elif key.fd == self._err:
                        self._hear(selector)
                    else:
                        got += self._read()
                if length < 0 and len(got) >= HEAD.size:
                    length = HEAD.size + HEAD.unpack_from(got)[0]
                    if length > MAX_REPLY_BYTES:
                        raise self._lost(f"its answer would be {length} bytes long")
        try:
            return decode_reply(bytes(got[HEAD.size :]))
        except msgspec.MsgspecError as error:
            raise self._lost(f"its answer is none: {error}") from None

    def _write(self, left: memoryview) -> memoryview:
        try:
            return left[os.write(self._in, left[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return left
        except OSError:
            raise self._lost("the process ended") from None

    def _read(self) -> bytes:
        try:
            chunk = os.read(self._out, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        if not chunk:
            raise self._lost("the process ended")
        return chunk

    def _hear(self, selector: selectors.BaseSelector) -> None:
        """Keep the end of what the process prints, so that it neither waits nor fills a disk."""
        with suppress(BlockingIOError):
            printed = os.read(self._err, CHUNK_BYTES)
            if not printed:
                selector.unregister(self._err)
            self._output = (self._output + printed)[-MAX_TEXT:]

    def _lost(self, what: str) -> WorkerLost:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(0.2 if what.startswith("the process") else 0.0)
            what += f" ({_how(code)})"
        with suppress(OSError):
            self._output = (self._output + os.read(self._err, CHUNK_BYTES))[-MAX_TEXT:]
        lines = self._output.decode(errors="replace").strip().splitlines()[-2:]
        self.close()
        return WorkerLost(f"{what}; it printed: {' | '.join(lines)}" if lines else what)


def _how(code: int) -> str:
    # bubblewrap gives the signal of the process in it as an exit code above 128.
    number = -code if code < 0 else code - 128
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"
