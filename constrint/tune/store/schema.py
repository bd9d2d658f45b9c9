"""The tables of a store, the same in SQLite and PostgreSQL.

A record is stored whole as JSON, which is read back. The other columns are computed from it for queries. A checksum of
the whole row tells whether it is read back as it was written; rows of earlier versions have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import msgspec
from sqlalchemy import Column, ColumnElement, Double, Index, MetaData, String, Table, Text, false

from constrint.errors import UsageError
from constrint.tune.store.record import TuningRecord, digest

if TYPE_CHECKING:
    from constrint.select import Workload

#: Version of the tables; a store of a later version is refused.
SCHEMA = 1
#: Column of a row's checksum, which earlier versions neither write nor read.
CHECKSUM = "checksum"
METADATA = MetaData()
META = Table("constrint_meta", METADATA, Column("name", String(32), primary_key=True), Column("value", Text()))
RECORDS = Table(
    "constrint_records",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("key", String(32), nullable=False),
    Column("operation", Text(), nullable=False),
    Column("kernel", Text(), nullable=False),
    Column("gpu", Text(), nullable=False),
    Column("dtype", Text(), nullable=False),
    Column("workload", Text(), nullable=False),
    Column("outcome", Text(), nullable=False),
    Column("run", Text(), nullable=False),
    Column("created", Double(), nullable=False),
    Column("record", Text(), nullable=False),
    Column(CHECKSUM, String(32)),
)
Index("constrint_records_by_run", RECORDS.c.run)
Index("constrint_records_by_workload", RECORDS.c.operation, RECORDS.c.gpu, RECORDS.c.dtype)
Index("constrint_records_by_time", RECORDS.c.created, RECORDS.c.id)
#: Columns with the value of the record's field of the same name.
FIELDS = ("id", "key", "operation", "kernel", "gpu", "dtype", "outcome", "run", "created")

#: Most characters of indexed columns: PostgreSQL takes some 2,700 bytes for all columns of an index together.
LONGEST = {"operation": 200, "gpu": 200, "dtype": 200, "run": 500}
T = TypeVar("T")


class Filters(TypedDict, total=False):
    """Filters of a query; a record must match all that are not None.

    `since` is the earliest `created`, in seconds since 1970. `workload` means operation, sizes, dtype and options.
    """

    id: str | None
    key: str | None
    operation: str | None
    kernel: str | None
    gpu: str | None
    dtype: str | None
    outcome: str | None
    run: str | None
    workload: Workload | None
    since: float | None


def exact_json(value: msgspec.Struct, named: str) -> str:
    """A value as JSON that decodes to an equal value; `named` is its name in an error.

    Raises:
        UsageError: When it would not be read back as it is.
    """
    try:
        text = msgspec.json.encode(value)
        is_same = msgspec.json.decode(text, type=type(value)) == value
    except (ValueError, TypeError, OverflowError) as mistake:
        raise UsageError(f"{named} cannot be kept: {mistake}. Records hold finite numbers and text.") from None
    if not is_same:
        raise UsageError(f"{named} has a number that is not finite; leave the figure out instead.")
    return text.decode()


def row_of(record: TuningRecord) -> dict[str, Any]:
    """A record as a row.

    Raises:
        UsageError: When it would not be read back as it is.
    """
    text = exact_json(record, _named(record))
    row = record_columns(record)
    unfit = [name for name, value in row.items() if isinstance(value, str) and (not value or "\0" in value)]
    if unfit:
        raise UsageError(f"{_named(record)} has an empty {unfit[0]}, or one with a NUL character; say what it is.")
    long = [name for name, most in LONGEST.items() if len(row[name]) > most]
    if long:
        raise UsageError(f"{_named(record)} has a name of more than {LONGEST[long[0]]} characters for its {long[0]}.")
    return sealed({**row, "record": text})


def record_columns(record: TuningRecord) -> dict[str, Any]:
    """The columns that are computed from a record."""
    fields = {name: getattr(record, name) for name in FIELDS}
    return {**fields, "workload": workload_text(record.sizes, record.options)}


def sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its checksum.

    Raises:
        ValueError, TypeError: When a value is neither text nor a number.
    """
    # SQLite gives -0.0 back as 0.0.
    values = {str(name): value + 0.0 if isinstance(value, float) else value for name, value in row.items()}
    values.pop(CHECKSUM, None)
    return {**values, CHECKSUM: digest(values)}


def read_row(row: Mapping[str, Any], text: str, kind: type[T], columns: Callable[[T], Mapping[str, Any]]) -> T | str:
    """The value of a row, or the reason for which it is not used: damage, a change, or a later version.

    Args:
        row: The row.
        text: Name of the column with the JSON.
        kind: Type of the value.
        columns: The columns that are computed from a value; compared where the row has no checksum.
    """
    try:
        if row[CHECKSUM] is not None and row[CHECKSUM] != sealed(row)[CHECKSUM]:
            return "it is not as it was written, its checksum differs"
        value = msgspec.json.decode(row[text], type=kind)
        if row[CHECKSUM] is None and any(row[name] != part for name, part in columns(value).items()):
            return "it is not as it was written, its columns differ from its text"
    except (ValueError, TypeError, RecursionError) as error:
        return " ".join(str(error).split())
    return value


def workload_text(sizes: dict[str, int], options: dict[str, int]) -> str:
    """Sizes and options as text, independent of their order."""
    return msgspec.json.encode([sizes, options], order="sorted").decode()


def conditions(filters: Filters) -> list[ColumnElement[bool]]:
    """The conditions of a query.

    Raises:
        UsageError: When there is no such filter.
    """
    clauses: list[ColumnElement[bool]] = []
    for name, value in filters.items():
        if value is None and name in Filters.__annotations__:
            continue
        if name == "workload":
            work: Any = value
            text = workload_text(dict(work.sizes), dict(work.options))
            clauses += [
                RECORDS.c.workload == text,
                RECORDS.c.operation == work.operation,
                RECORDS.c.dtype == work.dtype,
            ]
        elif name == "since":
            clauses.append(RECORDS.c.created >= value)
        elif name in FIELDS and name != "created":
            # The database would refuse text that no record can have.
            clauses.append(RECORDS.c[name] == value if _is_text(value) else false())
        else:
            names = ", ".join(sorted(Filters.__annotations__))
            raise UsageError(f"records cannot be looked for by {name!r}; known: {names}.")
    return clauses


def _is_text(value: object) -> bool:
    """Whether a database can hold it: it has no NUL and no half of a character."""
    return isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value)


def _named(record: TuningRecord) -> str:
    return f"the record of {record.kernel[:80]!r} of run {record.run[:80]!r}"
