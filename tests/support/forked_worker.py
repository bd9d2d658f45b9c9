"""Workers of candidates without a sandbox, forked from a process that has loaded torch and Triton once.

They take the messages of `SandboxWorker` and answer by the same `Server`. An open one lets a candidate have all of
Python and PyTorch's own tensors, to see what the watch and the gates make of source that nobody read.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from constrint.propose.process import Answer, WorkerLost, WorkerRefused
from constrint.propose.wire import Failed, Request, decode_reply
from constrint.tune.messages import HEAD, BrokenChannel, packed, read_message, write_message


class ForkedWorker:
    """In place of a `SandboxWorker`, with the same arguments."""

    is_open = False

    def __init__(self, *_: Any, is_interpreted: bool = False, uses_gpu: bool = False, **__: Any) -> None:
        self._socket, its_end = socket.socketpair()
        status, its_status = os.pipe()
        kind = bytes([self.is_open, uses_gpu])
        socket.send_fds(_loaded(is_interpreted), [kind], [its_end.fileno(), its_status])
        its_end.close()
        os.close(its_status)
        self._status = os.fdopen(status, "r")
        self._pid, self._is_closed = int(self._status.readline()), False

    def __enter__(self) -> ForkedWorker:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def ask(self, request: Request, kind: type[Answer], patience_s: float) -> Answer:
        """As `SandboxWorker.ask`."""
        if self._is_closed:
            raise WorkerLost("the process ended earlier")
        self._socket.settimeout(patience_s)
        try:
            self._socket.sendall(packed(request))
            (length,) = HEAD.unpack(self._receive(HEAD.size))
            reply = decode_reply(self._receive(length))
        except TimeoutError:
            raise self._lost(f"no answer within {patience_s:g} s") from None
        except (OSError, EOFError, BrokenChannel) as error:
            raise self._lost(f"{type(error).__name__}: {error}") from None
        if isinstance(reply, Failed):
            raise WorkerRefused(reply.error)
        assert isinstance(reply, kind), reply
        return reply

    def close(self) -> None:
        """End the process."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._socket.close()
            self._status.close()

    def _receive(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            chunk = self._socket.recv(min(count - len(got), 1 << 20))
            if not chunk:
                raise EOFError(self._how())
            got += chunk
        return bytes(got)

    def _how(self) -> str:
        status = self._status.readline()
        if not status:
            return "nobody saw how"
        code = os.waitstatus_to_exitcode(int(status))
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _lost(self, what: str) -> WorkerLost:
        self.close()
        return WorkerLost(what)


class OpenWorker(ForkedWorker):
    """A worker whose candidate has all of Python."""

    is_open = True


@cache
def _loaded(is_interpreted: bool) -> socket.socket:
    """The connection to the process that forks; it ends when the connection is closed."""
    here, there = socket.socketpair()
    environment = {
        **os.environ,
        "TRITON_INTERPRET": str(int(is_interpreted)),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_worker", str(there.fileno())],
        env=environment,
        pass_fds=[there.fileno()],
    )
    there.close()
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


def main(connection: socket.socket) -> None:
    """Load, and fork a worker for each request."""
    import torch
    import triton.language.extra.libdevice  # noqa: F401

    import constrint.propose.worker.compiling
    import constrint.propose.worker.serve  # noqa: F401

    torch.set_num_threads(1)
    _load_compilers()
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        kind, ends, _, _ = socket.recv_fds(connection, 2, 2)
        if not kind:
            return
        if os.fork() == 0:
            connection.close()
            _watch(kind, *ends)
        for end in ends:
            os.close(end)


def _load_compilers() -> None:
    """Load once what every worker would load anew for its first kernel: Triton's compiler, its digest, and NVRTC."""
    if os.environ["TRITON_INTERPRET"] == "1":
        return
    import triton.compiler.code_generator  # noqa: F401
    from triton.runtime.cache import triton_key

    triton_key()
    with suppress(ImportError, RuntimeError):
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()


def _watch(kind: bytes, messages: int, status: int) -> None:
    """Fork the worker, tell its number, and at its end how it ended."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        # What a candidate prints, or the system of it when it crashes, is not the judge's output.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with suppress(BaseException):
            _serve(bool(kind[0]), bool(kind[1]), socket.socket(fileno=messages))
        os._exit(0)
    os.close(messages)
    os.write(status, f"{pid}\n".encode())
    with suppress(BrokenPipeError):
        os.write(status, f"{os.waitpid(pid, 0)[1]}\n".encode())
    os._exit(0)


def _serve(is_open: bool, uses_gpu: bool, connection: socket.socket) -> None:
    from constrint.propose.worker import main as worker
    from constrint.propose.worker.serve import Server

    class OpenServer(Server):
        def _globals(self) -> dict[str, Any]:
            return {}

        def _held(self, tensor: Any) -> Any:
            return tensor

    server = (OpenServer if is_open else Server)(uses_gpu)
    while (body := read_message(connection.fileno())) is not None:
        write_message(connection.fileno(), worker._answer(server, body))
    os._exit(0)  # as `worker.main`: nothing is freed that a candidate may have written over


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
