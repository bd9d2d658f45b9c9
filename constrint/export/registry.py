"""The formats there are, by name: built-in ones, those of installed packages, and those that a program registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal

from constrint.errors import UnknownNameError, UsageError
from constrint.export.found import Found

ENTRY_POINTS = "constrint.exports"
#: Name -> the file that has it.
_FILES = {
    "triton": "triton",
    "json": "json_document",
    "csv": "csv_rows",
    "c-header": "c_header",
    "kernel-tuner": "kernel_tuner",
    "cutlass-like": "cutlass_like",
}
_ADDED: dict[str, Format] = {}
#: What a format writes: ranked configurations with modelled times, or a space with its rules.
Kind = Literal["ranking", "space"]


@dataclass(frozen=True)
class Format:
    """A format by name.

    Args:
        name: As `--export` takes it.
        summary: One line of help.
        write: The whole text of a file. It raises `UsageError` for what the format cannot hold.
        takes: What it can write; where both, whoever asks for a kernel's best configurations gets a ranking.
    """

    name: str
    summary: str
    write: Callable[[Found], str]
    takes: tuple[Kind, ...] = ("ranking", "space")


def register(added: Format) -> None:
    """Make a format known to this process; it replaces one of the same name."""
    _ADDED[added.name] = added


def list_formats() -> tuple[str, ...]:
    """Names of all formats."""
    _ask_packages()
    return tuple(dict.fromkeys((*_FILES, *_ADDED)))


def format_named(name: str) -> Format:
    """The format of a name.

    Raises:
        UnknownNameError: When there is none; it lists them.
    """
    if name not in _ADDED and name not in _FILES:
        _ask_packages()
    if name in _ADDED:
        return _ADDED[name]
    if name not in _FILES:
        raise UnknownNameError("export format", name, list_formats())
    found: Format = import_module(f"constrint.export.formats.{_FILES[name]}").FORMAT
    return found


@cache
def _ask_packages() -> None:
    """Register what installed packages offer; asked once, and only where a name is not built in."""
    from importlib import metadata  # 30 ms that no built-in format has to wait for

    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.name not in _ADDED:
            register(_checked(entry.load(), entry.name))


def _checked(offered: Any, name: str) -> Format:
    if not isinstance(offered, Format) or offered.name != name:
        raise UsageError(
            f"entry point {name!r} of the group {ENTRY_POINTS} must name a constrint.export.Format of that name, "
            f"got {offered!r}. Repair or remove the package that offers it."
        )
    return offered
