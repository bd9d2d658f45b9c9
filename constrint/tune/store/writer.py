"""Records go to a store from a thread of its own, so that whoever measures does not wait for the disk.

What came while the disk was busy goes to it at once, in one transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore

#: Records that may wait for the disk; whoever brings more waits for it.
MOST_WAITING = 64


class Writer:
    """Keeps records in a store; close it.

    Args:
        store: Where they are kept.
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
        """Take records, which are on the disk a little later.

        Raises:
            StoreError: When the store could not keep earlier ones; it takes no more then.
        """
        with self._news:
            self._check()
            self._waiting += records
            self._news.notify_all()
            self._news.wait_for(lambda: self._error is not None or len(self._waiting) <= MOST_WAITING)
            self._check()

    def wait(self) -> None:
        """Wait until all is on the disk.

        Raises:
            StoreError: When the store could not keep it.
        """
        with self._news:
            self._news.wait_for(lambda: self._error is not None or not (self._waiting or self._num_written))
            self._check()

    def close(self) -> None:
        """Wait for what is on its way, and end the thread; what went wrong is not said."""
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
            except BaseException as error:  # noqa: BLE001 - raised where records are brought
                with self._news:
                    self._error = error
                    self._news.notify_all()
                return
            with self._news:
                self._num_written = 0
                self._news.notify_all()
