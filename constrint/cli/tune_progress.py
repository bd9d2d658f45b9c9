"""The view of `constrint tune` while it measures: a bar for each device with the best time so far over time, or lines.

All goes to stderr. A terminal gets bars and a curve, which are gone at the end; a pipe gets a line every ten seconds
and one for each finished workload.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from constrint.answers.plots import curve_lines
from constrint.answers.terminal import clean_streams, printable
from constrint.answers.trial import named
from constrint.tune.session import Session, Tuned
from constrint.tune.store.record import TuningRecord, time_text
from constrint.tune.tuner import Listener

#: Seconds between two plain lines about one workload.
EVERY_S = 10.0


@contextmanager
def progress(slots: Sequence[str], num_trials: int, num_goals: int) -> Iterator[Listener]:
    """A listener that shows the progress of a run.

    Args:
        slots: Names of the devices.
        num_trials: Trials of one workload.
        num_goals: Number of workloads.
    """
    if not sys.stderr.isatty():
        yield Lines(slots, num_goals)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.text import Text

    columns = (
        TextColumn("{task.fields[slot]}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    console = Console(file=getattr(sys.stderr, "rich_proxied_file", sys.stderr))
    curves = [BestSoFar() for _ in slots]

    class WithCurves(Progress):
        """The bars, and below them a curve for each device whose best time has changed."""

        def get_renderables(self) -> Iterable[Any]:
            yield from super().get_renderables()
            yield from (Text("\n".join(lines)) for curve in curves if (lines := curve.lines(console.width)))

    # Rich puts streams of its own in place of these, which pass on what they get.
    with WithCurves(*columns, console=console, transient=True) as shown, clean_streams():
        yield Bars(shown, slots, num_trials, num_goals, curves)


class BestSoFar:
    """The best time of a workload over the time since its first trial.

    Args:
        now: The clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._start = now, 0.0
        self._session: Session | None = None
        self._points: list[tuple[float, float]] = []

    def add(self, session: Session) -> None:
        """Note the best time of a session; another session begins anew."""
        if session is not self._session:
            self._session, self._start, self._points = session, self._now(), []
        if session.best_s < float("inf"):
            self._points.append((self._now() - self._start, session.best_s))

    def lines(self, width: int) -> list[str]:
        """The curve, once there are two different times."""
        if self._session is None or len({best for _, best in self._points}) < 2:
            return []
        now = (self._now() - self._start, self._points[-1][1])
        title = printable(f"best so far, {named(self._session.goal.workload)}")[:width]
        return [title, *curve_lines([*self._points, now], width)]


class Lines:
    """A line per finished workload, and a line every `EVERY_S` seconds."""

    def __init__(self, slots: Sequence[str], num_goals: int) -> None:
        self._slots, self._num_goals, self._num_done, self._last_line = slots, num_goals, 0, time.monotonic()

    def started(self, slot: int, session: Session) -> None:
        """Print nothing."""

    def tried(self, slot: int, session: Session, record: TuningRecord, left_s: float | None) -> None:
        """Print the state if the last line is `EVERY_S` old."""
        if time.monotonic() - self._last_line > EVERY_S:
            self._last_line = time.monotonic()
            _say(f"{self._slots[slot]}: {_state(session, left_s)}")

    def finished(self, slot: int, tuned: Tuned) -> None:
        """Print the result of a workload."""
        self._last_line = time.monotonic()
        self._num_done += 1
        _say(f"{self._num_done} of {self._num_goals}: {named(tuned.goal.workload)}: {result_text(tuned)}")


class Bars:
    """A bar per device with its curve, and a line per finished workload."""

    def __init__(
        self, shown: Any, slots: Sequence[str], num_trials: int, num_goals: int, curves: Sequence[BestSoFar]
    ) -> None:
        self._curves = curves
        self._shown, self._num_goals, self._num_done, self._num_trials = shown, num_goals, 0, num_trials
        self._bars = [shown.add_task("starts", total=num_trials, slot=printable(slot)) for slot in slots]
        self._of_bar: list[Session | None] = [None] * len(slots)

    def started(self, slot: int, session: Session) -> None:
        """Show a workload unless the device works on another one."""
        if self._of_bar[slot] is None:
            self._show(slot, session, None)

    def tried(self, slot: int, session: Session, record: TuningRecord, left_s: float | None) -> None:
        """Move the bar and the curve."""
        self._curves[slot].add(session)
        self._show(slot, session, left_s)

    def finished(self, slot: int, tuned: Tuned) -> None:
        """Print the result of a workload above the bars."""
        self._num_done += 1
        self._of_bar[slot] = None
        text = f"{self._num_done} of {self._num_goals}: {named(tuned.goal.workload)}: {result_text(tuned)}"
        self._shown.console.print(printable(text), highlight=False, markup=False)

    def _show(self, slot: int, session: Session, left_s: float | None) -> None:
        self._of_bar[slot] = session
        self._shown.update(
            self._bars[slot], completed=session.num_tried, total=self._num_trials, description=_state(session, left_s)
        )


def _state(session: Session, left_s: float | None) -> str:
    best = f", best {time_text(session.best_s)}" if session.best_s < float("inf") else ""
    left = "" if left_s is None else f", {left_s:.0f} s left"
    return printable(f"{named(session.goal.workload)}{best}{left}")


def _say(text: str) -> None:
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def result_text(tuned: Tuned) -> str:
    """The result of a workload in a line."""
    if tuned.best_s is None:
        return tuned.problem or ("nothing ran and was right" if tuned.outcomes else "nothing was tried")
    gain = "" if tuned.gain is None else f", {tuned.gain:.3f} times as fast as the first choice"
    return f"{time_text(tuned.best_s)}{gain}"
