"""One run of a command that may take long: it ends at its limits and at a signal, and says what is known by then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

import typer

from constrint.cli.running.options import bytes_of, seconds_of
from constrint.cli.running.progress import Progress
from constrint.cli.running.signals import Signals
from constrint.errors import LimitReachedError
from constrint.solve import Limits, SearchStats

_Item = TypeVar("_Item")


class Run:
    """A context in which signals stop the search softly and progress is shown.

    Attributes:
        started: When it began, by `time.perf_counter`.
        progress: What is shown meanwhile.
    """

    def __init__(self, doing: str, max_seconds: str | None = None, max_memory: str | None = None) -> None:
        """States the limits.

        Args:
            doing: What the command does, for the progress: `counting`.
            max_seconds: What `--max-seconds` says.
            max_memory: What `--max-memory` says.
        """
        self.max_seconds, self._max_bytes = seconds_of(max_seconds), bytes_of(max_memory)
        self.started = time.perf_counter()
        self.progress, self._signals = Progress(doing), Signals()

    @property
    def signal(self) -> int:
        """The signal that asked it to stop; 0 while none came."""
        return self._signals.number

    def __enter__(self) -> Run:
        self._signals.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._signals.end()
        self.progress.close()
        if isinstance(error, LimitReachedError):
            if self.signal:
                self.leave()
            raise LimitReachedError(f"nothing is known yet: {self.why(error)}") from error

    def limits(self, share: float = 1.0) -> Limits:
        """What a search in this run may take: this share of the time from the start of the run on."""
        return Limits(
            max_seconds=None if self.max_seconds is None else share * self.max_seconds,
            max_bytes=self._max_bytes,
            cancel=self.is_asked_to_stop,
            progress=self._searched if self.progress.is_shown else None,
            started=self.started,
        )

    def last_limits(self, seconds: float) -> Limits:
        """What a last short search may take that says what can be known, after the run was asked to stop."""
        return Limits(max_seconds=seconds, max_bytes=self._max_bytes)

    def is_asked_to_stop(self) -> bool:
        """Whether a signal came; who asks is expected to stop."""
        return self._signals.noticed()

    def reason(self) -> str:
        """Why the run has to end now; empty while it may go on."""
        if self.is_asked_to_stop():
            return "it was interrupted"
        if self.max_seconds is not None and time.perf_counter() - self.started > self.max_seconds:
            return f"the time is over, --max-seconds {self.max_seconds:g}; raise it or narrow the problem."
        return ""

    def why(self, limit: LimitReachedError | str) -> str:
        """Why something was not found out, in terms of the command's options."""
        return self.reason() or str(limit).replace("max_seconds=", "--max-seconds ").replace(
            "max_bytes=", "--max-memory "
        )

    def while_it_may(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items, up to the end of the run's time."""
        for item in items:
            if self.reason():
                return
            yield item

    def leave(self, *, is_complete: bool = False) -> None:
        """Ends the command with the exit code for what happened, after it said what it knows.

        Args:
            is_complete: Whether a limit left the answer whole; a signal ends the command in any case.
        """
        if self.signal:
            raise typer.Exit(128 + self.signal)
        if not is_complete:
            raise typer.Exit(1)

    def _searched(self, stats: SearchStats) -> None:
        self.progress.say(f"{stats.cells:,} combinations tested" if stats.cells else "")
