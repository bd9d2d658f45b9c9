"""The store of records, shared by any number of processes.

Each call is one transaction: records are on the disk when `add` returns, whatever happens to the process afterwards.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from sqlalchemy import URL, ColumnElement, Connection, StaticPool, Table, delete, func, null, select

from constrint.tune.store.backends import CHUNK, SEALED, backend_of, clean, explained, layout_of, shown
from constrint.tune.store.place import url_of
from constrint.tune.store.proposals import PROPOSALS, ProposalRecord, proposal_row
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.schema import RECORDS, Filters, conditions, read_row, row_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the tuner: its name, its records in all and with outcome ok, the times of the first and the last."""

    run: str
    num_records: int
    num_ok: int
    first: float
    last: float


class UnreadableRecordWarning(UserWarning):
    """Issued once for a store with unreadable records; the others are read."""


class RecordStore:
    """Records in a database. Use `RecordStore.open`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._has_warned = False

    @classmethod
    def open(cls, place: str | Path | None = None, *, is_made: bool = True) -> RecordStore:
        """Open a store.

        Args:
            place: A path, `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, or None for the one that
                CONSTRINT_STORE names, else the user's own.
            is_made: Whether a missing store is made. Else it reads as empty, and nothing is written before the first
                call that adds or removes.

        Raises:
            UsageError: When it is no place for a store, or a driver is missing.
            StoreError: When it cannot be opened, or is of a later version.
        """
        return cls(Database(url_of(place), is_made=is_made))

    @property
    def place(self) -> str:
        """The address as it may be printed: a path, or a URL without user, password and options."""
        return shown(self._database.url)

    def add(self, records: Iterable[TuningRecord]) -> int:
        """Store records; an id that exists keeps its old record.

        Returns:
            Number of new records. On return all are on the disk; after an exception none is.

        Raises:
            UsageError: When a record would not be read back as it is.
            StoreError: When the store cannot take them.
        """
        rows: dict[str, dict[str, Any]] = {}
        for record in records:
            row = row_of(record)
            rows.setdefault(row["id"], row)
        if not rows:
            return 0
        # Every process writes in the same order, so that none waits for another in a circle.
        ordered = [rows[name] for name in sorted(rows)]
        insert = self._database.backend.insert(RECORDS)
        statement = insert.on_conflict_do_nothing(index_elements=["id"]).returning(RECORDS.c.id)
        return self._database.write(lambda connection: len(connection.execute(statement, ordered).all()))

    def add_proposals(self, proposals: Iterable[ProposalRecord], *, is_newer: bool = False) -> int:
        """Store proposals.

        Args:
            proposals: The proposals.
            is_newer: Whether a proposal replaces an older one of the same id, which else stays.

        Returns:
            Number of written proposals. On return all are on the disk; after an exception none is.

        Raises:
            UsageError: When one would not be read back as it is.
            StoreError: When the store cannot take them.
        """
        rows = {row["id"]: row for row in map(proposal_row, proposals)}
        if not rows:
            return 0
        ordered = [rows[name] for name in sorted(rows)]

        def work(connection: Connection) -> int:
            insert = self._database.backend.insert(PROPOSALS)
            statement = insert.on_conflict_do_nothing(index_elements=["id"])
            if is_newer:
                fresh = {column.name: insert.excluded[column.name] for column in PROPOSALS.c}
                statement = insert.on_conflict_do_update(index_elements=["id"], set_=fresh)
            return len(connection.execute(statement.returning(PROPOSALS.c.id), ordered).all())

        return self._database.write(work)

    def proposals(self, **filters: str | None) -> list[ProposalRecord]:
        """Proposals that match every filter (`run`, `operation`, `gpu`, `record_key`), by time.

        One that cannot be read, or is not as it was written, is left out, with one warning.
        """
        clauses = [PROPOSALS.c[name] == value for name, value in filters.items() if value is not None]
        return list(self._intact(PROPOSALS, clauses))

    def find(self, **filters: Unpack[Filters]) -> Iterator[TuningRecord]:
        """Records that match every filter, by time and id, in the state of the store at the first one.

        One that cannot be read, or is not as it was written, is left out, with one warning.
        """
        return self._intact(RECORDS, conditions(filters))

    def _intact(self, table: Table, clauses: Sequence[ColumnElement[bool]]) -> Iterator[Any]:
        for name, value in self._values(table, clauses):
            if isinstance(value, str):
                self._warn(f"{name!a} of {self.place} is left out: {clean(value)}")
            else:
                yield value

    def _values(self, table: Table, clauses: Sequence[ColumnElement[bool]]) -> Iterator[tuple[Any, Any]]:
        """The id of each row by time, and its value, or the reason for which it is not used."""
        order = (table.c.created, table.c.id)
        with self._database.reading() as connection:
            there = layout_of(connection).get(table.name)
            if there is None:  # a store of an earlier version, or one that is not made yet
                return
            columns = [one if one.name in there else null().label(one.name) for one in table.c]
            query = select(*columns).where(*clauses).order_by(*order).execution_options(yield_per=CHUNK)
            with connection.execute(query) as rows:
                for row in rows.mappings():
                    yield row["id"], read_row(dict(row), *SEALED[table])

    def ids(self, prefix: str) -> list[str]:
        """The ids that begin with these hexadecimal digits, in order."""
        query = select(RECORDS.c.id).where(RECORDS.c.id.startswith(prefix, autoescape=True)).order_by(RECORDS.c.id)
        with self._database.reading() as connection:
            return [name for name in connection.execute(query).scalars() if isinstance(name, str)]

    def unreadable_ids(self) -> list[str]:
        """The ids of records that cannot be read, or are not as they were written, in order."""
        return sorted(name for name, value in self._values(RECORDS, ()) if isinstance(value, str))

    def count(self, **filters: Unpack[Filters]) -> int:
        """Number of records that match every filter."""
        query = select(func.count()).select_from(RECORDS).where(*conditions(filters))
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one()

    def gpus(self) -> list[str]:
        """Names of the GPUs with records."""
        return sorted({record.gpu for record in self.find()})

    def runs(self) -> list[RunSummary]:
        """The runs of the tuner, the earliest first."""
        runs: dict[str, RunSummary] = {}
        for one in self.find():
            run = runs.get(one.run) or RunSummary(run=one.run, num_records=0, num_ok=0, first=one.created, last=0.0)
            counts = {"num_records": run.num_records + 1, "num_ok": run.num_ok + one.is_ok}
            runs[one.run] = msgspec.structs.replace(run, last=one.created, **counts)
        return sorted(runs.values(), key=lambda run: (run.first, run.run))

    def remove(self, ids: Iterable[str]) -> int:
        """Remove records by their ids, all or none.

        Returns:
            Number of removed records.
        """
        names = sorted(set(ids))

        def work(connection: Connection) -> int:
            chunks = (names[at : at + CHUNK] for at in range(0, len(names), CHUNK))
            return sum(connection.execute(delete(RECORDS).where(RECORDS.c.id.in_(chunk))).rowcount for chunk in chunks)

        return self._database.write(work)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{text}. `constrint records prune --unreadable` removes such records.",
                UnreadableRecordWarning,
                stacklevel=3,
            )


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
