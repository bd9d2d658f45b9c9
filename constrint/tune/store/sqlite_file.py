"""A store's file in SQLite: whose it is, how it is made, what is damaged, and what can be read of it.

A file is a store's by its application id, or by our table in it, which stores of earlier versions have alone. No other
file is moved, renamed or written.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError

from constrint.errors import UsageError
from constrint.tune.store.alone import alone_in
from constrint.tune.store.backends import POOL_SIZE, SEALED, check_version, clean, fill, is_intact
from constrint.tune.store.place import WAYS
from constrint.tune.store.proposals import PROPOSALS
from constrint.tune.store.schema import CHECKSUM, META, METADATA, RECORDS, SCHEMA

#: First bytes of every SQLite file, and the place of the application's id.
HEADER, ID_AT = b"SQLite format 3\0", slice(68, 72)
#: Our table as SQLite's first page spells it; a page has at most so many bytes.
MARK, MAX_PAGE_BYTES = f"CREATE TABLE {META.name} (".encode(), 65536
#: Whose a file is.
OURS, OTHERS, NO_DATABASE = "ours", "a database of another program", "no database"
#: Ends of the names of a store's journal and its index.
COMPANIONS = ("-wal", "-shm")
#: Bytes up to which opening also compares tables and indices, at a second for each 150 MB.
MAX_COMPARED = 64 * 2**20
#: Least bytes of a row: in a sequence of as many unreadable rows as a file may have, the rest of a table is lost.
MIN_ROW_BYTES = 200
#: Bytes of a file that SQLite takes for an empty one: it would remove its journal, even where it may only read.
AS_EMPTY = 1
#: Age in seconds of a store in the making whose process was killed.
LEFT_S = 3600.0
Rows = Iterable[tuple[Table, Mapping[str, Any]]]


class DamagedStoreWarning(UserWarning):
    """Issued when a store is damaged or empty: what is read of it, and where the file is."""


def has_content(path: Path) -> bool:
    """Whether a file holds a store; False where it is missing or empty.

    Raises:
        UsageError: When it is a folder, or something else's file.
        OSError: When it cannot be read.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(
            f"the store {clean(path)} is a folder; name a file in it, such as {clean(path / 'records.sqlite')}."
        )
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{clean(path)} is no file that could hold a store. {_WAYS_OUT}")
    if not status.st_size:
        text = f"the store {clean(path)} has 0 bytes: it is read as an empty one, and what it held before is lost."
        warnings.warn(text, DamagedStoreWarning, stacklevel=6)
        return False
    kind = _kind_of(path)
    if kind != OURS:
        size = f"{status.st_size:,} byte" + "s" * (status.st_size != 1)
        raise UsageError(f"{clean(path)} is no store: it is {kind}, of {size}, and was left as it is. {_WAYS_OUT}")
    return True


_WAYS_OUT = f"{WAYS[0].upper()}{WAYS[1:]}."


def _kind_of(path: Path) -> str:
    """Whose a file is: `OURS`, `OTHERS` or `NO_DATABASE`; nothing is written beside it.

    SQLite reads it: a process that opened and closed it in another way would lose its locks on it.
    """
    raw = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
    raw.text_factory = as_text
    try:
        (application,) = raw.execute("PRAGMA application_id").fetchone()
        if application:
            return OURS if application == APPLICATION_ID else OTHERS
        names = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
        # The tables of a store that an earlier version made, and that was killed early, are in the journal alone.
        is_ours = META.name in names or (
            not names and MARK in _start_of(path.with_name(path.name + "-wal"), MAX_COMPARED)
        )
        return OURS if is_ours else OTHERS
    except (sqlite3.Error, UnicodeError):
        page = _start_of(path, MAX_PAGE_BYTES)
    finally:
        raw.close()
    is_database, application = page.startswith(HEADER), int.from_bytes(page[ID_AT], "big")
    if application == APPLICATION_ID or (is_database and not application and MARK in page):
        return OURS
    return OTHERS if is_database else NO_DATABASE


