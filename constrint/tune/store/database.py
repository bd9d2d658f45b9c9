"""A store's database as one process uses it: it outlives forks, and follows a file that is replaced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine

from constrint.tune.store.connection import engine_of, prepare
from constrint.tune.store.damage import open_file
from constrint.tune.store.faults import told

T = TypeVar("T")


class Database:
    """Transactions on a store.

    Args:
        url: Where it is.

    Raises:
        UsageError: When it is no place for a store, or PostgreSQL's driver is missing.
        StoreError: When it cannot be opened, or is of a later version.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._open()

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads: what it sees does not change."""
        self._follow()
        with told(self.url), self._engine.connect() as connection:
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do work that writes, all or nothing; when it returns, it is on the disk under the store's name.

        Args:
            work: What is done in the transaction. It is done again where the file was replaced meanwhile.
        """
        while True:
            self._follow()
            with told(self.url), self._engine.connect() as connection:
                connection.execution_options(writes=True)
                with connection.begin():
                    result = work(connection)
            if not self._is_replaced():
                return result

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose(close=self._process == os.getpid())

    def _open(self) -> None:
        self._engine = open_file(self.url) if self.url.get_backend_name() == "sqlite" else _server(self.url)
        # Whatever is connected from now on is the file that is seen here, or one that came later.
        self._engine.dispose()
        self._file, self._process = _file_of(self.url), os.getpid()

    def _follow(self) -> None:
        """Connect anew in a forked process, and where the file was removed or set aside by another one."""
        with self._lock:
            if self._process != os.getpid():
                self._inherited = self._engine.pool  # the parent's connections: what is collected would be closed
                self._engine.dispose(close=False)
                self._process = os.getpid()
            if self._is_replaced():
                self._engine.dispose()
                self._open()

    def _is_replaced(self) -> bool:
        return _file_of(self.url) != self._file


def _server(url: URL) -> Engine:
    engine = engine_of(url)
    try:
        with told(url):
            prepare(engine, url)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _file_of(url: URL) -> tuple[int, int] | None:
    """What tells a file from another one of the same name; None where there is none, and for servers."""
    if url.get_backend_name() != "sqlite":
        return None
    try:
        seen = os.stat(url.database or "")
    except OSError:
        return None
    return seen.st_dev, seen.st_ino
