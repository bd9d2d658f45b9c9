"""The formats there are, by name. A file beside this one that ends with `FORMAT = Format(...)` needs one line here."""

from __future__ import annotations

from importlib import import_module

from constrint.errors import UnknownNameError, UsageError
from constrint.tune.store.formats.interface import Format, Read, Write

#: Name -> the file that has it.
FILES = {
    "jsonl": "jsonl",
    "kernel-tuner": "kernel_tuner",
    "t1": "t1",
    "t4": "t4",
    "inductor": "inductor",
    "triton-config": "triton_config",
    "c-header": "c_header",
}
_ADDED: dict[str, Format] = {}


def register(added: Format) -> None:
    """Make a format known to this process; it replaces one of the same name."""
    _ADDED[added.name] = added


def formats() -> list[Format]:
    """All formats, by name."""
    return [format_named(name) for name in sorted({*FILES, *_ADDED})]


def format_named(name: str) -> Format:
    """The format of a name.

    Raises:
        UnknownNameError: When there is none; it lists them.
    """
    if name in _ADDED:
        return _ADDED[name]
    if name not in FILES:
        raise UnknownNameError("format", name, {*FILES, *_ADDED})
    found: Format = import_module(f"constrint.tune.store.formats.{FILES[name]}").FORMAT
    return found


def writer(name: str) -> Write:
    """How records are written in a format.

    Raises:
        UsageError: When it is unknown, or only read.
    """
    write = format_named(name).write
    if write is None:
        known = ", ".join(one.name for one in formats() if one.write)
        raise UsageError(f"the format {name} is only imported; exported are: {known}.")
    return write


def reader(name: str) -> Read:
    """How files of a format are read.

    Raises:
        UsageError: When it is unknown, or only written.
    """
    read = format_named(name).read
    if read is None:
        known = ", ".join(one.name for one in formats() if one.read)
        hint = " `constrint count --space FILE` reads it as a space." if name == "t1" else ""
        raise UsageError(f"the format {name} has no results that could be imported; imported are: {known}.{hint}")
    return read
