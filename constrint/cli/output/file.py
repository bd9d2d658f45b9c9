"""Writing a file that a user named: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from constrint.errors import ConstrintError, UsageError


def refuse_existing(path: Path) -> None:
    """Raises UsageError where there is such a file already; a device or a pipe is written to as it is."""
    if path.is_file():
        raise UsageError(f"{path} exists; --force writes over it, or name another file with --output.")


def write_file(path: Path, pieces: Iterable[str]) -> None:
    """Writes text; what was there before stays until all of it is written.

    Raises:
        ConstrintError: When it cannot be written.
    """
    name = ""
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="\n") as device:
                device.writelines(pieces)
            return
        target = path.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name[:100], suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        os.chmod(name, 0o644)  # as readable as other files: what is temporary is made for its owner alone
        os.replace(name, target)
    except OSError as error:
        raise ConstrintError(f"cannot write {path}: {error.strerror}; name another file with --output.") from None
    finally:
        if name:
            with suppress(OSError):
                os.unlink(name)
