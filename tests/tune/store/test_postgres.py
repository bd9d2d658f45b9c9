"""The same store on a real PostgreSQL server."""

from __future__ import annotations

import sys
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import create_engine, make_url, text

from constrint.errors import StoreError, StoreReadOnlyError, UsageError
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.hostile_records import RECORDS
from tests.support.records import record

pytestmark = pytest.mark.slow  # the server takes seconds to start


def execute(url: str, statement: str) -> None:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_the_same_answers_as_from_a_file(database: str, store: RecordStore) -> None:
    records = [record(i, gpu=("H200", "A100")[i % 2], run=f"r{i % 3}", created=50.0 - i % 7) for i in range(600)]
    with RecordStore.open(database) as shared:
        for one in (shared, store):
            assert one.add(records) == 600
            assert one.add([*records[:5], record(600)]) == 1
        assert list(shared.find()) == list(store.find())
        assert list(shared.find(gpu="A100", run="r1")) == list(store.find(gpu="A100", run="r1"))
        assert shared.runs() == store.runs()
        assert shared.ids("a") == store.ids("a")
        assert shared.remove(shared.ids("a")) == store.remove(store.ids("a")) > 0
        assert shared.count() == store.count()
        first = next(iter(shared.find()))  # a search that is given up leaves nothing open
        assert first == next(iter(store.find()))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=RECORDS)
def test_a_hostile_record_is_kept_exactly_or_refused(database: str, one: TuningRecord) -> None:
    with RecordStore.open(database) as store:
        try:
            store.add([one])
        except UsageError:
            assert store.count() == 0
            return
        (found,) = store.find(id=one.id)
        assert repr(found) == repr(one)
        store.remove([one.id])


def test_the_longest_names_fit_its_indices(database: str) -> None:
    wide = "".join(chr(0x1F600 + i % 64) for i in range(500))  # four bytes each, and nothing to compress
    one = record(
        0, operation=wide[:200], gpu=wide[1:201], dtype=wide[2:202], run=wide, kernel=wide * 9, message=wide * 99
    )
    with RecordStore.open(database) as store:
        store.add([one])
        assert list(store.find(run=wide, gpu=one.gpu)) == [one]


def test_a_connection_that_was_ended_is_made_anew(database: str) -> None:
    with RecordStore.open(database) as store:
        store.add([record(0)])
        execute(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert store.add([record(1)]) == 1
        assert store.count() == 2


def test_a_later_schema_is_refused(database: str) -> None:
    RecordStore.open(database).close()
    execute(database, "UPDATE constrint_meta SET value = '7'")
    with pytest.raises(StoreError, match=r"has schema 7, and this version of constrint reads up to 1\. Upgrade"):
        RecordStore.open(database)


def test_a_store_of_an_earlier_version_is_read_and_completed_by_its_owner(database: str) -> None:
    with RecordStore.open(database) as store:
        store.add([record(i) for i in range(3)])
    execute(database, "ALTER TABLE constrint_records DROP COLUMN checksum; DROP TABLE constrint_proposals")
    execute(database, f"UPDATE constrint_records SET gpu = 'H100' WHERE id = '{record(2).id}'")
    with RecordStore.open(database, is_made=False) as store, warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert (list(store.find()), store.proposals()) == ([record(0), record(1)], [])
        assert store.add([record(3)]) == 1
        assert list(store.find()) == [record(0), record(1), record(3)]
        assert store.unreadable_ids() == [record(2).id]
    execute(database, "UPDATE constrint_records SET outcome = 'ok', record = replace(record, '0.0001', '0.00001')")
    with RecordStore.open(database) as store:
        assert len(store.unreadable_ids()) == 4


def test_reading_an_empty_database_makes_no_tables(database: str) -> None:
    with RecordStore.open(database, is_made=False) as store:
        assert (list(store.find()), store.count(), store.gpus()) == ([], 0, [])
    execute(database, "CREATE TABLE constrint_meta (x int); DROP TABLE constrint_meta")  # there was none


def test_a_reader_without_rights_may_read(database: str) -> None:
    with RecordStore.open(database) as store:
        store.add([record(0)])
    execute(database, "DROP ROLE IF EXISTS guest")
    execute(database, "CREATE ROLE guest LOGIN; GRANT SELECT ON constrint_meta, constrint_records TO guest")
    guest = make_url(database).set(username="guest").render_as_string(hide_password=False)
    with RecordStore.open(guest) as store:
        assert list(store.find()) == [record(0)]
        with pytest.raises(StoreReadOnlyError, match=r"permission denied .* ask for the right"):
            store.add([record(1)])
    execute(database, "DROP OWNED BY guest; DROP ROLE guest")


def test_a_server_out_of_reach_is_told_without_the_password() -> None:
    with pytest.raises(StoreError, match="see that the server runs and the URL is right") as told:
        RecordStore.open("postgresql://someone:secret@127.0.0.1:1/records")
    assert "secret" not in str(told.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"pip install 'constrint\[postgres\]'"):
        RecordStore.open("postgresql://someone@127.0.0.1:1/records")
