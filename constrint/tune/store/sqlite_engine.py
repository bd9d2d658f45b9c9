"""Connections to an SQLite file: their settings, and how a file is opened that must not change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event

from constrint.tune.store.backends import POOL_SIZE

#: Seconds that a writer waits for the writers before it.
BUSY_S = 60.0
#: SQLite's `application_id` of every store, bytes 68 to 71 of the file.
APPLICATION_ID = 0x0C057817
#: Messages of SQLite about a file that is no longer a database.
DAMAGED = ("malformed", "not a database", "unsupported file format")


def engine_of(path: Path, is_written: bool) -> Engine:
    """An engine whose transactions are serialised and durable; nothing is connected yet.

    Args:
        path: The file.
        is_written: Whether it may be written. Else no byte of the store changes.
    """
    engine = create_engine(_address(path, is_written), pool_size=POOL_SIZE, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin below, not inside the driver
        connection.text_factory = as_text
        connection.execute("PRAGMA synchronous = FULL")  # a call that returned is on the disk
        if not is_written:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its turn when it begins: a transaction that has read could not wait for another writer.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def as_text(value: bytes) -> str:
    """Text of a database, also where damage has left bytes that are no UTF-8."""
    return value.decode(errors="surrogateescape")


def is_read_only(path: Path) -> bool:
    """Whether there is a store that this user may read but not write."""
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _address(path: Path, is_written: bool) -> URL:
    """The address to connect to.

    A file that may not be written is opened so that SQLite writes nothing beside it. Of one that is only read, a
    journal that is there is read and left: SQLite would move it into the file when the last connection closes.
    """
    has_journal = path.with_name(path.name + "-wal").exists()
    is_fixed = is_read_only(path)
    if not is_fixed and (is_written or not has_journal):
        return URL.create("sqlite", database=str(path))
    options = {"mode": "ro", "uri": "true", **({} if has_journal else {"immutable": "1"})}
    return URL.create("sqlite", database=f"file:{quote(str(path))}", query=options)
