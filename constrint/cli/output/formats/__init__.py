"""The output formats there are, by name: one file each in this folder, and those of installed packages.

A file here registers itself by being here: its name is the format's, and it ends with `FORMAT = Format(...)`. A package
registers one as an entry point of the group `constrint.formats`. Only the file of the format that is used is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from constrint.errors import ConstrintError, UnknownNameError

if TYPE_CHECKING:
    from constrint.cli.output.page import Shown

ENTRY_POINTS = "constrint.formats"
#: What is printed where no format is named.
TABLE = "table"


@dataclass(frozen=True)
class Format:
    """An output format.

    Args:
        summary: One line of help.
        write: A page as pieces of text, each printed as it comes.
    """

    summary: str
    write: Callable[[Shown], Iterable[str]]


def built_in() -> list[str]:
    """Names of the formats in this folder."""
    return sorted(module.name for module in iter_modules(__path__))


def format_named(name: str) -> Format:
    """The format of a name.

    Raises:
        UnknownNameError: When there is none; it lists them.
        ConstrintError: When the package that has it cannot be imported.
    """
    if name in built_in():
        found: Format = import_module(f"{__name__}.{name}").FORMAT
        return found
    from importlib.metadata import entry_points  # loaded for a format that is none of ours

    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in others:
        raise UnknownNameError("format", name, {*built_in(), *others})
    try:
        loaded: Format = others[name].load()
    except (ImportError, AttributeError) as error:
        point = others[name].value
        raise ConstrintError(f"the output format {name!r} cannot be loaded from {point}: {error}.") from error
    return loaded
