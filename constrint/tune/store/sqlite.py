"""SQLite as a store: a file, safe for many processes. `sqlite_file` says whose a file is and mends damage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from constrint.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError
from constrint.tune.store.backends import DAMAGED_WAY_OUT, Fault, check_version, clean, explained, in_memory, prepare
from constrint.tune.store.place import url_of_file
from constrint.tune.store.sqlite_file import (
    APPLICATION_ID,
    DAMAGED,
    damage_of,
    engine_of,
    has_content,
    identity_of,
    is_read_only,
    make,
    refuse_later,
    replace_damaged,
    salvaged,
    warn_of_damage,
)

#: Words of a message -> the error, and the way out.
FAULTS: dict[str, Fault] = {
    **dict.fromkeys(DAMAGED, (StoreDamagedError, DAMAGED_WAY_OUT)),
    "disk is full": (StoreFullError, "free some space, or name a store elsewhere with CONSTRINT_STORE"),
    "disk I/O error": (StoreFullError, "free some space or see to the disk, or name a store elsewhere"),
    "readonly database": (StoreReadOnlyError, "change its permissions, or name a store elsewhere with CONSTRINT_STORE"),
    "unable to open": (StoreReadOnlyError, "see that its folder can be written to, or name a store elsewhere"),
    "database is locked": (StoreError, "another process has been writing for a long time; end it or try again later"),
}


class SqliteBackend:
    """A database in one file."""

    def address(self, url: URL) -> URL | None:
        """The address of a file; None for a database in memory, or one with a host, a user or options."""
        if url.database and url.database != ":memory:" and not (url.query or url.host or url.username or url.port):
            return url_of_file(url.database)
        return None

    def open(self, url: URL, *, is_made: bool) -> Engine:
        """An engine of the store in a file.

        Args:
            url: The address.
            is_made: Whether a missing file is made, a damaged one replaced, and one of an earlier version completed.
                Else no file is changed: a missing store reads as empty, of a damaged one what can be read is read.

        Raises:
            UsageError: When the path is a folder, or a file of something else, which stays as it is.
            StoreError: When it can be neither read nor made.
        """
        path = Path(os.path.realpath(url.database or ""))
        with explained(url), _reached(path):
            if is_made and not has_content(path):
                make(path)
            return self._opened(url, path, is_made) if has_content(path) else in_memory()

    def _opened(self, url: URL, path: Path, is_made: bool) -> Engine:
        damage = damage_of(path)
        if damage:
            refuse_later(path)
        if damage and not is_made:
            warn_of_damage(path, damage)
            return in_memory(salvaged(path))
        if damage:
            replace_damaged(path)
        engine = engine_of(path, is_made)
        try:
            if is_made and not is_read_only(path):
                prepare(engine, self, url)
            else:
                with engine.connect() as connection:
                    check_version(connection, url)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def insert(self, table: Table) -> Any:
        """An `INSERT` statement of the dialect."""
        return sqlite.insert(table)

    def lock(self, connection: Connection, key: int) -> None:
        """Nothing: a transaction that writes has the file to itself."""

    def is_marked(self, connection: Connection) -> bool:
        """Whether the file has the application's id."""
        return bool(connection.exec_driver_sql("PRAGMA application_id").scalar_one() == APPLICATION_ID)

    def mark(self, connection: Connection) -> None:
        """Set the application's id of the file."""
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")

    def file_of(self, url: URL) -> tuple[int, int] | None:
        """Device and inode of the file; None where there is none."""
        return identity_of(Path(url.database or ""))

    def fault(self, error: DBAPIError) -> Fault | None:
        """The fault that the words of a message name."""
        text = " ".join(str(error.orig).split())
        return next((fault for words, fault in FAULTS.items() if words in text), None)


@contextmanager
def _reached(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreReadOnlyError(
            f"the store {clean(path)} cannot be reached or made: {error.strerror}; "
            "name one elsewhere with --store or CONSTRINT_STORE."
        ) from None
