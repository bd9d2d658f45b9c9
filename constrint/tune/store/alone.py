"""A lock on a folder, for steps that read and then replace a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock a folder during the block.

    The folder itself is locked, so no file is left behind, and the lock ends with the process. Where folders cannot be
    locked (Windows, some network file systems), the block runs without a lock.
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
