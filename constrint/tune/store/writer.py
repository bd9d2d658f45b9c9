"""A thread that stores records, so that measurements do not wait for the disk.

Records that arrive while the disk is busy are stored in one transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore

#: Most records in the queue; `add` waits beyond it.
MOST_WAITING = 64


class Writer:
    """Stores records in a thread; close it.

    Args:
        store: The store.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._waiting: list[TuningRecord] = []
        self._num_written = 0
        self._is_closed = False
        self._error: BaseException | None = None
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="constrint-store", daemon=True)
        self._thread.start()

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Queue records, which are on the disk a little later.

        Raises:
            StoreError: When earlier records could not be stored; no more are taken then.
        """
        with self._news:
            self._check()
            self._waiting += records
            self._news.notify_all()
            self._news.wait_for(lambda: self._error is not None or len(self._waiting) <= MOST_WAITING)
            self._check()

    def wait(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            StoreError: When they could not be stored.
        """
        with self._news:
            self._news.wait_for(lambda: self._error is not None or not (self._waiting or self._num_written))
            self._check()

    def close(self) -> None:
        """Store the queue, and end the thread; a fault is not raised."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._is_closed)
                records, self._waiting = self._waiting, []
                self._num_written = len(records)
                self._news.notify_all()
            if not records:
                return
            try:
                self._store.add(records)
            except BaseException as error:  # noqa: BLE001 - raised by the next `add` or `wait`
                with self._news:
                    self._error = error
                    self._news.notify_all()
                return
            with self._news:
                self._num_written = 0
                self._news.notify_all()
