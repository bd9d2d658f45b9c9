"""A real pseudo-terminal for commands that run in this process: what it shows of one call."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from unittest import mock

from constrint.cli.app import main


class Screen:
    """What a terminal showed, once it is closed."""

    text = ""


@contextmanager
def terminal(columns: int) -> Iterator[Screen]:
    """Make stdout a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shown: list[bytes] = []
    reader = Thread(target=_read, args=(ours, shown.append))
    reader.start()
    screen = Screen()
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    try:
        with (
            os.fdopen(theirs, "w", encoding="utf-8") as stdout,
            mock.patch.dict(os.environ, known | {"TERM": "xterm-256color"}, clear=True),
            mock.patch.object(sys, "stdout", stdout),
        ):
            yield screen
    finally:
        reader.join()
        os.close(ours)
        screen.text = re.sub(r"\x1b\[[0-9;]*m", "", b"".join(shown).decode()).replace("\r\n", "\n")


def _read(end: int, hear: Callable[[bytes], None]) -> None:
    while True:
        try:
            piece = os.read(end, 65536)
        except OSError:  # the end, as Linux reports it
            return
        if not piece:
            return
        hear(piece)


def shown_by(*arguments: object, columns: int = 80) -> tuple[int, str]:
    """Exit code and output of a command on a terminal."""
    code: object = 0
    with mock.patch.object(sys, "argv", ["constrint", *map(str, arguments)]), terminal(columns) as screen:
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return int(str(code or 0)), screen.text
