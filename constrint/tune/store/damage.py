"""A store's file that is damaged is set aside under another name, and work goes on with a fresh one."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError

from constrint.errors import StoreError, StoreReadOnlyError, UsageError
from constrint.tune.store.alone import alone_in
from constrint.tune.store.connection import engine_of, is_read_only, prepare
from constrint.tune.store.faults import DAMAGED, told
from constrint.tune.store.place import WAYS, default_path

#: What every SQLite file begins with.
HEADER = b"SQLite format 3\0"
#: Names that tell a store although its beginning is lost.
SUFFIXES = (".sqlite", ".sqlite3", ".db")
#: What belongs to a file: its journal, the index of that, and the file itself, which goes last: a fresh file must never
#: meet the journal of the old one.
COMPANIONS = ("-wal", "-shm", "")


class DamagedStoreWarning(UserWarning):
    """Given once when a damaged store was set aside."""


def _is_dir(path: Path) -> bool:
    """Whether a store's path is a folder.

    Raises:
        StoreError: When its folder cannot be looked into.
    """
    try:
        return path.is_dir()
    except OSError as error:
        raise StoreError(f"the store {path} cannot be reached: {error.strerror}; name one elsewhere.") from None


def open_file(url: URL) -> Engine:
    """The engine of a store in a file, which is made where it is missing and replaced where it is damaged.

    Raises:
        UsageError: When it is a folder, or a file of something else.
        StoreError: When it can be neither read nor made.
    """
    path = Path(url.database or "")
    if _is_dir(path):
        raise UsageError(f"the store {path} is a folder; name a file in it, such as {path / 'records.sqlite'}.")
    with told(url), _folder_of(path):
        damage = damage_of(url)
        if damage:
            _replace(url, damage)
        engine = engine_of(url)
        try:
            prepare(engine, url)
        except BaseException:
            engine.dispose()
            raise
        return engine


def damage_of(url: URL) -> str:
    """What SQLite finds wrong with a file; empty where it is whole, empty or not there."""
    path = Path(url.database or "")
    if not path.exists() or not path.stat().st_size:
        return ""
    engine = engine_of(url)
    try:
        with engine.connect() as connection:
            said = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
            return "" if said == "ok" else " ".join(said.split())
    except DBAPIError as error:
        if any(sign in str(error.orig) for sign in DAMAGED):
            return str(error.orig)
        raise
    finally:
        engine.dispose()


def _replace(url: URL, damage: str) -> None:
    """Set a damaged file aside, unless another process just did."""
    path = Path(url.database or "")
    with path.open("rb") as file:
        start = file.read(len(HEADER))
    if start != HEADER and path != default_path() and path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is no store: {damage}. {WAYS[0].upper()}{WAYS[1:]}.")
    if is_read_only(path):
        raise UsageError(f"the store {path} is damaged ({damage}), and may not be moved; name another store.")
    with alone_in(path.parent):
        if not damage_of(url):
            return
        aside = _free_name(path)
        for companion in COMPANIONS:
            part = path.with_name(path.name + companion)
            if part.exists():
                os.replace(part, aside.with_name(aside.name + companion))
    warnings.warn(
        f"the store {path} is damaged ({damage}). It is kept as {aside}, and a fresh one is begun.",
        DamagedStoreWarning,
        stacklevel=5,
    )


def _free_name(path: Path) -> Path:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{day}" + (f"-{n}" if n else "")) for n in range(10**6))
    return next(name for name in names if not name.exists())


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StoreReadOnlyError(
            f"the store {path} cannot be made: {error.strerror}; name one elsewhere with --store or CONSTRINT_STORE."
        ) from error
