"""How far a search may go, how it ended, and what it cost."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event

from constrint.errors import CancelledError, LimitReachedError


class Status(enum.Enum):
    """How a search ended."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    LIMIT_REACHED = "limit reached"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the work of one search.

    Attributes:
        max_nodes: Assignments that a depth-first search may try.
        max_rows: Rows that one table of the factored space may have.
        max_seconds: Wall-clock time in seconds; None for no limit.
        max_cells: Combinations on which constraints may be evaluated.
        max_values: Values of one constrained variable that may be listed.
        max_bytes: Memory that the tables of one search may take together, in bytes; None for no limit.
        cancel: Ends the search once it returns True (a callable) or is set (an event).
        progress: Called from time to time with the cost of the search so far.
    """

    max_nodes: int = 1 << 22
    max_rows: int = 1 << 24
    max_seconds: float | None = None
    max_values: int = 1 << 22
    max_cells: int = 1 << 34
    max_bytes: int | None = None
    cancel: Callable[[], bool] | Event | None = None
    progress: Callable[[SearchStats], None] | None = None


@dataclass(slots=True)
class SearchStats:
    """What a search cost.

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
    """Limits together with what has been spent of them."""

    limits: Limits
    stats: SearchStats = field(default_factory=SearchStats)
    started: float = field(default_factory=time.perf_counter)

    def elapsed_seconds(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.started

    def check_work(self) -> None:
        """Ends the search when it was cancelled, its time is over or too many combinations were evaluated."""
        if self.limits.progress is not None:
            self.stats.seconds = self.elapsed_seconds()
            self.limits.progress(self.stats)
        cancel = self.limits.cancel
        if cancel is not None and (cancel.is_set() if isinstance(cancel, Event) else cancel()):
            raise CancelledError(f"the search was cancelled after {self.elapsed_seconds():.3g} s.")
        if self.stats.cells > self.limits.max_cells:
            raise LimitReachedError(
                f"constraints were evaluated on more than max_cells={self.limits.max_cells} combinations; "
                "narrow the variables or raise max_cells."
            )
        limit = self.limits.max_seconds
        if limit is not None and self.elapsed_seconds() > limit:
            raise LimitReachedError(f"the search took longer than max_seconds={limit}; raise it or narrow the problem.")

    def rest(self, max_rows: int) -> Limits:
        """Limits for a step of this search: what is left of its time, and the same signals."""
        seconds = self.limits.max_seconds
        left = None if seconds is None else max(0.0, seconds - self.elapsed_seconds())
        return replace(self.limits, max_seconds=left, max_rows=max_rows)

    def check_rows(self, rows: int, names: tuple[str, ...]) -> None:
        """Ends the search when one table grows too long."""
        if rows > self.limits.max_rows:
            raise LimitReachedError(
                f"the table over {', '.join(names)} has more than max_rows={self.limits.max_rows} rows; "
                "narrow these variables, add a constraint that links fewer of them, or raise max_rows."
            )

    def check_bytes(self, num_bytes: int, what: str) -> None:
        """Ends the search when one step would need more memory than is left."""
        limit = self.limits.max_bytes
        if limit is not None and self.stats.table_bytes + num_bytes > limit:
            raise LimitReachedError(
                f"{what} needs {num_bytes} bytes on top of {self.stats.table_bytes}, more than "
                f"max_bytes={limit}; raise it or narrow the problem."
            )

    def spend_node(self) -> None:
        """Counts one assignment of a depth-first search."""
        self.stats.nodes += 1
        if self.stats.nodes > self.limits.max_nodes:
            raise LimitReachedError(
                f"no answer after max_nodes={self.limits.max_nodes} assignments; "
                "narrow the variables or raise max_nodes."
            )
        if self.stats.nodes % 16 == 1:
            self.check_work()
