"""The life of a worker: it limits itself, loads torch, and answers requests until the pipe is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from constrint.propose import limits
from constrint.propose.wire import HEAD, MAX_TEXT, Acknowledged, Failed, Request, decode_request, encode


def main(options: Mapping[str, Any]) -> None:
    """Serve one user's process.

    Args:
        options: `limits` by name, `drops_root` and `uses_gpu`.
    """
    requests, replies = _take_pipes()
    if options["drops_root"]:
        limits.drop_root()
    limits.end_with_parent()
    limits.apply(options["limits"])
    from constrint.propose.worker.serve import Server

    server = Server(options["uses_gpu"])
    _send(replies, Acknowledged())
    while (body := _read(requests)) is not None:
        _send(replies, _answer(server, body))


def try_out(options: Mapping[str, Any]) -> None:
    """End well where a worker could start: limits can be set, and its user can read what it imports.

    Raises:
        OSError, ImportError: Where it could not.
    """
    if options["drops_root"]:
        limits.drop_root()
    limits.apply(options["limits"])
    for name in ("torch", "triton", "constrint.propose.worker.serve"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(f"{name} is not installed, or its files cannot be read in the sandbox")
        Path(spec.origin).read_bytes()


def _answer(server: Any, body: bytes) -> Any:
    try:
        request: Request = decode_request(body)
        return server.answer(request)
    except BaseException as error:  # noqa: BLE001 - whatever a candidate raises is an answer
        return Failed(error=describe(error))


def describe(error: BaseException) -> str:
    """The type of an exception and the last line of its text, or of what it came from."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).splitlines() if line.strip(" ^")]
    return f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"[:MAX_TEXT]


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes, moved away from the standard streams, so that what a candidate prints is no message."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - it stays open
    return requests, replies


def _read(pipe: BinaryIO) -> bytes | None:
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    return pipe.read(HEAD.unpack(head)[0])


def _send(pipe: BinaryIO, reply: Any) -> None:
    pipe.write(encode(reply))
    pipe.flush()
