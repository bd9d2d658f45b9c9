"""What a command is doing, on stderr: on a terminal alone, and only once it takes longer than a second."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

#: Seconds until anything is shown.
AFTER_S: Final = 1.0
#: Seconds between two changes of what is shown.
_EVERY_S: Final = 0.1


class Progress:
    """A line that says what is done, how far it is and for how long; it vanishes in the end.

    Attributes:
        is_shown: Whether there is anybody to see it; without, nothing is computed for it.
    """

    def __init__(self, doing: str) -> None:
        """Takes what the command does: `counting`."""
        self.is_shown = sys.stderr.isatty()
        self._doing = doing
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()
        self._next = self._started + AFTER_S

    def say(self, text: str = "", done: float = 0, total: float | None = None) -> None:
        """Says how far it is: a text, and where it is known, how much of the whole."""
        if not self.is_shown or (now := time.monotonic()) < self._next:
            return
        self._next = now + _EVERY_S
        if self._bar is None:
            self._bar = _bar()
            self._task = self._bar.add_task("")
            self._bar.tasks[0].start_time = self._started
            self._bar.start()
        words = " ".join(filter(None, (self._doing, text)))
        self._bar.update(self._task, description=words, completed=done, total=total)
        self._bar.refresh()

    def close(self) -> None:
        """Takes the line away, so that something else can be printed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=16), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    return Progress(
        *columns,
        console=console,
        transient=True,
        get_time=time.monotonic,
        # The searches say how far they are: no thread of its own.
        auto_refresh=False,
        # What is printed goes where it would go without.
        redirect_stdout=False,
        redirect_stderr=False,
    )
