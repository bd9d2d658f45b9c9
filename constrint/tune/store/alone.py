"""One process at a time in a folder, for steps that read and then replace a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is inside the block for the same folder, and keep others out.

    The folder itself is locked, so no file is left behind, and the lock ends with the process. Where folders cannot be
    locked (Windows, some network file systems), nobody waits.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
