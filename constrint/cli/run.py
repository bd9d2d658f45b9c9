"""A long run of a command: it ends at its limits or at a signal, and prints what is known by then.

At the first Ctrl-C or SIGTERM the search is asked to stop, so that it can return what it knows. If it does not react
within `PATIENCE_S`, and at a second signal, the command is interrupted. If a library computes on, the process ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar

import typer

from constrint.answers.terminal import printable
from constrint.cli.options import bytes_of, seconds_of
from constrint.errors import LimitReachedError
from constrint.solve import Limits, SearchStats, Solution

_Item = TypeVar("_Item")


class Run:
    """A context in which signals ask the search to stop, and progress is shown.

    Attributes:
        started: Start of the run, by `time.perf_counter`.
        progress: The line of progress.
    """

    def __init__(self, doing: str, max_seconds: str | None = None, max_memory: str | None = None) -> None:
        """Read the limits.

        Args:
            doing: The command's activity, for the progress: `counting`.
            max_seconds: The value of `--max-seconds`.
            max_memory: The value of `--max-memory`.
        """
        self.max_seconds, self._max_bytes = seconds_of(max_seconds), bytes_of(max_memory)
        self.started = time.perf_counter()
        self.progress, self._signals = Progress(doing), Signals()

    @property
    def signal(self) -> int:
        """The signal that asked the run to stop; 0 before any came."""
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
        """The limits of a search in this run: a share of its time, counted from its start."""
        return Limits(
            max_seconds=None if self.max_seconds is None else share * self.max_seconds,
            max_bytes=self._max_bytes,
            cancel=self.is_asked_to_stop,
            progress=self._searched if self.progress.is_shown else None,
            started=self.started,
        )

    def better(self, answer: Solution) -> None:
        """Prints a line on stderr, on a terminal, for a better solution of a search that takes a while."""
        after = time.perf_counter() - self.started
        if self.progress.is_shown and after > AFTER_S:
            self.progress.close()
            found = [f"{answer.penalty} of broken soft rules"] * (answer.penalty is not None)
            found += [
                f"{objective} = {value}"
                for objective, value in zip(answer.problem.objectives, answer.values, strict=False)
            ]
            print(printable(f"{after:.1f} s: {', '.join(found)}"), file=sys.stderr)

    def last_limits(self, seconds: float) -> Limits:
        """The limits of a last short search after the run was asked to stop."""
        return Limits(max_seconds=seconds, max_bytes=self._max_bytes)

    def is_asked_to_stop(self) -> bool:
        """Whether a signal came; a caller that gets True has to stop."""
        return self._signals.noticed()

    def reason(self) -> str:
        """The reason why the run has to end now; empty while it may go on."""
        if self.is_asked_to_stop():
            return "it was interrupted"
        if self.max_seconds is not None and time.perf_counter() - self.started > self.max_seconds:
            return f"the time is over, --max-seconds {self.max_seconds:g}; raise it or narrow the problem."
        return ""

    def why(self, limit: LimitReachedError | str) -> str:
        """The reason why a search ended early, in terms of the command's options."""
        return self.reason() or str(limit).replace("max_seconds=", "--max-seconds ").replace(
            "max_bytes=", "--max-memory "
        )

    def while_it_may(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items, until the run has to end."""
        for item in items:
            if self.reason():
                return
            yield item

    def leave(self, *, is_complete: bool = False) -> None:
        """End the command with the exit code of the signal or the limit, after the answer was printed.

        Args:
            is_complete: Whether the answer is complete despite a limit; a signal ends the command in any case.
        """
        if self.signal:
            raise typer.Exit(128 + self.signal)
        if not is_complete:
            raise typer.Exit(1)

    def _searched(self, stats: SearchStats) -> None:
        self.progress.say(f"{stats.cells:,} combinations tested" if stats.cells else "")


#: Seconds in which a search must notice that it was asked to stop, and then the interpreter that it is interrupted.
PATIENCE_S: Final = 0.25
HARD_S: Final = 0.2
#: The exit code after Ctrl-C, as shells give it.
INTERRUPTED: Final = 128 + signal.SIGINT
#: Messages about a command that a signal ended, by exit code.
ENDED_BY: Final = {128 + signal.SIGINT: "interrupted", 128 + signal.SIGTERM: "terminated"}


class Signals:
    """Handles signals between `begin` and `end`, except signals that the caller ignores or handles.

    Attributes:
        number: The signal that came; 0 before any.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_noticed, self._has_to_raise = False, False
        self._ended = threading.Event()
        self._before: dict[int, Any] = {}
        self._wakeup, self._wakeup_before, self._main = -1, -1, threading.get_ident()

    def begin(self) -> None:
        """Install the handlers; only the main thread receives signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) == usual:
                self._before[number] = signal.signal(number, self._on_signal)
        if os.name == "posix":
            # The descriptor is written at once; a handler runs only when the main thread is back in Python.
            reading, self._wakeup = os.pipe()
            os.set_blocking(self._wakeup, False)
            self._wakeup_before = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(reading,), daemon=True).start()

    def end(self) -> None:
        """Restore the previous handlers."""
        self._ended.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._wakeup >= 0:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._wakeup)
            self._wakeup = -1

    def noticed(self) -> bool:
        """Whether a signal came; a search that gets True has to stop."""
        self._is_noticed = self._is_noticed or bool(self.number)
        return bool(self.number)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """The handler: the first signal asks to stop, the second one interrupts."""
        if self._has_to_raise:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        self.number, self._has_to_raise = number, True

    def _watch(self, reading: int) -> None:
        """Enforce that a signal takes effect; runs in its own thread until `end`."""
        while heard := os.read(reading, 1):
            number = heard[0]
            if number in self._before and not self._ended.is_set():
                self.number = self.number or number
                self._insist(number)
        os.close(reading)

    def _insist(self, number: int) -> None:
        if self._ended.wait(PATIENCE_S) or self._is_noticed:
            return
        self._has_to_raise = True
        # A second signal also ends a waiting system call.
        signal.pthread_kill(self._main, number)
        if not self._ended.wait(HARD_S):
            os.write(2, f"{ENDED_BY[128 + number]}\n".encode())
            os._exit(128 + number)


#: Seconds before progress is shown.
AFTER_S: Final = 1.0
#: Seconds between two updates.
_EVERY_S: Final = 0.1


class Progress:
    """A line on stderr with the activity, its progress and its time, on a terminal alone; it vanishes in the end.

    Attributes:
        is_shown: Whether stderr is a terminal; otherwise nothing is computed for the line.
    """

    def __init__(self, doing: str) -> None:
        """Name the activity: `counting`."""
        self.is_shown = sys.stderr.isatty()
        self._doing = doing
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()
        self._next = self._started + AFTER_S

    def say(self, text: str = "", done: float = 0, total: float | None = None) -> None:
        """Update the line: a text, and if it is known, how much of the whole is finished."""
        if not self.is_shown or (now := time.monotonic()) < self._next:
            return
        self._next = now + _EVERY_S
        words = printable(" ".join(filter(None, (self._doing, text))))
        if self._bar is None:
            self._bar = _bar()
            self._task = self._bar.add_task(words)
            self._bar.tasks[0].start_time = self._started
            self._bar.start()
        self._bar.update(self._task, description=words, completed=done, total=total)
        self._bar.refresh()

    def close(self) -> None:
        """Remove the line, so that something else can be printed."""
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
        # The searches report their progress, so no refreshing thread is needed.
        auto_refresh=False,
        # Other output goes to its own stream.
        redirect_stdout=False,
        redirect_stderr=False,
    )
