"""Transactions on a store's database: they outlive forks, and follow a file that is replaced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection

from constrint.tune.store.backends import backend_of, explained

T = TypeVar("T")


class Database:
    """Transactions on a store.

    Args:
        url: Address of the store.

    Raises:
        UsageError: When it is no place for a store, or a driver is missing.
        StoreError: When it cannot be opened, or is of a later version.
    """

    def __init__(self, url: URL) -> None:
        self.url, self.backend = url, backend_of(url)
        self._lock = threading.Lock()
        self._open()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one unchanging state."""
        self._follow()
        with explained(self.url), self._engine.connect() as connection:
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run a transaction that writes, all or nothing; on return it is on the disk under the store's name.

        Args:
            work: Body of the transaction; run again where the file was replaced meanwhile.
        """
        while True:
            self._follow()
            with explained(self.url), self._engine.connect() as connection:
                connection.execution_options(writes=True)
                with connection.begin():
                    result = work(connection)
            if not self._is_replaced():
                return result

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose(close=self._process == os.getpid())

    def _open(self) -> None:
        self._engine = self.backend.open(self.url)
        # Every connection from now on is to the file seen here, or to a later one.
        self._engine.dispose()
        self._file, self._process = self.backend.file_of(self.url), os.getpid()

    def _follow(self) -> None:
        """Reconnect in a forked process, and where another process removed or replaced the file."""
        with self._lock:
            if self._process != os.getpid():
                self._inherited = self._engine.pool  # the parent's connections: garbage collection would close them
                self._engine.dispose(close=False)
                self._process = os.getpid()
            if self._is_replaced():
                self._engine.dispose()
                self._open()

    def _is_replaced(self) -> bool:
        return self.backend.file_of(self.url) != self._file