def _start_of(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""


def make(path: Path, rows: Rows = ()) -> None:
    """Make a store with these rows where there is none; other processes see all of it or nothing.

    Raises:
        OSError, DBAPIError: When it cannot be made; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        if identity_of(path) is None or not path.stat().st_size:
            _make(path, rows, _free_name(path))


def _make(path: Path, rows: Rows, aside: Path) -> int:
    """Write a store under another name, put what is there aside, and the store in place; returns the number of rows."""
    with _another_name(path) as fresh:
        engine = engine_of(fresh, is_written=True)
        try:
            with engine.connect().execution_options(writes=True) as connection, connection.begin():
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                METADATA.create_all(connection)
                connection.execute(META.insert(), {"name": "schema", "value": str(SCHEMA)})
                num_rows = fill(connection, rows)
            # Readers and one writer at a time do not wait for each other; the file remembers the mode.
            raw = engine.raw_connection()
            raw.cursor().execute("PRAGMA journal_mode = WAL")
            raw.close()
        finally:
            engine.dispose()
        _put_aside(path, aside)
        os.replace(fresh, path)
        _sync(path.parent)
        return num_rows


@contextmanager
def _another_name(path: Path) -> Iterator[Path]:
    for left in path.parent.glob(".constrint-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_S:
                left.unlink()
    fresh = path.with_name(f".constrint-{secrets.token_hex(8)}")
    try:
        yield fresh
    finally:
        for companion in ("", *COMPANIONS, "-journal"):
            with suppress(OSError):
                fresh.with_name(fresh.name + companion).unlink()


def _sync(folder: Path) -> None:
    """Put a folder's names on the disk, where folders can be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def damage_of(path: Path) -> str:
    """SQLite's finding about a damaged store; empty where it is whole or absent."""
    before = identity_of(path)
    if before is None:
        return ""
    if path.stat().st_size <= AS_EMPTY:
        return "all but its journal is lost"
    engine = engine_of(path, is_written=False)
    try:
        with engine.connect() as connection:
            inspector = inspect(connection)
            names = set(inspector.get_table_names())
            # Stores of earlier versions lack one table; tables that somebody has added are no damage.
            lost = METADATA.tables.keys() - names
            if lost - {PROPOSALS.name} or (lost and names - METADATA.tables.keys()):
                return f"it lacks {', '.join(sorted(lost))}"
            for name in names & METADATA.tables.keys():
                lost = set(METADATA.tables[name].c.keys()) - {CHECKSUM}
                lost -= {column["name"] for column in inspector.get_columns(name)}
                if lost:
                    return f"the table {name} lacks {', '.join(sorted(lost))}"
            check = "integrity_check" if path.stat().st_size <= MAX_COMPARED else "quick_check"
            finding = str(connection.exec_driver_sql(f"PRAGMA {check}(1)").scalar_one())
            return "" if finding == "ok" else " ".join(finding.split())
    except UnicodeError:
        return "its schema is not in UTF-8"
    except DBAPIError as error:
        if any(sign in str(error.orig) for sign in DAMAGED):
            return " ".join(str(error.orig).split())
        if identity_of(path) == before:
            raise
    finally:
        engine.dispose()
    return damage_of(path)  # another process replaced the file during the check


def warn_of_damage(path: Path, damage: str) -> None:
    """Warn the reader of a damaged store."""
    warnings.warn(
        f"the store {clean(path)} is damaged ({clean(damage)}). What can be read of it is read; the next command that "
        "writes records, such as `constrint records import`, puts the file aside and copies this to a fresh one.",
        DamagedStoreWarning,
        stacklevel=7,
    )


def replace_damaged(path: Path) -> None:
    """Put a damaged store aside, and copy what can be read of it to a fresh one, unless another process just did.

    Raises:
        StoreError: When it may not be moved, or is of a later version.
    """
    if is_read_only(path):
        raise UsageError(f"the store {clean(path)} is damaged, and may not be moved; name another store.")
    with alone_in(path.parent):
        damage = damage_of(path)
        if not damage:
            return
        aside = _free_name(path)
        num_rows = _make(path, salvaged(path), aside)
        # What a process added meanwhile. Whoever adds from now on sees that the file was replaced, and adds again.
        engine = engine_of(path, is_written=True)
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            num_rows += fill(connection, salvaged(aside))
        engine.dispose()
    warnings.warn(
        f"the store {clean(path)} is damaged ({clean(damage)}). It is kept as {clean(aside)}, and a fresh one is begun "
        f"with the {num_rows:,} records and proposals that can be read.",
        DamagedStoreWarning,
        stacklevel=7,
    )


def refuse_later(path: Path) -> None:
    """Refuse a damaged store of a later version, as a whole one is refused.

    Raises:
        StoreError: Names the version.
    """
    if path.stat().st_size <= AS_EMPTY:
        return
    engine = engine_of(path, is_written=False)
    try:
        with suppress(DBAPIError, UnicodeError), engine.connect() as connection:
            if inspect(connection).has_table(META.name):
                version = connection.exec_driver_sql(f"SELECT value FROM {META.name} WHERE name = 'schema'").scalar()
                if str(version).isdecimal():
                    check_version(connection, URL.create("sqlite", database=str(path)))
    finally:
        engine.dispose()


def _free_name(path: Path) -> Path:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{day}" + (f"-{n}" if n else "")) for n in range(10**6))
    return next(
        name for name in names if not any(name.with_name(name.name + one).exists() for one in ("", *COMPANIONS))
    )


def _put_aside(path: Path, aside: Path) -> None:
    """Give a store's file a second name, and its journal that name alone: a fresh file must never meet it."""
    if path.exists() and path.stat().st_size:
        try:
            os.link(path, aside)
        except OSError:
            shutil.copyfile(path, aside)
    for companion in COMPANIONS:
        # A process that closes the file removes the companions.
        with suppress(FileNotFoundError):
            os.replace(path.with_name(path.name + companion), aside.with_name(aside.name + companion))


def salvaged(path: Path) -> Iterator[tuple[Table, dict[str, Any]]]:
    """The rows of a damaged store that are as they were written; read from a copy, so that the file stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        for companion in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + companion), copy.with_name(copy.name + companion))
        if copy.stat().st_size <= AS_EMPTY or not _has_tables(copy):
            _lend_schema(copy)
        most = copy.stat().st_size // MIN_ROW_BYTES
        with closing(sqlite3.connect(copy)) as raw:
            raw.text_factory = as_text
            for table in SEALED:
                yield from ((table, row) for row in _rows(raw, table, most) if is_intact(table, row))


def _has_tables(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as raw:
        try:
            raw.execute(f"SELECT id, record FROM {RECORDS.name} LIMIT 0")
        except (sqlite3.Error, UnicodeError):
            return False
    return True


def _lend_schema(path: Path) -> None:
    """Give a copy the first page of a fresh store, which has the schema: its tables begin at the same pages."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.sqlite"
        make(fresh)
        page = bytearray(fresh.read_bytes()[: 1 << 12])
    size = int.from_bytes(page[16:18], "big")
    page[28:32] = max(1, path.stat().st_size // size).to_bytes(4, "big")
    with path.open("r+b") as file:
        file.write(page[:size])


def _rows(raw: sqlite3.Connection, table: Table, most: int) -> Iterator[dict[str, Any]]:
    """The rows of a table in SQLite's order, past those that cannot be read, up to `most` in a sequence."""
    at, num_failed = 0, 0
    names: list[str] = []
    with suppress(sqlite3.Error, UnicodeError):
        there = {row[1] for row in raw.execute(f"PRAGMA table_info({table.name})")}
        names = [column.name for column in table.c if column.name in there]
    if not names:
        return
    columns = ", ".join(f'"{name}"' for name in names)
    query = f"SELECT rowid, {columns} FROM {table.name} NOT INDEXED WHERE rowid > ? ORDER BY 1"
    while num_failed <= most:
        before = at
        try:
            for number, *values in raw.execute(query, (before,)):
                at, num_failed = number, 0
                yield dict.fromkeys(table.c.keys()) | dict(zip(names, values, strict=True))
            return
        except (sqlite3.Error, UnicodeError):
            at, num_failed = max(at, before) + 1, num_failed + 1


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
