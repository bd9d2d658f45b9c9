"""Connections to a store's database: what SQLite and PostgreSQL each need to be safe for many processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.exc import OperationalError

from constrint.errors import StoreError, UsageError
from constrint.tune.store.faults import BUSY_S
from constrint.tune.store.place import shown
from constrint.tune.store.schema import META, METADATA, RECORDS, SCHEMA

#: Connections of one process; a search that is still being read holds one.
POOL_SIZE = 8
#: The key under which PostgreSQL lets one process at a time make the tables.
ADVISORY_LOCK = 0x636F6E7374


def engine_of(url: URL) -> Engine:
    """The engine of a store; nothing is connected yet.

    Raises:
        UsageError: When the driver for PostgreSQL is missing.
    """
    if url.get_backend_name() == "sqlite":
        return _of_file(url)
    try:
        return create_engine(url, pool_size=POOL_SIZE, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except ModuleNotFoundError:
        raise UsageError(
            f"the store {shown(url)} needs PostgreSQL's driver psycopg: pip install 'constrint[postgres]'."
        ) from None


def _of_file(url: URL) -> Engine:
    engine = create_engine(_address(url), pool_size=POOL_SIZE, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin below, not inside the driver
        connection.execute("PRAGMA synchronous = FULL")  # what a call returned for is on the disk

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its turn when it begins: what has read already could not wait for another writer.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def is_read_only(path: Path) -> bool:
    """Whether there is a store that this user may read but not write."""
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _address(url: URL) -> URL:
    """A file that may not be written is opened so that SQLite writes nothing beside it either."""
    path = Path(url.database or "")
    if not is_read_only(path):
        return url
    is_still = not path.with_name(path.name + "-wal").exists()
    options = {"mode": "ro", "uri": "true", **({"immutable": "1"} if is_still else {})}
    return url.set(database=f"file:{quote(str(path))}", query=options)


def prepare(engine: Engine, url: URL) -> None:
    """Make the tables where they are missing, and see that this version can read them.

    Raises:
        StoreError: When the store is of a later version, or a database of something else.
    """
    with engine.connect() as connection:
        if not inspect(connection).has_table(META.name):
            foreign = inspect(connection).get_table_names() if engine.name == "sqlite" else []
            if foreign:
                raise UsageError(f"{shown(url)} holds tables of something else ({foreign[0]}); name another store.")
            connection.rollback()
            _make_tables(engine)
        seen = connection.execute(select(META.c.value).where(META.c.name == "schema")).scalar_one_or_none()
    if seen is None or not str(seen).isdecimal() or int(seen) > SCHEMA:
        raise StoreError(
            f"the store {shown(url)} has schema {seen}, and this version of constrint reads up to {SCHEMA}. "
            "Upgrade constrint, or name another store with --store or CONSTRINT_STORE."
        )


def _make_tables(engine: Engine) -> None:
    if engine.name == "sqlite":
        _write_ahead(engine)
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if engine.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
        if not inspect(connection).has_table(META.name):
            METADATA.create_all(connection, tables=[META, RECORDS])
            connection.execute(insert(META), {"name": "schema", "value": str(SCHEMA)})


def _write_ahead(engine: Engine) -> None:
    """Readers and one writer at a time do not wait for each other; the file remembers it."""
    end = time.monotonic() + BUSY_S
    while True:
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            # Whoever comes second is refused at once, without waiting for the first.
            if "locked" not in str(error) or time.monotonic() > end:
                raise OperationalError("PRAGMA journal_mode = WAL", None, error) from error
            time.sleep(0.01)
        finally:
            raw.close()
