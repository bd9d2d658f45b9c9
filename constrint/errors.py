"""Every exception of the project.

Each message names the thing, the rule, what was seen and the way out. The command line maps `UsageError` to
exit code 2 and every other `ConstrintError` to exit code 1; none of them reaches a user as a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


def printed_line(text: str, most: int | None = None) -> str:
    """A text of others for a message: one line of printable characters, at most so long; any other one becomes `?`."""
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))[:most]


class RulesInConflict(Protocol):
    """Interface of a conflict in an error: rules that cannot hold together; `str()` of it is the explanation.

    `constrint.solve.Conflict` is one; this file imports nothing of the package, so it names only what it needs.
    """

    @property
    def members(self) -> tuple[Any, ...]:
        """The rules."""

    @property
    def minimal(self) -> bool:
        """Whether it was shown that the others can hold together without any one of them."""


class ConstrintError(Exception):
    """Base class of every error that constrint raises on purpose."""


class UsageError(ConstrintError, ValueError):
    """Raised when the caller asked for something that is malformed or does not exist."""


#: Characters of a wrong name that a message repeats.
MAX_SHOWN_NAME = 80
#: So few known names are all listed.
FEW_NAMES = 9


class UnknownNameError(UsageError):
    """Raised when a GPU, kernel, parameter or dtype of that name does not exist; lists the nearest ones.

    Of a few known names all are listed, and only those whose number begins with the given one are near: fp64 is no slip
    for fp16, and float3 may be one for float32.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        import difflib  # loaded where a name is wrong

        known = sorted(known)
        by_folded = {k.lower(): k for k in known}
        near = [by_folded[n] for n in difflib.get_close_matches(name.lower(), list(by_folded), n=3, cutoff=0.5)]
        are_few = len(known) <= FEW_NAMES
        if are_few:
            near = [n for n in near if _digits(n).startswith(_digits(name))]
        self.kind, self.name, self.nearest = kind, name, tuple(near)
        message = f"unknown {kind} {shortened(name)!r}."
        message += f" Nearest: {', '.join(near)}." if near else ""
        message += f" Known: {', '.join(known)}." if are_few or not near else ""
        super().__init__(f"{message} {hint}".rstrip())


def shortened(text: str, most: int = MAX_SHOWN_NAME) -> str:
    """A name, or another text, in a message: no longer than anybody reads."""
    return text if len(text) <= most else f"{text[:most]}..."


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


class HardwareModelError(UsageError):
    """Raised when a GPU's YAML file breaks the schema; names the file, the key and the rule."""


class UnsupportedError(UsageError):
    """Raised when the named GPU cannot do what was asked (a dtype without matrix instructions, for example)."""


class CompileError(UnsupportedError):
    """Raised when a compiler refuses a kernel for the named GPU; carries its first error."""


class ParseError(UsageError):
    """Raised when text is not in the constraint language; carries the line, the column and a caret."""

    def __init__(self, message: str, *, text: str = "", line: int = 1, column: int = 1, source: str = "") -> None:
        self.line, self.column, self.source = line, column, source
        where = f"{source or 'text'}:{line}:{column}: "
        lines = text.splitlines()
        shown = ""
        if 1 <= line <= len(lines):
            # A long line is cut around the column so that the caret stays in view.
            start = max(0, column - 1 - 60)
            shown = f"\n  {lines[line - 1][start : start + 100]}\n  {' ' * (column - 1 - start)}^"
        super().__init__(f"{where}{message}{shown}")


class UndefinedValueError(ConstrintError, ArithmeticError):
    """Raised when an expression has no value there: a division by zero, an inexact `/`, a negative exponent."""


class IntegerOverflowError(ConstrintError):
    """Raised when exact arithmetic would leave 64 bits where a 64-bit column was asked for."""


class LimitReachedError(ConstrintError):
    """Raised when a node, time or memory limit ended the search before the answer was known."""


class CancelledError(LimitReachedError):
    """Raised when the caller's own signal ended a search before the answer was known."""


class OutputError(ConstrintError):
    """Raised when what a command prints cannot be written: the disk is full, or stdout is closed."""


class InfeasibleError(ConstrintError):
    """Raised when no assignment satisfies every constraint; `conflict` is a minimal set that cannot hold together.

    Where several kernels were asked, `by_kernel` has the conflict of each by its full name.
    """

    def __init__(
        self,
        message: str,
        conflict: RulesInConflict | None = None,
        by_kernel: Mapping[str, RulesInConflict | None] | None = None,
    ) -> None:
        self.conflict, self.by_kernel = conflict, by_kernel or {}
        super().__init__(message)


class NoDeviceError(ConstrintError):
    """Raised when something needs a GPU on this machine and none was found."""


#: Resource that `DoesNotFitError` names where blocks that wait for each other are not resident at the same time.
RESIDENT = "blocks at the same time"


class DoesNotFitError(ConstrintError):
    """Raised before a launch that the device of this machine cannot run; another choice may fit.

    Args:
        message: The excess and the device.
        name: The resource that is exceeded.
        required: How much of it the kernel takes.
        limit: How much there is.
    """

    def __init__(self, message: str, *, name: str, required: int, limit: int) -> None:
        self.name, self.required, self.limit = name, required, limit
        super().__init__(message)


class StoreError(ConstrintError):
    """Raised when the store of tuning records cannot do what was asked: it is locked, out of reach, too new."""


class StoreFullError(StoreError):
    """Raised when there is no room for more records; none of those given was kept."""


class StoreReadOnlyError(StoreError):
    """Raised when the store may be read but not written, or its folder not be made."""


class StoreDamagedError(StoreError):
    """Raised when the store's file was damaged while it was open; opening it again sets it aside."""
