"""Cache on disk for later processes: choices, tables, compiled kernels, launch plans.

Entries live in the user's cache folder under the package's version and a fingerprint of its files, so an upgrade, or
an edit of the sources, begins anew. An entry is written to a file of its own and renamed into place: any number of
processes may share the folder, and what is torn or cut short is ignored. Nothing here ever fails: without a writable
folder, things are learnt again.

Kernels are launched from here, so an entry is used only where it is the user's own: file and folders belong to the user
(or to root, whose Python runs) and nobody else may write to them, and the checksum, which covers the key, is right.
Whoever can write as the user can forge entries: the checksum has no secret.

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
import warnings
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
        whole = _WAITING.get(path)
    if whole is None:
        try:
            with open(path, "rb") as file:
                if not (_is_own(os.fstat(file.fileno())) and _is_own_folder(os.path.dirname(path), _user())):
                    return None
                whole = file.read()
        except OSError:
            return None
    data = whole[CHECKSUM_BYTES:]
    return data if whole == _sealed(kind, key, data) else None


def store(kind: str, key: bytes, data: bytes) -> None:
    """Keep an entry; it is whole or absent for every other process."""
    path = _path(kind, key)
    if path:
        _write(path, _sealed(kind, key, data))


def store_soon(kind: str, key: bytes, data: bytes) -> None:
    """Keep an entry without waiting for the disk: it is written a little later, or when the process ends."""
    global _is_writing
    path = _path(kind, key)
    if not path:
        return
    with _LOCK:
        _WAITING[path] = _sealed(kind, key, data)
        is_first, _is_writing = not _is_writing, True
    if is_first:
        threading.Thread(target=_write_later, name="constrint-cache", daemon=True).start()


def _sealed(kind: str, key: bytes, data: bytes) -> bytes:
    """An entry with its checksum, which is right for this kind and key alone."""
    of_key = hashlib.blake2b(key, person=hashlib.blake2b(kind.encode(), digest_size=16).digest()).digest()
    return hashlib.blake2b(data, digest_size=CHECKSUM_BYTES, key=of_key).digest() + data


def _user() -> int | None:
    """The user of this process; None where files have no owners of this kind."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def _is_own(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to the user, and nobody else may write to it."""
    return _user() is None or (status.st_uid in (0, _user()) and not status.st_mode & 0o022)


@lru_cache(maxsize=64)
def _is_own_folder(folder: str, _user: int | None) -> bool:
    """Whether a kind's folder and that of the version around it are the user's own; warns once where they are not."""
    for one in (folder, os.path.dirname(folder)):
        if not _is_own(os.stat(one)):
            warnings.warn(
                f"nothing is read from the cache {one}: it belongs to another user, or others may write to it. Remove "
                "it, or name another folder with CONSTRINT_CACHE.",
                RuntimeWarning,
                stacklevel=4,
            )
            return False
    return True


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
        for one in (os.path.dirname(folder), folder):
            os.makedirs(one, mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
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


def settings_folder(kind: str) -> Path:
    """The folder of what users state themselves, such as models of their GPUs; no cache, and nothing removes it."""
    return _settings_of(kind, os.environ.get("HOME", ""), os.environ.get("XDG_CONFIG_HOME", ""))


@lru_cache(maxsize=8)
def _settings_of(kind: str, home: str, configured: str) -> Path:
    """The folder of settings under these values of the environment, which platformdirs reads itself."""
    from platformdirs import user_config_path

    return user_config_path("constrint") / kind


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
