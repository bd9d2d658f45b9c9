"""The databases that may hold a store, one file each: SQLite, PostgreSQL; and the rules that all of them share.

A back-end opens an engine with its tables made, lets one process at a time make them, and explains its faults. The
store itself (`store.py`) knows none by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, quote_plus

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    StaticPool,
    Table,
    bindparam,
    create_engine,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from constrint.errors import StoreDamagedError, StoreError, UsageError
from constrint.tune.store.proposals import PROPOSALS, ProposalRecord, proposal_columns
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.schema import CHECKSUM, META, METADATA, RECORDS, SCHEMA, read_row, record_columns, sealed

#: Connections of one process; a query that is still being read holds one.
POOL_SIZE = 8
#: Class of an error, and the way out.
Fault = tuple[type[StoreError], str]
DAMAGED_WAY_OUT = "open it again: what can be read is then copied to a fresh one"
OTHERWISE = "see that the server runs and the URL is right, or name another store"
#: Key of the lock under which one process at a time makes the tables.
ADVISORY_LOCK = 0x636F6E7374
#: Rows of one read, or of one statement.
CHUNK = 500
#: Tables whose rows have a checksum: column of the JSON, its type, and the columns that are computed from it.
SEALED: dict[Table, tuple[str, Any, Callable[[Any], Mapping[str, Any]]]] = {
    RECORDS: ("record", TuningRecord, record_columns),
    PROPOSALS: ("proposal", ProposalRecord, proposal_columns),
}
#: The beginning of a URL, also of one that lacks its slashes.
SCHEME = re.compile(r"[\w.+-]*://|(?:sqlite|postgres|postgresql)(?:\+\w+)?:")


class StoreBackend(Protocol):
    """A database that may hold a store."""

    def address(self, url: URL) -> URL | None:
        """The complete address of a named one; None where it is no place for a store."""

    def open(self, url: URL, *, is_made: bool) -> Engine:
        """An engine of a store.

        Args:
            url: Its address.
            is_made: Whether it may be made and written. Else nothing is written, and a missing store reads as empty.

        Raises:
            UsageError: When it is no place for a store, or a driver is missing.
            StoreError: When it cannot be opened, or is of a later version.
        """

    def insert(self, table: Table) -> Any:
        """An `INSERT` statement of the dialect, with `ON CONFLICT`."""

    def lock(self, connection: Connection, key: int) -> None:
        """Wait, inside a transaction that writes, for every other process with the same key."""

    def is_marked(self, connection: Connection) -> bool:
        """Whether the database says that it is a store."""

    def mark(self, connection: Connection) -> None:
        """Let the database say that it is a store, inside a transaction that writes."""

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


def shown(address: URL | str) -> str:
    """A store's address as it may be printed: the path of a file, or a URL without user, password and options.

    Every message, page and document prints addresses by this function.
    """
    if isinstance(address, str):
        if not SCHEME.match(address):
            return clean(address)
        try:
            return shown(make_url(address))
        except (ArgumentError, ValueError):
            return f"{address.partition(':')[0]}:..."
    if address.get_backend_name() == "sqlite" and address.database:
        return clean(address.database)
    host = f"[{address.host}]" if ":" in (address.host or "") else address.host or ""
    port = f":{address.port}" if address.port else ""
    return clean(f"{address.get_backend_name()}://{host}{port}/{address.database or ''}")


def clean(text: str | Path) -> str:
    """Text of a file's name, or from a database, with the characters escaped that a terminal would act on."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(text))


def without_secrets(text: str, url: URL) -> str:
    """A driver's message on one line, without user, password and options of the address."""
    values = [value for many in url.query.values() for value in ([many] if isinstance(many, str) else many)]
    plain = [str(part) for part in (url.password, url.username, *values) if part]
    for part in sorted({*plain, *map(quote, plain), *map(quote_plus, plain)}, key=len, reverse=True):
        text = text.replace(part, "***")
    return clean(" ".join(text.split()))


