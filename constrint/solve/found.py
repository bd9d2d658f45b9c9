"""What a search for the best solutions came to, whether it ended by itself or at a limit."""

from __future__ import annotations

from dataclasses import dataclass

from constrint.errors import LimitReachedError


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for the best solutions came to.

    Attributes:
        assignments: The best solutions that are known, the best one first.
        complete: Whether these are proven to be the best ones, or all.
        bound: What the first objective can at best be; None where nothing is known.
        message: What ended the search, where it is not complete.
        solver: The back-end that answered, where it is another than the one that was asked.
    """

    assignments: tuple[dict[str, int], ...] = ()
    complete: bool = True
    bound: int | None = None
    message: str = ""
    solver: str = ""


class StoppedEarlyError(LimitReachedError):
    """Raised when a limit ended a search that knows something already: the best solution so far, and a bound."""

    def __init__(self, message: str, incumbent: dict[str, int] | None = None, bound: int | None = None) -> None:
        self.incumbent, self.bound = incumbent, bound
        super().__init__(message)
