"""Processes forked from one that has loaded torch and Triton once: workers of candidates without a sandbox, and tasks.

Workers take the messages of `SandboxWorker` and answer by the same `Server`. An open one lets a candidate have all of
Python and PyTorch's own tensors, to see what the watch and the gates make of source that nobody read.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from constrint.propose.process import Answer, WorkerLost, WorkerRefused
from constrint.propose.wire import Failed, Request, decode_reply
from constrint.tune.messages import HEAD, BrokenChannel, packed, read_message, write_message

ROOT = Path(__file__).resolve().parents[2]
#: What is forked: a worker, one whose candidate has all of Python, or a task.
WORKER, OPEN_WORKER, TASK = range(3)
#: The length of what follows.
LENGTH = struct.Struct("<Q")


class ForkedWorker:
    """In place of a `SandboxWorker`, with the same arguments."""

    is_open = False

    def __init__(self, *_: Any, is_interpreted: bool = False, uses_gpu: bool = False, **__: Any) -> None:
        kind = OPEN_WORKER if self.is_open else WORKER
        self._socket, self._status, self._pid = _forked(kind, is_interpreted=is_interpreted, uses_gpu=uses_gpu)
        self._is_closed = False

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
        return _how(self._status)

    def _lost(self, what: str) -> WorkerLost:
        self.close()
        return WorkerLost(what)


class OpenWorker(ForkedWorker):
    """A worker whose candidate has all of Python."""

    is_open = True


def run_task(function: str, argument: Any, patience_s: float, *, is_interpreted: bool) -> Any:
    """What `module:function` returns for an argument, both as JSON keeps them, in a process of its own.

    It has this process's environment and working folder.

    Args:
        patience_s: After so many seconds it is killed.
        is_interpreted: Whether Triton interprets kernels there.

    Raises:
        AssertionError: When it fails; with its traceback, or with how it ended.
    """
    here, status, pid = _forked(TASK, is_interpreted=is_interpreted)
    asked = {"function": function, "argument": argument, "environment": dict(os.environ), "folder": os.getcwd()}
    with here, status:
        here.settimeout(patience_s)
        try:
            _send(here, asked)
            reply = _received(here)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"{function}: no answer within {patience_s:g} s") from None
        except (OSError, EOFError):
            raise AssertionError(f"{function}: {_how(status)}") from None
    assert "error" not in reply, reply["error"]
    return reply["value"]


def _send(to: socket.socket, message: Any) -> None:
    body = json.dumps(message).encode()
    to.sendall(LENGTH.pack(len(body)) + body)


def _received(sender: socket.socket) -> Any:
    """One message; each wait for a part of it ends by the time that the socket has."""
    with sender.makefile("rb") as stream:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            raise EOFError
        (length,) = LENGTH.unpack(head)
        body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return json.loads(body)


def _forked(kind: int, *, is_interpreted: bool, uses_gpu: bool = False) -> tuple[socket.socket, Any, int]:
    """A process: the connection to it, where its end will be told, and its number."""
    here, its_end = socket.socketpair()
    status, its_status = os.pipe()
    socket.send_fds(_loaded(is_interpreted), [bytes([kind, uses_gpu])], [its_end.fileno(), its_status])
    its_end.close()
    os.close(its_status)
    told = os.fdopen(status, "r")
    return here, told, int(told.readline())


def _how(status: Any) -> str:
    """How a process ended."""
    line = status.readline()
    if not line:
        return "nobody saw how"
    code = os.waitstatus_to_exitcode(int(line))
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@cache
def _loaded(is_interpreted: bool) -> socket.socket:
    """The connection to the process that forks; it ends when the connection is closed.

    What a candidate keeps in its home is neither the user's nor there in the next run.
    """
    here, there = socket.socketpair()
    home = tempfile.TemporaryDirectory(prefix="constrint-home-")
    environment = {
        **os.environ,
        "HOME": home.name,
        "TRITON_INTERPRET": str(int(is_interpreted)),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_worker", str(there.fileno())],
        env=environment,
        cwd=ROOT,
        pass_fds=[there.fileno()],
    )
    there.close()
    atexit.register(home.cleanup)
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
            connection = socket.socket(fileno=messages)
            if kind[0] == TASK:
                _do(connection)
            else:
                _serve(kind[0] == OPEN_WORKER, bool(kind[1]), connection)
        os._exit(0)
    os.close(messages)
    os.write(status, f"{pid}\n".encode())
    with suppress(BrokenPipeError):
        os.write(status, f"{os.waitpid(pid, 0)[1]}\n".encode())
    os._exit(0)


def _do(connection: socket.socket) -> None:
    """Take a task, and answer with its value, or with the traceback of its error."""
    asked = _received(connection)
    try:
        os.environ.update(asked["environment"] | {"TRITON_INTERPRET": os.environ["TRITON_INTERPRET"]})
        os.chdir(asked["folder"])
        module, _, name = asked["function"].partition(":")
        reply = {"value": getattr(import_module(module), name)(asked["argument"])}
    except BaseException:
        reply = {"error": traceback.format_exc()}
    _send(connection, reply)


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
