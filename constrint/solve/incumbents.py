"""The best solution so far of a search, shared by engines that run beside each other, and told to the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from constrint.errors import UndefinedValueError
from constrint.model import Objective


class Incumbents:
    """Takes solutions from any thread, keeps the best one, and announces better ones in the thread that made it.

    Attributes:
        best: The best solution so far; None before any.
        costs: Its objectives' values in order, negative where they are maximised.
    """

    def __init__(
        self, objectives: Sequence[Objective], told: Callable[[Mapping[str, int]], None] | None = None
    ) -> None:
        """Begin without a solution.

        Args:
            objectives: The objectives in order.
            told: Called with every better solution.
        """
        self.best: dict[str, int] | None = None
        self.costs: tuple[int, ...] = ()
        self._objectives, self._told = objectives, told
        self._lock, self._owner = threading.Lock(), threading.get_ident()
        self._waiting: list[dict[str, int]] = []

    def offer(self, assignment: Mapping[str, int]) -> None:
        """Takes a solution; ignores one that is no better, or in which an objective has no value."""
        try:
            costs = tuple(o.expr.value(assignment) * (-1 if o.maximise else 1) for o in self._objectives)
        except UndefinedValueError:
            return
        with self._lock:
            if self.best is not None and costs >= self.costs:
                return
            self.best, self.costs = dict(assignment), costs
            if self._told is not None:
                self._waiting.append(self.best)
        self.announce()

    def announce(self) -> None:
        """Tells the caller of better solutions, in its own thread only."""
        if not self._waiting or threading.get_ident() != self._owner:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for assignment in waiting:
            if self._told is not None:
                self._told(assignment)
