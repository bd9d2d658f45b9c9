"""The formats of results by name: printed pages, exported rankings and spaces, and tuning records.

Each kind has one `Registry`: formats of this package, formats that a program registers, and formats that installed
packages offer as entry points. Only the module of the requested format is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from constrint import plugins
from constrint.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.answers.exported import Export
    from constrint.answers.formats.records import Source
    from constrint.answers.table import Shown
    from constrint.tune.store.record import TuningRecord

FormatT = TypeVar("FormatT")
#: Results that an export format can write: ranked configurations with modelled times, or a space with its rules.
Kind = Literal["ranking", "space"]


@dataclass(frozen=True)
class PageFormat:
    """A format of `--format`: how a command's page is printed.

    Args:
        summary: One line of help.
        write: Yields the page as pieces of text; each piece is printed at once.
    """

    summary: str
    write: Callable[[Shown], Iterable[str]]


@dataclass(frozen=True)
class Format:
    """A format of `solve --export`: how a ranking or a space becomes a file.

    Args:
        name: The name that `--export` takes.
        summary: One line of help.
        write: Returns the text of the file. Raises `UsageError` for results that the format cannot hold.
        takes: The kinds of results that it writes. With both kinds, the best configurations of a kernel are written as
            a ranking.
    """

    name: str
    summary: str
    write: Callable[[Export], str]
    takes: tuple[Kind, ...] = ("ranking", "space")


@dataclass(frozen=True)
class RecordFormat:
    """A format of `records export` and `records import`.

    Args:
        name: The name that `--format` takes.
        summary: One line of help.
        write: Yields records as pieces of text; None if the format is only read. Raises `UsageError` for records that
            the format cannot hold.
        read: Returns the records of a file, all or none; None if the format is only written. Raises `UsageError` with
            the file, the line and the rule.
    """

    name: str
    summary: str
    write: Callable[[Iterable[TuningRecord]], Iterator[str]] | None = None
    read: Callable[[Source], list[TuningRecord]] | None = None


class Registry(Generic[FormatT]):
    """The formats of one kind by name."""

    def __init__(self, what: str, kind: type[FormatT], built_in: Mapping[str, str], group: str = "") -> None:
        """Declare the formats of this package.

        Args:
            what: The kind as error messages call it: `export format`.
            kind: The class of the formats.
            built_in: The place of each format of this package, `module:ATTRIBUTE`, by the format's name.
            group: The entry-point group of installed packages; empty if packages cannot offer this kind.
        """
        self._what, self._kind, self._built_in, self._group = what, kind, built_in, group
        self._added: dict[str, FormatT] = {}

    @property
    def built_in(self) -> tuple[str, ...]:
        """Names of the formats of this package."""
        return tuple(self._built_in)

    def names(self) -> tuple[str, ...]:
        """Names of all formats, those of installed packages last."""
        return tuple(dict.fromkeys((*self._built_in, *self._added, *self._offered())))

    def add(self, name: str, added: FormatT) -> None:
        """Add a format to this process; it replaces a format of the same name."""
        self._added[name] = added

    def named(self, name: str) -> FormatT:
        """The format with this name.

        Raises:
            UnknownNameError: When no format has the name; lists the known ones.
            ConstrintError: When the package that offers it cannot be imported.
            UsageError: When the package offers something else under the name.
        """
        if name in self._added:
            return self._added[name]
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            built_in: FormatT = getattr(import_module(f"constrint.answers.{module}"), attribute)
            return built_in
        points = self._offered()
        if name not in points:
            raise UnknownNameError(self._what, name, self.names())
        return self._checked(points[name], plugins.load(points[name]))

    def _offered(self) -> dict[str, Any]:
        """The entry points of installed packages by name."""
        return {point.name: point for point in plugins.offered(self._group)} if self._group else {}

    def _checked(self, point: Any, offered: Any) -> FormatT:
        if not isinstance(offered, self._kind) or getattr(offered, "name", point.name) != point.name:
            raise UsageError(
                f"entry point {point.name!r} of the group {self._group} must name a constrint.answers."
                f"{self._kind.__name__} of that name, got {offered!r}. Repair or remove the package that offers it."
            )
        checked: FormatT = offered
        return checked


PAGES = Registry(
    "format",
    PageFormat,
    {name: f"printed:{name.upper()}" for name in ("csv", "json", "jsonl", "markdown", "table")},
    "constrint.formats",
)
EXPORTS = Registry(
    "export format",
    Format,
    {
        "triton": "formats.triton:FORMAT",
        "json": "formats.json:FORMAT",
        "csv": "formats.csv:FORMAT",
        "c-header": "formats.c_header:FORMAT",
        "kernel-tuner": "formats.kernel_tuner:FORMAT",
        "cutlass-like": "formats.cutlass_like:FORMAT",
    },
    "constrint.exports",
)
RECORDS = Registry(
    "format",
    RecordFormat,
    {
        "jsonl": "formats.jsonl:RECORDS",
        "kernel-tuner": "formats.kernel_tuner:RECORDS",
        "t1": "formats.t1:RECORDS",
        "t4": "formats.t4:RECORDS",
        "inductor": "formats.inductor:RECORDS",
        "triton-config": "formats.triton:RECORDS",
        "c-header": "formats.c_header:RECORDS",
    },
)
