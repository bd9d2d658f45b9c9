"""Cache on disk for later processes: choices, tables, compiled kernels, launch plans.

Entries live in the user's cache folder under the package's version and a fingerprint of its files, so an upgrade, or
an edit of the sources, begins anew. An entry is written to a file of its own and renamed into place: any number of
processes may share the folder, and what is torn or cut short is ignored. Nothing here ever fails: without a writable
folder, things are learnt again.

Environment:
    CONSTRINT_CACHE: Another folder; `0` keeps nothing and reads nothing.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from constrint import __version__

#: Bytes of the checksum that every entry begins with.
CHECKSUM_BYTES = 16
#: Seconds until entries that wait are written.
DELAY_S = 0.5
_PACKAGE = Path(__file__).parent
_ignoring = 0


def load(kind: str, key: bytes) -> bytes | None:
    """The entry of a kind under a key; None where there is none."""
    path = _path(kind, key)
    if not path:
        return None
    with _LOCK:
        waiting = _WAITING.get(path)
    if waiting is not None:
        return waiting
    try:
        with open(path, "rb") as file:
            whole = file.read()
    except OSError:
        return None
    checksum, data = whole[:CHECKSUM_BYTES], whole[CHECKSUM_BYTES:]
    return data if checksum == _digest(data) else None


def store(kind: str, key: bytes, data: bytes) -> None:
    """Keep an entry; it is whole or absent for every other process."""
    path = _path(kind, key)
    if path:
        _write(path, data)


def store_soon(kind: str, key: bytes, data: bytes) -> None:
    """Keep an entry without waiting for the disk: it is written a little later, or when the process ends."""
    global _is_writing
    path = _path(kind, key)
    if not path:
        return
    with _LOCK:
        _WAITING[path] = data
        is_first, _is_writing = not _is_writing, True
    if is_first:
        threading.Thread(target=_write_later, name="constrint-cache", daemon=True).start()


#: Entries that are about to be written, by path.
_WAITING: dict[str, bytes] = {}
_LOCK = threading.Lock()
_is_writing = False


def _after_fork() -> None:
    """A forked process has neither the thread nor, for certain, the lock."""
    global _LOCK, _is_writing
    _LOCK, _is_writing = threading.Lock(), False
    _WAITING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _write_later() -> None:
    # Whoever computes now is not disturbed.
    time.sleep(DELAY_S)
    _write_waiting()


@atexit.register
def _write_waiting() -> None:
    global _is_writing
    while True:
        with _LOCK:
            if not _WAITING:
                _is_writing = False
                return
            path, data = next(iter(_WAITING.items()))
        _write(path, data)
        with _LOCK:
            if _WAITING.get(path) is data:
                del _WAITING[path]


def _write(path: str, data: bytes) -> None:
    name, folder = "", os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(_digest(data) + data)
        os.replace(name, path)
    except OSError:
        if name:
            with suppress(OSError):
                os.unlink(name)


@contextmanager
def ignored() -> Iterator[None]:
    """Neither read nor keep anything inside the block."""
    global _ignoring
    _ignoring += 1
    try:
        yield
    finally:
        _ignoring -= 1


def folder() -> Path | None:
    """Where this version's entries are; None where nothing is kept."""
    root = _root()
    return Path(root) if root else None


def user_folder() -> Path | None:
    """The folder around all versions, for what outlives them: records, tables of winners; None where `0` is set."""
    chosen = os.environ.get("CONSTRINT_CACHE", "")
    return None if chosen == "0" else Path(_home(chosen))


def _home(chosen: str) -> str:
    if chosen:
        return chosen
    from platformdirs import user_cache_dir

    return user_cache_dir("constrint")


def _root() -> str:
    chosen = os.environ.get("CONSTRINT_CACHE", "")
    return "" if chosen == "0" or _ignoring else _root_of(chosen)


@lru_cache(maxsize=8)
def _root_of(chosen: str) -> str:
    return os.path.join(_home(chosen), _version())


@lru_cache(maxsize=1)
def _version() -> str:
    """The package's version, and a fingerprint of the names, sizes and times of its files."""
    seen = hashlib.blake2b(digest_size=8)
    for place, folders, names in os.walk(_PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if not name.endswith((".py", ".so", ".pyd", ".json", ".yaml", ".cu", ".cuh")):
                continue
            facts = os.stat(os.path.join(place, name))
            seen.update(f"{place}/{name}:{facts.st_size}:{facts.st_mtime_ns};".encode())
    return f"{__version__}-{seen.hexdigest()}"


def _path(kind: str, key: bytes) -> str:
    """The file of an entry; empty where nothing is kept."""
    root = _root()
    return root and os.path.join(root, kind, hashlib.blake2b(key, digest_size=20).hexdigest())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=CHECKSUM_BYTES).digest()
