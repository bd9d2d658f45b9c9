"""How far a report is: a line on stderr, on a terminal and only once it takes longer than a moment."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

#: Seconds before anything is said.
MOMENT_S = 1.0


class Progress:
    """A line that is written over and is gone at the end."""

    def __init__(self) -> None:
        self._started, self._is_shown = time.monotonic(), False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_shown:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        """Say what is being done."""
        if sys.stderr.isatty() and time.monotonic() - self._started > MOMENT_S:
            self._is_shown = True
            self._write(text)

    @staticmethod
    def _write(text: str) -> None:
        width = max(20, shutil.get_terminal_size().columns - 1)
        sys.stderr.write("\r" + text[:width].ljust(width))
        sys.stderr.flush()
