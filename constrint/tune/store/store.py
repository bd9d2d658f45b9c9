"""The store of records, shared by any number of processes.

Each call is one transaction: records are on the disk when `add` returns, whatever happens to the process afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Connection, case, delete, func, select

from constrint.tune.store.backends import shown
from constrint.tune.store.database import Database
from constrint.tune.store.place import url_of
from constrint.tune.store.proposals import FIELDS, PROPOSALS, ProposalRecord, has_table, make_table, proposal_row
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.schema import RECORDS, Filters, conditions, row_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

#: Rows of one read, or of one statement.
CHUNK = 500


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
    def open(cls, place: str | Path | None = None) -> RecordStore:
        """Open a store; make it where there is none.

        Args:
            place: A path, `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, or None for the one that
                CONSTRINT_STORE names, else the user's own.

        Raises:
            UsageError: When it is no place for a store, or a driver is missing.
            StoreError: When it cannot be opened, or is of a later version.
        """
        return cls(Database(url_of(place)))

    @property
    def place(self) -> str:
        """The address as it may be printed: a path, or a URL without its password."""
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
            make_table(connection, self._database.backend.lock)
            insert = self._database.backend.insert(PROPOSALS)
            statement = insert.on_conflict_do_nothing(index_elements=["id"])
            if is_newer:
                fresh = {name: insert.excluded[name] for name in (*FIELDS, "proposal")}
                statement = insert.on_conflict_do_update(index_elements=["id"], set_=fresh)
            return len(connection.execute(statement.returning(PROPOSALS.c.id), ordered).all())

        return self._database.write(work)

    def proposals(self, **filters: str | None) -> list[ProposalRecord]:
        """Proposals that match every filter (`run`, `operation`, `gpu`, `record_key`), by time.

        An unreadable one is left out, with one warning.
        """
        column = PROPOSALS.c
        query = select(column.id, column.proposal).order_by(column.created, column.id)
        for name, value in filters.items():
            query = query if value is None else query.where(column[name] == value)
        with self._database.reading() as connection:
            rows = connection.execute(query).all() if has_table(connection) else []
        listed = []
        for name, text in rows:
            try:
                listed.append(msgspec.json.decode(text, type=ProposalRecord))
            except (ValueError, RecursionError) as error:
                self._warn(f"the proposal {name} of {self.place} cannot be read and is left out: {error}")
        return listed

    def find(self, **filters: Unpack[Filters]) -> Iterator[TuningRecord]:
        """Records that match every filter, by time and id, in the state of the store at the first one.

        An unreadable record is left out, with one warning.
        """
        ordered = select(RECORDS.c.id, RECORDS.c.record).order_by(RECORDS.c.created, RECORDS.c.id)
        query = ordered.where(*conditions(filters)).execution_options(yield_per=CHUNK)
        return self._records(query)

    def _records(self, query: Any) -> Iterator[TuningRecord]:
        with self._database.reading() as connection, connection.execute(query) as rows:
            for name, text in rows:
                record = _decoded(text)
                if isinstance(record, TuningRecord):
                    yield record
                else:
                    self._warn(f"the record {name} of {self.place} cannot be read and is left out: {record}")

    def ids(self, prefix: str) -> list[str]:
        """The ids that begin with these hexadecimal digits, in order."""
        query = select(RECORDS.c.id).where(RECORDS.c.id.startswith(prefix, autoescape=True)).order_by(RECORDS.c.id)
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def unreadable_ids(self) -> list[str]:
        """The ids of records that cannot be read, in order."""
        query = select(RECORDS.c.id, RECORDS.c.record).order_by(RECORDS.c.id).execution_options(yield_per=CHUNK)
        with self._database.reading() as connection, connection.execute(query) as rows:
            return [name for name, text in rows if isinstance(_decoded(text), Exception)]

    def count(self, **filters: Unpack[Filters]) -> int:
        """Number of records that match every filter."""
        query = select(func.count()).select_from(RECORDS).where(*conditions(filters))
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one()

    def gpus(self) -> list[str]:
        """Names of the GPUs with records."""
        with self._database.reading() as connection:
            return sorted(connection.execute(select(RECORDS.c.gpu).distinct()).scalars())

    def runs(self) -> list[RunSummary]:
        """The runs of the tuner, the earliest first."""
        column = RECORDS.c
        num_ok = func.sum(case((column.outcome == "ok", 1), else_=0))
        columns = (column.run, func.count(), num_ok, func.min(column.created), func.max(column.created))
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).group_by(column.run)).all()
        runs = [RunSummary(run=run, num_records=n, num_ok=ok, first=a, last=b) for run, n, ok, a, b in rows]
        return sorted(runs, key=lambda run: (run.first, run.run))

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


def _decoded(text: str) -> TuningRecord | Exception:
    """A record, or the reason for which it cannot be read: a later version, or damage."""
    try:
        return msgspec.json.decode(text, type=TuningRecord)
    except (ValueError, RecursionError) as error:
        return error
