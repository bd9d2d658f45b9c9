"""Macros and the contents of headers: what a CUDA source is compiled with beside its own text."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from constrint.errors import UsageError

#: What a macro may stand for.
MacroValue = int | float | str | bool
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
#: A header beyond this is not what anyone includes.
_MAX_HEADER_BYTES = 16 << 20


def definitions(macros: Mapping[str, MacroValue], where: str) -> list[str]:
    """Options `-DNAME=value`, each handed to the compiler as one argument that no shell and no other option reads.

    True and False are 1 and 0, text stands for itself.

    Raises:
        UsageError: For a name that is no identifier, and a value that no macro can have.
    """
    options = []
    for name, value in macros.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{where}: {name!r} cannot be the name of a macro; use letters, digits and _.")
        options.append(f"-D{name}={_written(value, f'{where}: the macro {name}')}")
    return options


def _written(value: object, what: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str) and all(character.isprintable() for character in value):
        return value
    raise UsageError(f"{what} has to be a number, True, False or text of one line, got {value!r}.")


def header_digest(text: str, folders: Sequence[Path]) -> str:
    """A hash of the headers that a text includes, directly or not, and that lie in these folders.

    Headers that are not there belong to the toolkit, whose version is known. Names that macros make are not followed.
    """
    seen: dict[Path, bytes] = {}
    waiting = [text]
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            path = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if path is None or path.resolve() in seen or path.stat().st_size > _MAX_HEADER_BYTES:
                continue
            content = path.read_bytes()
            seen[path.resolve()] = content
            waiting.append(content.decode(errors="replace"))
    digest = hashlib.sha256()
    for path, content in sorted(seen.items()):
        digest.update(f"{path.name}:{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
