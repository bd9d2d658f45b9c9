"""The store of what was measured: records go in whole and are found again, from any number of processes.

Each call is one transaction: what `add` returned for is on the disk and stays there, whatever happens to the process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Connection, Engine, case, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from constrint.tune.store.connection import engine_of, prepare
from constrint.tune.store.damage import open_file
from constrint.tune.store.faults import told
from constrint.tune.store.place import shown, url_of
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.schema import RECORDS, Filters, conditions, row_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

#: Rows that are read, or named in a statement, at once.
CHUNK = 500


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the tuner: its name, how many records it has and how many of them are ok, when it began and ended."""

    run: str
    num_records: int
    num_ok: int
    first: float
    last: float


class UnreadableRecordWarning(UserWarning):
    """Given once for a store in which a record cannot be read; the others are."""


class RecordStore:
    """Records in a database. Use `RecordStore.open`."""

    def __init__(self, url: Any, engine: Engine) -> None:
        self._url, self._engine, self._process = url, engine, os.getpid()
        self._has_warned = False

    @classmethod
    def open(cls, place: str | Path | None = None) -> RecordStore:
        """Open a store, and make it where there is none.

        Args:
            place: A path, `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, or None for the one that
                CONSTRINT_STORE names, else the user's own.

        Raises:
            UsageError: When it is no place for a store, or PostgreSQL's driver is missing.
            StoreError: When it cannot be opened, or is of a later version.
        """
        url = url_of(place)
        if url.get_backend_name() == "sqlite":
            return cls(url, open_file(url))
        engine = engine_of(url)
        try:
            with told(url):
                prepare(engine, url)
        except BaseException:
            engine.dispose()
            raise
        return cls(url, engine)

    @property
    def place(self) -> str:
        """Where it is, as it may be printed: a path, or a URL without its password."""
        return shown(self._url)

    def add(self, records: Iterable[TuningRecord]) -> int:
        """Keep records; one whose id is there already is left as it was.

        Returns:
            How many were new. When it returns, they are on the disk; when it raises, none is.

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
        dialect: Any = sqlite if self._engine.name == "sqlite" else postgresql
        statement = dialect.insert(RECORDS).on_conflict_do_nothing(index_elements=["id"]).returning(RECORDS.c.id)
        with self._writing() as connection:
            return len(connection.execute(statement, ordered).all())

    def find(self, **filters: Unpack[Filters]) -> Iterator[TuningRecord]:
        """Records that agree with every filter, by time and id, as the store is when the first one is read.

        A record that cannot be read is left out, and a warning says so once.
        """
        ordered = select(RECORDS.c.id, RECORDS.c.record).order_by(RECORDS.c.created, RECORDS.c.id)
        query = ordered.where(*conditions(filters)).execution_options(yield_per=CHUNK)
        return self._found(query)

    def _found(self, query: Any) -> Iterator[TuningRecord]:
        with self._reading() as connection, connection.execute(query) as rows:
            for name, text in rows:
                try:
                    yield msgspec.json.decode(text, type=TuningRecord)
                except (msgspec.DecodeError, UnicodeError) as error:
                    self._warn(f"the record {name} of {self.place} cannot be read and is left out: {error}")

    def ids(self, prefix: str) -> list[str]:
        """The ids that begin with these hexadecimal digits, in order."""
        query = select(RECORDS.c.id).where(RECORDS.c.id.startswith(prefix, autoescape=True)).order_by(RECORDS.c.id)
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def count(self, **filters: Unpack[Filters]) -> int:
        """How many records agree with every filter."""
        query = select(func.count()).select_from(RECORDS).where(*conditions(filters))
        with self._reading() as connection:
            return connection.execute(query).scalar_one()

    def runs(self) -> list[Run]:
        """The runs of the tuner, the earliest first."""
        column = RECORDS.c
        num_ok = func.sum(case((column.outcome == "ok", 1), else_=0))
        columns = (column.run, func.count(), num_ok, func.min(column.created), func.max(column.created))
        with self._reading() as connection:
            rows = connection.execute(select(*columns).group_by(column.run)).all()
        runs = [Run(run=run, num_records=n, num_ok=ok, first=first, last=last) for run, n, ok, first, last in rows]
        return sorted(runs, key=lambda run: (run.first, run.run))

    def remove(self, ids: Iterable[str]) -> int:
        """Remove records by their ids, all or none.

        Returns:
            How many there were.
        """
        names, number = iter(sorted(set(ids))), 0
        with self._writing() as connection:
            while chunk := list(islice(names, CHUNK)):
                number += connection.execute(delete(RECORDS).where(RECORDS.c.id.in_(chunk))).rowcount
        return number

    def close(self) -> None:
        """Close every connection; whatever was added stays."""
        self._engine.dispose(close=self._process == os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._after_fork()
        with told(self._url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._after_fork()
        with told(self._url), self._engine.connect() as connection:
            connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    def _after_fork(self) -> None:
        """A forked process must not use the connections of its parent, nor close them."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{text}. `constrint records prune --unreadable` removes such records.",
                UnreadableRecordWarning,
                stacklevel=3,
            )
