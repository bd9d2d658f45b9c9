"""Limits of a search, its status at the end, and what it used: time, nodes, rows, memory."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from constrint.errors import CancelledError, LimitReachedError, UsageError
from constrint.model.operations import as_int, watched

if TYPE_CHECKING:
    from constrint.solve.incumbents import Incumbents

#: Seconds between two checks of the clock, of signals and of the caller's cancellation.
BETWEEN_LOOKS: Final = 0.02
# Without max_bytes, smaller requests are not compared with the available memory.
LARGE_BYTES: Final = 1 << 26


class Status(enum.Enum):
    """How a search ended."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    LIMIT_REACHED = "limit reached"


class HeadStart:
    """Begins something beside a search once that counts as hard: by its work, which is the same on any machine.

    The compiled core counts its own work; work outside it is counted in ticks of the budget.
    """

    #: Ticks after which a search outside the core counts as hard.
    TICKS: ClassVar[int] = 250

    def __init__(self, begin: Callable[[bool], None], wait: float = 0.0) -> None:
        """Count from now on.

        Args:
            begin: Called once, with whether the search works in Python at that time.
            wait: Seconds for which the search is hard before.
        """
        self._left, self._begin, self._wait = self.TICKS, begin, wait
        self._begins_at: float | None = None
        self.has_begun = False

    def tick(self) -> None:
        """Count one tick."""
        self._left -= 1
        if self._left == 0:
            self.is_hard(in_python=True)

    def is_hard(self, in_python: bool = False) -> None:
        """Note that the search counts as hard."""
        if self._begins_at is None:
            self._begins_at = time.perf_counter() + self._wait
        self.look(in_python)

    def look(self, in_python: bool = False) -> None:
        """Begin if it is time."""
        if self._begins_at is not None and (self._wait == 0 or time.perf_counter() >= self._begins_at):
            self.end(in_python)

    def end(self, in_python: bool = False) -> None:
        """Begin now if it has not begun."""
        if not self.has_begun:
            self.has_begun = True
            self._begin(in_python)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the work of one search.

    Attributes:
        max_nodes: Assignments that a depth-first search may try.
        max_rows: Rows that one table of the factored space may have.
        max_seconds: Wall-clock time in seconds; None for no limit.
        max_cells: Combinations on which constraints may be evaluated.
        max_values: Values of one constrained variable that may be listed.
        max_bytes: Memory of all tables of one search, in bytes; None for half of the available memory.
        cancel: Ends the search once it returns True (a callable) or is set (an event).
        progress: Called from time to time with the cost of the search so far.
        incumbents: Takes the better solutions of an optimisation as they are found.
        started: Start of the whole search of which this is a step, by `time.perf_counter`; None for now.
        head_start: What begins once the search has done so much work that it counts as hard.

    Raises:
        UsageError: For a value of the wrong type or range.
    """

    max_nodes: int = 1 << 22
    max_rows: int = 1 << 24
    max_seconds: float | None = None
    max_values: int = 1 << 22
    max_cells: int = 1 << 34
    max_bytes: int | None = None
    cancel: Callable[[], bool] | Event | None = None
    progress: Callable[[SearchStats], None] | None = None
    incumbents: Incumbents | None = field(default=None, repr=False, compare=False, kw_only=True)
    started: float | None = field(default=None, repr=False, compare=False, kw_only=True)
    head_start: HeadStart | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("max_nodes", "max_rows", "max_values", "max_cells", "max_bytes"):
            limit = getattr(self, name)
            if (limit is not None or name != "max_bytes") and as_int(limit, name) < 0:
                raise UsageError(f"{name} must not be negative, got {limit}.")
        seconds: Any = self.max_seconds
        if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
            raise UsageError(f"max_seconds must be a number of seconds, or None for no limit, got {seconds!r}.")
        if not (self.cancel is None or isinstance(self.cancel, Event) or callable(self.cancel)):
            raise UsageError(f"cancel must be an event or a function, got {self.cancel!r}.")
        if not (self.progress is None or callable(self.progress)):
            raise UsageError(f"progress must be a function, got {self.progress!r}.")


#: No limits but the defaults.
UNLIMITED: Final = Limits()


def is_cancelled(limits: Limits) -> bool:
    """Whether the caller ends the search."""
    cancel = limits.cancel
    return cancel is not None and (cancel.is_set() if isinstance(cancel, Event) else cancel())


@dataclass(slots=True)
class SearchStats:
    """Work of a search.

    Attributes:
        seconds: Wall-clock time in seconds.
        cells: Combinations on which some constraint was evaluated.
        rows: Rows of all tables together.
        tables: Number of tables.
        nodes: Assignments tried by a depth-first search.
        table_bytes: Memory that was taken by the tables, in bytes.
    """

    seconds: float = 0.0
    cells: int = 0
    rows: int = 0
    tables: int = 0
    nodes: int = 0
    table_bytes: int = 0


@dataclass(slots=True)
class Budget:
    """Limits of a search together with the work done so far."""

    limits: Limits
    stats: SearchStats = field(default_factory=SearchStats)
    started: float = field(default_factory=time.perf_counter)
    _next_look: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        if self.limits.started is not None:
            self.started = self.limits.started

    def elapsed_seconds(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.started

    def check_work(self) -> None:
        """Ends the search when it was cancelled, its time is over or too many combinations were evaluated."""
        if self.limits.head_start is not None:
            self.limits.head_start.look()
        if self.limits.progress is not None:
            self.stats.seconds = self.elapsed_seconds()
            self.limits.progress(self.stats)
        if self.limits.incumbents is not None:
            self.limits.incumbents.announce()
        if is_cancelled(self.limits):
            raise CancelledError(f"the search was cancelled after {self.elapsed_seconds():.3g} s.")
        if self.stats.cells > self.limits.max_cells:
            raise LimitReachedError(
                f"constraints were evaluated on more than max_cells={self.limits.max_cells} combinations; "
                "narrow the variables or raise max_cells."
            )
        limit = self.limits.max_seconds
        if limit is not None and self.elapsed_seconds() > limit:
            raise LimitReachedError(self.time_over())

    def time_over(self) -> str:
        """Write the message that the time is over."""
        return f"the search took longer than max_seconds={self.limits.max_seconds}; raise it or narrow the problem."

    def tick(self) -> None:
        """Call `check_work` at most every few milliseconds; cheap enough for inner loops."""
        if self.limits.head_start is not None:
            self.limits.head_start.tick()
        now = time.perf_counter()
        if now >= self._next_look:
            self._next_look = now + BETWEEN_LOOKS
            self.check_work()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Make long computations inside the block tick; running out of memory becomes a reached limit.

        A generator must not yield inside the block.
        """
        try:
            with watched(self.tick):
                yield
        except MemoryError:
            raise LimitReachedError("there is not enough memory for this search; narrow the problem.") from None

    def rest(self, **changes: Any) -> Limits:
        """Limits for a step of this search: time counts from the search's start, and its signals apply."""
        return replace(self.limits, started=self.started, **changes)

    def seconds_left(self) -> float | None:
        """Remaining seconds; None without a limit."""
        limit = self.limits.max_seconds
        return None if limit is None else max(0.0, limit - self.elapsed_seconds())

    def part(self, seconds: float, **changes: Any) -> Limits:
        """Limits for one step of at most `seconds`, within the remaining time."""
        left = self.seconds_left()
        return replace(
            self.limits, started=None, max_seconds=seconds if left is None else min(seconds, left), **changes
        )

    def check_rows(self, rows: int, names: tuple[str, ...]) -> None:
        """Ends the search when one table grows too long."""
        if rows > self.limits.max_rows:
            raise LimitReachedError(
                f"the table over {', '.join(names)} has more than max_rows={self.limits.max_rows} rows; "
                "narrow these variables, add a constraint that links fewer of them, or raise max_rows."
            )

    def bytes_left(self) -> int:
        """Remaining bytes."""
        limit = self.limits.max_bytes
        return available_bytes() if limit is None else limit - self.stats.table_bytes

    def check_bytes(self, num_bytes: int, what: str) -> None:
        """Ends the search when one step would need more than the remaining memory."""
        limit = self.limits.max_bytes
        if limit is None and num_bytes >= LARGE_BYTES and num_bytes > available_bytes():
            self.refuse_bytes(num_bytes, what)
        if limit is not None and self.stats.table_bytes + num_bytes > limit:
            self.refuse_bytes(num_bytes, what)

    def refuse_bytes(self, num_bytes: int, what: str) -> NoReturn:
        """Raises the error that a step needs more than the remaining memory."""
        limit = self.limits.max_bytes
        if limit is None:
            raise LimitReachedError(
                f"{what} needs {num_bytes} bytes, and {available_bytes()}, half of the memory left, may be taken; "
                "narrow the problem."
            )
        raise LimitReachedError(
            f"{what} needs {num_bytes} bytes on top of {self.stats.table_bytes}, more than "
            f"max_bytes={limit}; raise it or narrow the problem."
        )

    def take_bytes(self, num_bytes: int, what: str) -> None:
        """Counts memory that the search keeps until its end."""
        self.check_bytes(num_bytes, what)
        self.stats.table_bytes += num_bytes

    def spend_node(self) -> None:
        """Counts one assignment of a depth-first search."""
        self.stats.nodes += 1
        if self.stats.nodes > self.limits.max_nodes:
            raise LimitReachedError(
                f"no answer after max_nodes={self.limits.max_nodes} assignments; "
                "narrow the variables or raise max_nodes."
            )
        self.tick()


