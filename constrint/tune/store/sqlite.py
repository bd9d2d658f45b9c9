"""SQLite as a store: a file, safe for many processes; a damaged file is set aside and work goes on with a fresh one."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, inspect
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, OperationalError

from constrint.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError, UsageError
from constrint.tune.store.alone import alone_in
from constrint.tune.store.backends import POOL_SIZE, Fault, explained, prepare, shown
from constrint.tune.store.place import WAYS, default_path, url_of_file
from constrint.tune.store.schema import META

#: Seconds that a writer waits for the writers before it.
BUSY_S = 60.0
#: First bytes of every SQLite file.
HEADER = b"SQLite format 3\0"
#: Names that mark a store whose first bytes are lost.
SUFFIXES = (".sqlite", ".sqlite3", ".db")
#: Parts of a store: journal, its index, and the file itself, which is moved last: a fresh file must never meet
#: the journal of the old one.
COMPANIONS = ("-wal", "-shm", "")
#: Messages of SQLite about a file that is no longer a database.
DAMAGED = ("malformed", "not a database", "unsupported file format")
#: Words of a message -> the error, and the way out.
FAULTS: dict[str, Fault] = {
    **dict.fromkeys(DAMAGED, (StoreDamagedError, "open it again: it is then set aside, and a fresh one begun")),
    "disk is full": (StoreFullError, "free some space, or name a store elsewhere with CONSTRINT_STORE"),
    "disk I/O error": (StoreFullError, "free some space or see to the disk, or name a store elsewhere"),
    "readonly database": (StoreReadOnlyError, "change its permissions, or name a store elsewhere with CONSTRINT_STORE"),
    "unable to open": (StoreReadOnlyError, "see that its folder can be written to, or name a store elsewhere"),
    "database is locked": (StoreError, "another process has been writing for a long time; end it or try again later"),
}


class DamagedStoreWarning(UserWarning):
    """Issued once when a damaged store was set aside."""


class SqliteBackend:
    """A database in one file."""

    def address(self, url: URL) -> URL | None:
        """The address of a file; None for a database in memory, or one with options."""
        if url.database and url.database != ":memory:" and not url.query:
            return url_of_file(url.database)
        return None

    def open(self, url: URL) -> Engine:
        """An engine of the store in a file, which is made where it is missing and replaced where it is damaged.

        Raises:
            UsageError: When the path is a folder, or a file of something else.
            StoreError: When it can be neither read nor made.
        """
        path = Path(url.database or "")
        if _is_dir(path):
            raise UsageError(f"the store {path} is a folder; name a file in it, such as {path / 'records.sqlite'}.")
        with explained(url), _folder_of(path):
            damage = damage_of(url)
            if damage:
                _replace(url, damage)
            engine = _engine_of(url)
            try:
                _refuse_foreign(engine, url)
                prepare(engine, url)
            except BaseException:
                engine.dispose()
                raise
            return engine

    def insert(self, table: Table) -> Any:
        """An `INSERT` statement of the dialect."""
        return sqlite.insert(table)

    def lock(self, connection: Connection, key: int) -> None:
        """Nothing: a transaction that writes has the file to itself."""

    def file_of(self, url: URL) -> tuple[int, int] | None:
        """Device and inode of the file; None where there is none."""
        return _identity(Path(url.database or ""))

    def fault(self, error: DBAPIError) -> Fault | None:
        """The fault that the words of a message name."""
        text = " ".join(str(error.orig).split())
        return next((fault for words, fault in FAULTS.items() if words in text), None)


def damage_of(url: URL) -> str:
    """SQLite's finding about a damaged file; empty where it is whole, empty or absent."""
    path = Path(url.database or "")
    try:
        if not path.stat().st_size:
            return ""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    before, engine = _identity(path), _engine_of(url)
    try:
        with engine.connect() as connection:
            finding = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
            return "" if finding == "ok" else " ".join(finding.split())
    except DBAPIError as error:
        if any(sign in str(error.orig) for sign in DAMAGED):
            return str(error.orig)
        if _identity(path) == before:
            raise
    finally:
        engine.dispose()
    return damage_of(url)  # another process set the file aside during the check


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_read_only(path: Path) -> bool:
    """Whether there is a store that this user may read but not write."""
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _engine_of(url: URL) -> Engine:
    """An engine whose transactions are serialised and durable; nothing is connected yet."""
    engine = create_engine(_address(url), pool_size=POOL_SIZE, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin below, not inside the driver
        connection.execute("PRAGMA synchronous = FULL")  # a call that returned is on the disk

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its turn when it begins: a transaction that has read could not wait for another writer.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _address(url: URL) -> URL:
    """The address to connect to: a file that may not be written is opened so that SQLite writes nothing beside it."""
    path = Path(url.database or "")
    if not is_read_only(path):
        return url
    is_still = not path.with_name(path.name + "-wal").exists()
    options = {"mode": "ro", "uri": "true", **({"immutable": "1"} if is_still else {})}
    return url.set(database=f"file:{quote(str(path))}", query=options)


def _refuse_foreign(engine: Engine, url: URL) -> None:
    """Prepare a file without tables of a store for writing; refuse one with other tables."""
    with engine.connect() as connection:
        names = inspect(connection).get_table_names()
    if META.name in names:
        return
    if names:
        raise UsageError(f"{shown(url)} holds tables of something else ({names[0]}); name another store.")
    _write_ahead(engine)


def _write_ahead(engine: Engine) -> None:
    """Let readers and one writer at a time not wait for each other; the file remembers the mode."""
    end = time.monotonic() + BUSY_S
    while True:
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            # The second process is refused at once, without waiting for the first.
            if "locked" not in str(error) or time.monotonic() > end:
                raise OperationalError("PRAGMA journal_mode = WAL", None, error) from error
            time.sleep(0.01)
        finally:
            raw.close()


def _replace(url: URL, damage: str) -> None:
    """Set a damaged file aside, unless another process just did."""
    path = Path(url.database or "")
    try:
        with path.open("rb") as file:
            start = file.read(len(HEADER))
    except FileNotFoundError:
        return
    # A damaged file is not empty: an empty one is the fresh store of another process.
    if start and start != HEADER and path != default_path() and path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is no store: {damage}. {WAYS[0].upper()}{WAYS[1:]}.")
    if is_read_only(path):
        raise UsageError(f"the store {path} is damaged ({damage}), and may not be moved; name another store.")
    with alone_in(path.parent):
        if not damage_of(url):
            return
        aside = _free_name(path)
        for companion in COMPANIONS:
            # A process that closes the file removes the companions.
            with suppress(FileNotFoundError):
                os.replace(path.with_name(path.name + companion), aside.with_name(aside.name + companion))
    warnings.warn(
        f"the store {path} is damaged ({damage}). It is kept as {aside}, and a fresh one is begun.",
        DamagedStoreWarning,
        stacklevel=5,
    )


def _free_name(path: Path) -> Path:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{day}" + (f"-{n}" if n else "")) for n in range(10**6))
    return next(name for name in names if not name.exists())


def _is_dir(path: Path) -> bool:
    """Whether a path is a folder.

    Raises:
        StoreError: When its folder cannot be read.
    """
    try:
        return path.is_dir()
    except OSError as error:
        raise StoreError(f"the store {path} cannot be reached: {error.strerror}; name one elsewhere.") from None


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StoreReadOnlyError(
            f"the store {path} cannot be made: {error.strerror}; name one elsewhere with --store or CONSTRINT_STORE."
        ) from error
