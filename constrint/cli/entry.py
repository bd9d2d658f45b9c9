"""Process entry of the `constrint` command: handles Ctrl-C before anything else is imported, and guards the streams.

A full disk or a closed stdout is one line on stderr; a reader that closes the pipe (`head`) is no error; messages that
cannot be written to stderr are dropped.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

# Type checkers know this name; importing `typing` would take longer than this whole file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Final, TextIO

    from _typeshed import ReadableBuffer

#: Buffer size of stdout if it is no terminal.
_BUFFER_BYTES: Final = 1 << 16


class _Output(io.FileIO):
    """A file descriptor; after the first failure all further output is dropped."""

    failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self.failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.failed = True
            return self._on_failure(error, memoryview(data).nbytes)

    def _on_failure(self, error: OSError, _: int) -> int:
        from constrint.errors import OutputError

        if error.errno == errno.EPIPE:
            raise error
        raise OutputError(f"cannot write the output: {error.strerror}") from error


class _Messages(_Output):
    """Stderr; a failure does not end the command."""

    def _on_failure(self, error: OSError, num_bytes: int) -> int:
        return num_bytes


def main() -> None:
    """Run the command line in this process, and exit."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)
    if os.name == "posix":
        _keep_standard_descriptors()
        sys.stdout, sys.stderr = _stream(1, _Output, sys.stdout), _stream(2, _Messages, sys.stderr)
        sys.stdin = open(0, closefd=False) if sys.stdin is None else sys.stdin  # noqa: SIM115 - it stays open
    from constrint.cli.app import main as run

    code: object = 0
    try:
        run(before=_hear_interrupts if is_ours else None)
    except SystemExit as ended:
        code = ended.code
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, _leave)
    sys.exit(_flushed(code))


def _flushed(code: Any) -> Any:
    """Flush stdout; the exit code, or 1 if the output cannot be written."""
    from constrint.errors import OutputError

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OutputError as error:
        print(f"error: {error}", file=sys.stderr)
        return code or 1
    return code


def _leave(number: int, _: FrameType | None) -> None:
    """End the process at once; nothing has begun yet, or everything is finished."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_standard_descriptors() -> None:
    """Open those of stdin, stdout and stderr that the caller closed, so that no other file takes their numbers.

    Writing to a closed stdout is reported as an error; messages to a closed stderr vanish.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The system assigns the lowest free number, and the lower ones are open by now.
            os.open(os.devnull, mode)


def _stream(number: int, kind: type[_Output], before: TextIO | None) -> TextIO:
    """A text stream on a standard descriptor with the failure handling of `kind` and the encoding of Python's own."""
    is_lined = kind is _Messages or os.isatty(number) or bool(getattr(before, "write_through", False))
    return io.TextIOWrapper(
        io.BufferedWriter(kind(number, "w", closefd=False), _BUFFER_BYTES),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=is_lined,
    )
