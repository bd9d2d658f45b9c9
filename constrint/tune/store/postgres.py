"""PostgreSQL as a store, for a team whose machines share their measurements."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from constrint.errors import StoreFullError, StoreReadOnlyError, UsageError
from constrint.tune.store.backends import POOL_SIZE, Fault, check_version, explained, in_memory, prepare, shown
from constrint.tune.store.schema import META

CONNECT = {"connect_timeout": 10}
#: Beginning of an SQLSTATE code -> the error, and the way out.
STATES: dict[str, Fault] = {
    "53100": (StoreFullError, "the server has no room for it; ask its administrator, or name another store"),
    "25006": (StoreReadOnlyError, "the server takes no writes now; name the primary, or another store"),
    "42501": (StoreReadOnlyError, "the user may not do this; ask for the right, or name another store"),
}


class PostgresBackend:
    """A database of a PostgreSQL server."""

    def address(self, url: URL) -> URL:
        """The address with the driver's name."""
        return url.set(drivername="postgresql+psycopg")

    def open(self, url: URL, *, is_made: bool) -> Engine:
        """An engine of a store; `is_made` makes its tables, else nothing is written and a missing store is empty.

        Raises:
            UsageError: When the driver is missing.
            StoreError: When the server cannot be reached, or the store is of a later version.
        """
        try:
            with explained(url):
                engine = create_engine(url, pool_size=POOL_SIZE, pool_pre_ping=True, connect_args=CONNECT)
        except ModuleNotFoundError:
            raise UsageError(
                f"the store {shown(url)} needs PostgreSQL's driver psycopg: pip install 'constrint[postgres]'."
            ) from None
        try:
            with explained(url):
                if is_made:
                    prepare(engine, self, url)
                    return engine
                with engine.connect() as connection:
                    if inspect(connection).has_table(META.name):
                        check_version(connection, url)
                        return engine
            engine.dispose()
            return in_memory()
        except BaseException:
            engine.dispose()
            raise

    def insert(self, table: Table) -> Any:
        """An `INSERT` statement of the dialect."""
        return postgresql.insert(table)

    def lock(self, connection: Connection, key: int) -> None:
        """Take an advisory lock until the end of the transaction."""
        connection.execute(text(f"SELECT pg_advisory_xact_lock({key})"))

    def is_marked(self, connection: Connection) -> bool:
        """True: the names of the tables mark a database."""
        return True

    def mark(self, connection: Connection) -> None:
        """Nothing."""

    def file_of(self, url: URL) -> None:
        """None: a server replaces no file."""

    def fault(self, error: DBAPIError) -> Fault | None:
        """The fault of an SQLSTATE code."""
        code = getattr(error.orig, "sqlstate", None) or ""
        return next((fault for state, fault in STATES.items() if code.startswith(state)), None)
