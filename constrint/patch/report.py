"""The report of a patch: what it replaced, what it left and why; it takes the changes back. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple

#: Names of modules that a line of the table shows; the rest is counted.
SHOWN = 3


class Replaced(NamedTuple):
    """A module that runs by this package now.

    Args:
        name: Its name in the model; empty for the model itself.
        before: The name of the class that it had.
        after: The name of the class that it has.
        gain: What is different.
    """

    name: str
    before: str
    after: str
    gain: str


class Left(NamedTuple):
    """A module that stays as it is.

    Args:
        name: Its name in the model; empty for the model itself.
        kind: The name of its class.
        reason: Why it stays.
    """

    name: str
    kind: str
    reason: str


class PatchReport:
    """Everything that `constrint.patch` did to one model.

    It is a context manager that takes the changes back at its end. Printed, it is a table.

    Args:
        replaced: Modules that were replaced.
        left: Modules that were left although their kind is one that is replaced.
        undoing: Functions that take the changes back, in the order of the changes.
    """

    def __init__(self, replaced: Sequence[Replaced], left: Sequence[Left], undoing: Iterable[Callable[[], None]]):
        self.replaced = tuple(replaced)
        self.left = tuple(left)
        self._undoing = list(undoing)

    def undo(self) -> None:
        """Take all changes back; parameters keep the values that they have. A second call does nothing."""
        while self._undoing:
            self._undoing.pop()()

    def __enter__(self) -> PatchReport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __str__(self) -> str:
        if not self.replaced and not self.left:
            return "constrint.patch: the model has no module of a kind that is replaced."
        lines = [f"constrint.patch: {len(self.replaced)} modules replaced, {len(self.left)} left"]
        groups: dict[tuple[str, str, str], list[str]] = {}
        for each in self.replaced:
            groups.setdefault(("replaced", f"{each.before} -> {each.after}", each.gain), []).append(each.name)
        for one in self.left:
            groups.setdefault(("left", one.kind, one.reason), []).append(one.name)
        rows = [("", "modules", "count", "names", "why")]
        rows += [(what, kind, str(len(names)), _some(names), why) for (what, kind, why), names in groups.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[4]]).rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<PatchReport: {len(self.replaced)} replaced, {len(self.left)} left>"


def _some(names: Sequence[str]) -> str:
    shown = [name or "(the model)" for name in names[:SHOWN]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
