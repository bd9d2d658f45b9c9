"""Transactions on a store's database: they outlive forks, and follow a file that is replaced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection, StaticPool

from constrint.tune.store.backends import backend_of, explained

T = TypeVar("T")


class Database:
    """Transactions on a store.

    Args:
        url: Address of the store.
        is_made: Whether a missing store is made at once. Else the first transaction that writes makes it, and nothing
            is written before.

    Raises:
        UsageError: When it is no place for a store, or a driver is missing.
        StoreError: When it cannot be opened, or is of a later version.
    """

    def __init__(self, url: URL, *, is_made: bool = True) -> None:
        self.url, self.backend = url, backend_of(url)
        self._lock = threading.Lock()
        self._open(is_made)

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
            self._follow(writes=True)
            with explained(self.url), self._engine.connect() as connection:
                connection.execution_options(writes=True)
                with connection.begin():
                    result = work(connection)
            if not self._is_replaced():
                return result

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose(close=self._process == os.getpid())

    def _open(self, is_made: bool) -> None:
        self._engine = self.backend.open(self.url, is_made=is_made)
        if not self._is_in_memory():
            # Every connection from now on is to the file seen here, or to a later one.
            self._engine.dispose()
        self._file, self._process, self._is_made = self.backend.file_of(self.url), os.getpid(), is_made

    def _follow(self, *, writes: bool = False) -> None:
        """Reconnect in a forked process, where the file was removed or replaced, and before the first write."""
        with self._lock:
            is_stale = self._is_replaced() or (writes and not self._is_made)
            if self._process != os.getpid():
                self._inherited = self._engine.pool  # the parent's connections: garbage collection would close them
                is_stale = is_stale or self._is_in_memory()
                if not is_stale:
                    self._engine.dispose(close=False)
                    self._process = os.getpid()
            elif is_stale:
                self._engine.dispose()
            if is_stale:
                # Only a transaction that writes makes a store: another process may have locked the folder.
                self._open(writes)

    def _is_in_memory(self) -> bool:
        return isinstance(self._engine.pool, StaticPool)

    def _is_replaced(self) -> bool:
        return self.backend.file_of(self.url) != self._file
