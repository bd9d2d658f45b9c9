"""Tuning records as lines of JSON: all fields, exactly.

The first line names the schema and the last line counts the records, so that a truncated file is noticed. Files may be
joined end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from constrint.answers.formats.records import Source, checked, refuse
from constrint.answers.registry import RecordFormat
from constrint.tune.store.record import TuningRecord

SCHEMA = "constrint.records/1"
T = TypeVar("T")


class _First(msgspec.Struct, forbid_unknown_fields=True):
    schema: str


class _Last(msgspec.Struct, forbid_unknown_fields=True):
    num_records: int


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """A line per record, in their order."""
    yield msgspec.json.encode(_First(SCHEMA)).decode() + "\n"
    number = 0
    for record in records:
        yield msgspec.json.encode(record).decode() + "\n"
        number += 1
    yield msgspec.json.encode(_Last(number)).decode() + "\n"


def read(source: Source) -> list[TuningRecord]:
    """The records of a file.

    Raises:
        UsageError: When a line is not a record, or lines are missing.
    """
    return checked(source, _lines(source))


def _lines(source: Source) -> Iterator[tuple[int, TuningRecord]]:
    number, is_open, at = 0, False, 0
    for at, line in enumerate(source.text.split(b"\n"), 1):
        if not line.strip():
            continue
        if not is_open:
            first = _decoded(source, at, line, _First)
            if first.schema != SCHEMA:
                refuse(source, f"the schema is {first.schema[:60]!r}, and this version reads {SCHEMA}", at)
            is_open, number = True, 0
        elif line.startswith(b'{"num_records":'):
            last = _decoded(source, at, line, _Last)
            if last.num_records != number:
                refuse(source, f"{last.num_records} records are announced and {number} are there", at)
            is_open = False
        else:
            yield at, _decoded(source, at, line, TuningRecord)
            number += 1
    if is_open:
        refuse(source, 'the file is cut: its last line should be {"num_records": ...}', at)
    if not at or not source.text.strip():
        refuse(source, f'the file is empty: its first line should be {{"schema": "{SCHEMA}"}}', 1)


def _decoded(source: Source, line: int, text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        refuse(source, f"not a line of {SCHEMA}: {error}", line)


RECORDS = RecordFormat("jsonl", "lines of JSON with everything that a record has: exact", write, read)
