"""What goes into a store comes out of it, whatever it is; filters, order, runs, removal."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from constrint.errors import UsageError
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore, UnreadableRecordWarning
from tests.support.hostile_records import RECORDS
from tests.support.records import record


def test_records_are_kept_once_and_found_in_order_of_time(store: RecordStore) -> None:
    records = [record(i) for i in range(1200)]
    assert store.add(reversed(records)) == 1200
    assert store.add(records[:3]) == 0
    assert store.add([record(1200), record(1200), records[0]]) == 1
    assert list(store.find()) == [*records, record(1200)]
    assert store.add([]) == 0


def test_a_duplicate_leaves_what_was_there(store: RecordStore) -> None:
    store.add([record(1, message="first")])
    store.add([record(1, message="second", outcome="crashed")])
    assert [one.message for one in store.find()] == ["first"]


def test_filters_agree_with_plain_python(store: RecordStore) -> None:
    records = [
        record(i, gpu=("H200", "A100")[i % 2], dtype=("bf16", "fp8")[i % 3 == 0], run=f"r{i % 4}",
               outcome=("ok", "crashed")[i % 5 == 0], sizes={"k": 64, "m": 16 * (i % 3)}, options={"bias": i % 2})
        for i in range(60)
    ]  # fmt: skip
    store.add(records)
    for name in ("gpu", "dtype", "run", "outcome", "id", "key"):
        value = getattr(records[7], name)
        assert list(store.find(**{name: value})) == [r for r in records if getattr(r, name) == value]
    assert list(store.find(since=records[50].created)) == records[50:]
    # The order in which sizes are named does not matter.
    asked = record(sizes={"m": 16, "k": 64}, options={"bias": 1}, dtype="bf16").workload
    expected = [r for r in records if r.sizes["m"] == 16 and r.options["bias"] and r.dtype == "bf16"]
    assert list(store.find(workload=asked)) == expected
    assert len(expected) == store.count(workload=asked) > 0
    assert store.count(gpu=None, workload=None) == 60
    assert store.count(gpu="A100", run="r1") == sum(r.gpu == "A100" and r.run == "r1" for r in records)


@pytest.mark.parametrize("text", ["\ud800", "a\0", "'; DROP TABLE constrint_records; --", "%"])
def test_text_that_no_record_has_finds_nothing(store: RecordStore, text: str) -> None:
    store.add([record(0)])
    assert list(store.find(gpu=text)) == []
    assert store.count(run=text) == store.count(id=text) == 0
    assert store.count() == 1


def test_an_unknown_filter_is_refused_by_name(store: RecordStore) -> None:
    with pytest.raises(UsageError, match="cannot be looked for by 'colour'; known: dtype, gpu"):
        store.count(colour="red")  # type: ignore[call-arg]


def test_runs_and_removal(store: RecordStore) -> None:
    store.add([record(i, run="late", created=200.0 + i, outcome="crashed") for i in range(3)])
    store.add([record(i, run="early", created=100.0 + i) for i in range(700)])
    early, late = store.runs()
    assert (early.run, early.num_records, early.num_ok, early.first, early.last) == ("early", 700, 700, 100.0, 799.0)
    assert (late.run, late.num_records, late.num_ok) == ("late", 3, 0)
    ids = [one.id for one in store.find(run="early")]
    assert store.remove([*ids, *ids, "no such id"]) == 700
    assert [run.run for run in store.runs()] == ["late"]


def test_ids_are_found_by_their_beginning(store: RecordStore) -> None:
    store.add([record(i) for i in range(50)])
    names = sorted(one.id for one in store.find())
    assert store.ids(names[0][:8]) == [names[0]]
    assert store.ids("") == names
    assert store.ids("%") == []


def test_what_is_added_while_reading_does_not_show(store: RecordStore) -> None:
    store.add([record(i) for i in range(10)])
    seen = 0
    for one in store.find():
        store.add([record(1000 + seen)])
        seen += 1
        assert one.config["number"] == seen - 1
    assert (seen, store.count()) == (10, 20)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=RECORDS)
def test_a_hostile_record_is_kept_exactly_or_refused(store: RecordStore, one: TuningRecord) -> None:
    try:
        store.add([one])
    except UsageError:
        assert store.count() == 0
        return
    (found,) = store.find(id=one.id)
    assert repr(found) == repr(one)  # -0.0 and True are not 0 and 1
    store.remove([one.id])


@pytest.mark.parametrize("changes", [
    {"predicted_s": float("nan")}, {"created": float("inf")}, {"config": {"x": float("nan")}},
    {"message": "\ud800"}, {"gpu": ""}, {"run": "a\0b"}, {"gpu": "x" * 201}, {"run": "x" * 501},
])  # fmt: skip
def test_what_would_not_come_back_is_refused_and_nothing_is_kept(
    store: RecordStore, changes: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match=r"the record of 'gemm\.pointer' of run"):
        store.add([record(0), record(1, **changes)])
    assert store.count() == 0


def test_an_unreadable_record_is_left_out_and_told_once(store: RecordStore) -> None:
    store.add([record(i) for i in range(3)])
    with sqlite3.connect(store.place) as raw:
        raw.execute("UPDATE constrint_records SET record = '{\"kernel\": 3}' WHERE id = ?", (record(1).id,))
        raw.execute("UPDATE constrint_records SET record = 'torn' WHERE id = ?", (record(2).id,))
    raw.close()
    with pytest.warns(UnreadableRecordWarning, match="records prune --unreadable") as told:
        found = [*store.find(), *store.find()]
    assert found == [record(0), record(0)]
    assert len(told) == 1


@pytest.mark.parametrize(("column", "value"), [
    ("record", "replace(record, '0.0001', '0.00001')"), ("record", "replace(record, 'H200', 'H100')"),
    ("gpu", "'H100'"), ("outcome", "'crashed'"), ("created", "created + 1"), ("checksum", "'0'"), ("run", "x'ff'"),
])  # fmt: skip
def test_a_changed_record_is_told_and_not_used(store: RecordStore, column: str, value: str) -> None:
    store.add([record(i) for i in range(3)])
    with sqlite3.connect(store.place) as raw:
        raw.execute(f"UPDATE constrint_records SET {column} = {value} WHERE id = ?", (record(1).id,))
    raw.close()
    with pytest.warns(UnreadableRecordWarning, match=f"{record(1).id}.* it is not as it was written, its checksum"):
        found = [*store.find(), *store.find(id=record(1).id)]
    assert found == [record(0), record(2)]
    assert store.gpus() == ["H200"]
    assert [run.num_records for run in store.runs()] == [2]
    assert store.remove(store.unreadable_ids()) == 1
    assert list(store.find()) == [record(0), record(2)]


def test_threads_share_a_store(store: RecordStore) -> None:
    def write(writer: int) -> None:
        for i in range(20):
            store.add([record(i, run=f"thread-{writer}")])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count() == 160


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_forked_process_has_connections_of_its_own(store: RecordStore) -> None:
    store.add([record(0)])
    child = os.fork()
    if not child:
        try:
            store.add([record(1)])
            store.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    store.add([record(2)])
    assert list(store.find()) == [record(i) for i in range(3)]


def test_the_environment_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CONSTRINT_STORE", raising=False)
    with RecordStore.open() as store:
        assert store.place == str(tmp_path / "cache" / "records.sqlite")
    monkeypatch.setenv("CONSTRINT_STORE", f"sqlite:///{tmp_path}/named.sqlite")
    with RecordStore.open() as store:
        assert store.place == str(tmp_path / "named.sqlite")
        store.add([record(0)])
    with RecordStore.open(str(tmp_path / "named.sqlite")) as store:
        assert store.count() == 1


@pytest.mark.parametrize(
    "place", ["mysql://host/db", "sqlite://", "sqlite:///x?mode=ro", "://", "postgresql://h:port/x", "a\0b"]
)
def test_what_is_no_place_is_refused_with_the_ways(place: str) -> None:
    with pytest.raises(UsageError, match="name a file, sqlite:///FILE or postgresql://"):
        RecordStore.open(place)
