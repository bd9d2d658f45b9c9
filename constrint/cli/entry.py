"""Where the `constrint` command begins: it imports the rest only once it can deal with an early Ctrl-C.

It also sees to the standard streams: a full disk or a closed stdout is one line on stderr, a reader that went away (as
`head` does) is no error, and what cannot be written to stderr is lost in silence.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

# As type checkers know it; `typing` takes longer to import than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Final, TextIO

    from _typeshed import ReadableBuffer

#: Bytes that are written at once where stdout is no terminal.
_BUFFER_BYTES: Final = 1 << 16


class _Output(io.FileIO):
    """Writes to a file descriptor until that fails once; what comes after it is dropped."""

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
    """Stderr: messages that nobody can read do not end the command."""

    def _on_failure(self, error: OSError, num_bytes: int) -> int:
        return num_bytes


def main() -> None:
    """Runs the command line as a process of its own."""
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
    """The exit code, once all output is written."""
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
    """Ends the process at once: nothing was begun yet, or all is done."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_standard_descriptors() -> None:
    """Opens what the caller closed of stdin, stdout and stderr, so that no file of ours takes its number.

    Nothing can be written to a closed stdout, which is told as what it is; messages to a closed stderr vanish.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, and those below are open by now.
            os.open(os.devnull, mode)


def _stream(number: int, kind: type[_Output], before: TextIO | None) -> TextIO:
    """A text stream on a standard descriptor that fails as it should; like the one that Python made, if it made one."""
    is_lined = kind is _Messages or os.isatty(number) or bool(getattr(before, "write_through", False))
    return io.TextIOWrapper(
        io.BufferedWriter(kind(number, "w", closefd=False), _BUFFER_BYTES),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace" if before is None else before.errors,
        line_buffering=is_lined,
    )