#: Available memory where it is unknown or unlimited.
UNKNOWN: Final = 1 << 62
# Seconds for which an answer is cached.
_FRESH: Final = 0.5
_GROUPS: Final = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_last: tuple[float, int] = (float("-inf"), UNKNOWN)


def available_bytes() -> int:
    """Bytes that a search or a listing may take: half of what the machine, its container and this process have left.

    The other half is for temporary copies, for users of the result, and for other processes.
    """
    global _last
    now = time.monotonic()
    if now - _last[0] > _FRESH:
        _last = (now, max(0, min(_of_machine(), _of_group(), _of_process())) // 2)
    return _last[1]


def _read(path: str) -> bytes:
    """Read the first bytes of a system file; quicker than opening it as text."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _of_machine() -> int:
    try:
        text = _read("/proc/meminfo")
        return int(text[text.index(b"MemAvailable:") + 13 :].split(None, 1)[0]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def _of_group() -> int:
    for most, used in _GROUPS:
        try:
            return int(_read(most)) - int(_read(used))
        except (OSError, ValueError):
            # No such file, or "max".
            continue
    return UNKNOWN


def _of_process() -> int:
    try:
        text = _read("/proc/self/limits")
        most = text[text.index(b"Max address space") + 17 :].split(None, 1)[0]
        if most == b"unlimited":
            return UNKNOWN
        return int(most) - int(_read("/proc/self/statm").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return UNKNOWN
