"""The life of a worker: it limits itself, loads torch, and answers requests until the pipe is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from constrint.propose import limits
from constrint.propose.seccomp import refuse_calls
from constrint.propose.wire import Acknowledged, Failed, Request, decode_request
from constrint.tune.keeper import die_with_parent, keep
from constrint.tune.messages import describe, read_message, write_message


def main(options: Mapping[str, Any]) -> None:
    """Serve one user's process.

    Args:
        options: `limits` by name, `drops_root`, `is_kept` (nothing else ends what it starts) and `uses_gpu`.
    """
    if options["is_kept"]:
        keep(lambda: _serve(options))
    _serve(options)


def _serve(options: Mapping[str, Any]) -> None:
    requests, replies = _take_pipes()
    if options["drops_root"]:
        limits.drop_root()
    die_with_parent()
    limits.apply(options["limits"])
    refuse_calls(uses_gpu=options["uses_gpu"])
    from constrint.propose.worker.serve import Server

    server = Server(options["uses_gpu"])
    write_message(replies, Acknowledged())
    while (body := read_message(requests)) is not None:
        write_message(replies, _answer(server, body))
    # A candidate may have written over what this process would free at its end: it ends without freeing.
    os._exit(0)


def try_out(options: Mapping[str, Any]) -> None:
    """End well where a worker could start: limits can be set, and its user can read what it imports.

    Raises:
        OSError, ImportError: Where it could not.
    """
    if options["drops_root"]:
        limits.drop_root()
    limits.apply(options["limits"])
    if not refuse_calls(uses_gpu=options["uses_gpu"]) and options["has_to_refuse"]:
        raise OSError("without seccomp a candidate could make namespaces of its own")
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


def _take_pipes() -> tuple[int, int]:
    """The two pipes, moved away from the standard streams, so that what a candidate prints is no message."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - it stays open
    return requests, replies