def prepare(engine: Engine, backend: StoreBackend, url: URL) -> None:
    """Make the tables, columns and checksums that a store lacks, and check that this version can read it.

    Raises:
        StoreError: When the store is of a later version.
    """
    with engine.connect() as connection:
        layout = layout_of(connection)
        if layout.get(META.name):
            check_version(connection, url)
        is_whole = layout.keys() == METADATA.tables.keys() and all(CHECKSUM in layout[t.name] for t in SEALED)
        if is_whole and backend.is_marked(connection):
            return
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        backend.lock(connection, ADVISORY_LOCK)
        backend.mark(connection)
        METADATA.create_all(connection)
        if not connection.execute(select(META.c.value).where(META.c.name == "schema")).first():
            connection.execute(insert(META), {"name": "schema", "value": str(SCHEMA)})
        for table, missing in layout_of(connection).items():
            if METADATA.tables[table] in SEALED and CHECKSUM not in missing:
                _seal(connection, METADATA.tables[table])


def check_version(connection: Connection, url: URL) -> None:
    """Refuse the store of a later version.

    Raises:
        StoreError: Names both versions.
    """
    version = connection.execute(select(META.c.value).where(META.c.name == "schema")).scalar_one_or_none()
    if version is None or not str(version).isdecimal() or int(version) > SCHEMA:
        raise StoreError(
            f"the store {shown(url)} has schema {clean(str(version))}, and this version of constrint reads up to "
            f"{SCHEMA}. Upgrade constrint, or name another store with --store or CONSTRINT_STORE."
        )


def layout_of(connection: Connection) -> dict[str, set[str]]:
    """The columns of each of a store's tables that is there."""
    inspector = inspect(connection)
    there = [name for name in METADATA.tables if inspector.has_table(name)]
    return {name: {column["name"] for column in inspector.get_columns(name)} for name in there}


def _seal(connection: Connection, table: Table) -> None:
    """Give the rows of an earlier version their checksums; rows that are not as they were written get none."""
    connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {CHECKSUM} VARCHAR(32)")
    names = connection.execute(select(table.c.id).order_by(table.c.id)).scalars().all()
    for at in range(0, len(names), CHUNK):
        rows = connection.execute(select(table).where(table.c.id.in_(names[at : at + CHUNK]))).mappings()
        checked = [
            {"sealed_id": row["id"], CHECKSUM: sealed(row)[CHECKSUM]}
            for row in map(dict, rows)
            if is_intact(table, row)
        ]
        if checked:
            change = update(table).where(table.c.id == bindparam("sealed_id"))
            connection.execute(change.values({CHECKSUM: bindparam(CHECKSUM)}), checked)


def is_intact(table: Table, row: Mapping[str, Any]) -> bool:
    """Whether a row is as it was written, and readable."""
    return not isinstance(read_row(row, *SEALED[table]), str)


def in_memory(rows: Iterable[tuple[Table, Mapping[str, Any]]] = ()) -> Engine:
    """An engine of a store in memory with these rows: what a store that is missing, or damaged, reads as."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with engine.connect() as connection, connection.begin():
        METADATA.create_all(connection)
        fill(connection, rows)
    return engine


def fill(connection: Connection, rows: Iterable[tuple[Table, Mapping[str, Any]]]) -> int:
    """Insert rows with their checksums, of several with the same id the first one; returns their number."""
    num_rows = 0
    for table, row in rows:
        statement = sqlite.insert(table).on_conflict_do_nothing().returning(table.c.id)
        num_rows += len(connection.execute(statement, sealed(row)).all())
    return num_rows


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """Raise a database's complaint inside the block as a `StoreError` with the way out."""
    # The causes of these errors may have the password in their text.
    try:
        yield
    except DBAPIError as error:
        kind, way_out = backend_of(url).fault(error) or (StoreError, OTHERWISE)
        raise kind(f"the store {shown(url)} failed: {without_secrets(str(error.orig), url)}; {way_out}.") from None
    except PoolTimeoutError:
        raise StoreError(f"the store {shown(url)} has no free connection: close some searches of it.") from None
    except UnicodeError:
        raise StoreDamagedError(
            f"the store {shown(url)} failed: its text is not in UTF-8; {DAMAGED_WAY_OUT}."
        ) from None
    except ArgumentError as error:
        reason = without_secrets(str(error), url)
        raise UsageError(f"the store {shown(url)} cannot be opened: {reason}; {OTHERWISE}.") from None
