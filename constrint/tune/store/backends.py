"""The databases that may hold a store, one file each: SQLite, PostgreSQL; and the rules that all of them share.

A back-end opens an engine with its tables made, lets one process at a time make them, and explains its faults. The
store itself (`store.py`) knows none by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, Table, insert, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from constrint.errors import StoreError, UsageError
from constrint.tune.store.schema import META, METADATA, RECORDS, SCHEMA

#: Connections of one process; a query that is still being read holds one.
POOL_SIZE = 8
#: Class of an error, and the way out.
Fault = tuple[type[StoreError], str]
OTHERWISE = "see that the server runs and the URL is right, or name another store"
#: Key of the lock under which one process at a time makes the tables.
ADVISORY_LOCK = 0x636F6E7374


class StoreBackend(Protocol):
    """A database that may hold a store."""

    def address(self, url: URL) -> URL | None:
        """The complete address of a named one; None where it is no place for a store."""

    def open(self, url: URL) -> Engine:
        """An engine of a store whose tables exist.

        Raises:
            UsageError: When it is no place for a store, or a driver is missing.
            StoreError: When it cannot be opened, or is of a later version.
        """

    def insert(self, table: Table) -> Any:
        """An `INSERT` statement of the dialect, with `ON CONFLICT`."""

    def lock(self, connection: Connection, key: int) -> None:
        """Wait, inside a transaction that writes, for every other process with the same key."""

    def file_of(self, url: URL) -> tuple[int, int] | None:
        """Identity of the file, which changes when the file is replaced; None where there is no file."""

    def fault(self, error: DBAPIError) -> Fault | None:
        """The class of a complaint of the database, and the way out; None for an unknown one."""


_BACKENDS = {
    "sqlite": "constrint.tune.store.sqlite:SqliteBackend",
    "postgresql": "constrint.tune.store.postgres:PostgresBackend",
    "postgres": "constrint.tune.store.postgres:PostgresBackend",
}


@cache
def backend_named(name: str) -> StoreBackend | None:
    """The back-end of a URL's scheme; None where there is none."""
    if name not in _BACKENDS:
        return None
    module, _, attribute = _BACKENDS[name].partition(":")
    backend: StoreBackend = getattr(import_module(module), attribute)()
    return backend


def backend_of(url: URL) -> StoreBackend:
    """The back-end of a store's address, as `url_of` made it."""
    backend = backend_named(url.get_backend_name())
    if backend is None:
        raise UsageError(f"{shown(url)} cannot hold records.")
    return backend


def shown(url: URL) -> str:
    """The address as it may be printed: the path of a file, or a URL without its password."""
    # Bytes of a file's name that are no text are escaped.
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database.encode(errors="backslashreplace").decode()
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def prepare(engine: Engine, url: URL) -> None:
    """Make the tables where they are missing, and check that this version can read them.

    Raises:
        StoreError: When the store is of a later version.
    """
    with engine.connect() as connection:
        has_tables = inspect(connection).has_table(META.name)
    if not has_tables:
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            backend_of(url).lock(connection, ADVISORY_LOCK)
            if not inspect(connection).has_table(META.name):
                METADATA.create_all(connection, tables=[META, RECORDS])
                connection.execute(insert(META), {"name": "schema", "value": str(SCHEMA)})
    with engine.connect() as connection:
        version = connection.execute(select(META.c.value).where(META.c.name == "schema")).scalar_one_or_none()
    if version is None or not str(version).isdecimal() or int(version) > SCHEMA:
        raise StoreError(
            f"the store {shown(url)} has schema {version}, and this version of constrint reads up to {SCHEMA}. "
            "Upgrade constrint, or name another store with --store or CONSTRINT_STORE."
        )


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """Raise a database's complaint inside the block as a `StoreError` with the way out."""
    try:
        yield
    except DBAPIError as error:
        text = " ".join(str(error.orig).split())
        kind, way_out = backend_of(url).fault(error) or (StoreError, OTHERWISE)
        raise kind(f"the store {shown(url)} failed: {text}; {way_out}.") from error
    except PoolTimeoutError as error:
        raise StoreError(f"the store {shown(url)} has no free connection: close some searches of it.") from error
