"""Which record is the best: the same in any order, finalists before others, each within its run."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constrint.errors import StoreError
from constrint.select.winners import TunedTable, read_tuned, table_of, tuned_path, write_tuned
from constrint.tune.store.choices import LostWinnersWarning, best_records, of_one_code, publish
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.clock import PATIENCE_S
from tests.support.records import TOOLCHAIN, record, timed


def best(*records: TuningRecord) -> TuningRecord:
    """The best of records of one workload, which is the same in every order."""
    found = set()
    for seed in range(6):
        shuffled = random.Random(seed).sample(records, len(records))
        (one,) = best_records(shuffled)
        found.add(one.id)
    assert len(found) == 1
    return next(one for one in records if one.id in found)


def test_the_shortest_median_is_the_best() -> None:
    records = [record(i, figures=timed(1e-4 + abs(i - 3) * 1e-6)) for i in range(8)]
    assert best(*records) is records[3]


def test_finalists_are_compared_among_themselves() -> None:
    # The first medians of a run are a little too good for whoever wins them by chance.
    lucky = record(0, figures=timed(9e-5))
    finalist, other = (record(i, figures=timed(1e-4 + i * 1e-6, is_final=True)) for i in (1, 2))
    assert best(lucky, finalist, other) is finalist
    # A later run without finalists does not beat one that has some; one with finalists does.
    assert best(lucky, finalist, other, record(3, run="later", figures=timed(8e-5))) is finalist
    better = record(3, run="later", figures=timed(8e-5, is_final=True))
    assert best(lucky, finalist, other, better) is better


def test_times_with_a_cold_cache_come_first() -> None:
    warm, cold = record(0, figures=timed(5e-5, cache="warm")), record(1, figures=timed(9e-5))
    assert best(warm, cold) is cold


def test_what_failed_or_was_not_measured_is_never_the_best() -> None:
    failed = record(0, outcome="wrong_result", figures=timed(1e-9))
    assert best(failed, record(1, figures=None), record(2)).config["number"] == 2
    assert best_records([failed, record(1, figures=None), record(3, figures=timed(0.0))]) == []


def test_equal_times_are_told_apart_by_kernel_and_configuration() -> None:
    records = [record(0, kernel=kernel, config={"a": a, "b": b}) for kernel in "zyx" for a in (2, 1) for b in (9, 8)]
    assert (best(*records).kernel, best(*records).config) == ("x", {"a": 1, "b": 8})


def test_what_was_asked_is_kept_apart() -> None:
    changes: list[dict[str, Any]] = [
        {"gpu": "A100"}, {"dtype": "fp8"}, {"operation": "lstm"}, {"sizes": {"m": 1}}, {"options": {"bias": 1}},
        {"fixed": {"split_k": 1}}, {},
    ]  # fmt: skip
    records = [record(i, **change) for i, change in enumerate(changes)]
    assert {one.id for one in best_records(records)} == {one.id for one in records}
    tools = [record(i, toolchain={**TOOLCHAIN, "triton": f"3.{i}"}) for i in range(3)]
    assert len(best_records(tools)) == 1
    assert len(best_records(tools, per_toolchain=True)) == 3


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans(), st.integers(0, 2)), max_size=12),
    st.randoms(),
)
def test_the_answer_is_the_same_in_any_order(trials: list[tuple[int, int, bool, int]], chance: random.Random) -> None:
    records = [
        record(number, run=f"r{run}", sizes={"m": size}, figures=timed(1e-4 + number % 2 * 1e-6, is_final=is_final))
        for number, run, is_final, size in trials
    ]
    expected = best_records(records)
    chance.shuffle(records)
    assert best_records(records) == expected


def test_records_of_other_code_are_left_aside() -> None:
    old = [record(i, source_hash="old", figures=timed(1e-6)) for i in range(2)]
    # As for look-ups, the space and the costs may have changed since.
    new = [record(i, created=2e9, source_hash="new", spec_hash=str(i)) for i in range(2, 4)]
    other = [record(9, kernel="gemm.descriptor", source_hash="its own")]
    assert of_one_code([*old, *new, *other], lambda kernel: None) == [*new, *other]
    # Where the kernel is known, its own version counts, whatever others measured later with theirs.
    known = {"gemm.pointer": "old", "gemm.descriptor": "new"}
    assert of_one_code([*old, *new, *other], known.get) == old


def test_winners_are_published_and_read(store: RecordStore, tmp_path: Path) -> None:
    store.add([record(i, figures=timed(1e-4 + i * 1e-6)) for i in range(5)])
    store.add([record(9, gpu="A100")])
    store.add([record(i, run="old tools", toolchain={"triton": "3.1"}, figures=timed(1e-6)) for i in range(2)])
    path = publish(store, "H200", tmp_path / "made")
    assert path == tuned_path(tmp_path / "made", "H200") == tmp_path / "made" / "tuned-h200.json"
    table = read_tuned(path)
    assert (table.gpu, table.problem, len(table.entries)) == ("H200", "", 2)
    (entry,) = [one for one in table.entries if one.toolchain == TOOLCHAIN]
    first = record(0)
    assert (entry.kernel, entry.config, entry.seconds, entry.run) == (first.kernel, first.config, 1e-4, "run-1")
    assert entry.sizes == first.sizes
    # The same records give the same bytes, whatever the order in which they came.
    with RecordStore.open(tmp_path / "other.sqlite") as other:
        other.add(reversed(list(store.find())))
        assert publish(other, "H200", tmp_path / "again").read_bytes() == path.read_bytes()
    assert [one.name for one in path.parent.iterdir()] == ["tuned-h200.json"]


def test_who_publishes_waits_for_others_and_reads_the_store_afterwards(
    store: RecordStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl", reason="folders cannot be locked here")
    store.add([record(0)])
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        locking = threading.Event()
        locked = fcntl.flock

        def lock(handle: int, how: int) -> None:
            locking.set()
            locked(handle, how)

        monkeypatch.setattr(fcntl, "flock", lock)
        publishing = pool.submit(publish, store, "H200", tmp_path)
        assert locking.wait(PATIENCE_S)
        assert not publishing.done()
        store.add([record(1, figures=timed(1e-9))])
        os.close(other)
        path = publishing.result(timeout=PATIENCE_S)
    (entry,) = read_tuned(path).entries
    assert entry.seconds == 1e-9


def test_two_names_of_gpus_have_two_files(tmp_path: Path) -> None:
    names = [
        "H200-SXM", "h200-sxm", "h200 sxm", "H200 SXM", "H200--SXM", "-H200-SXM", "H200-SXM-", "H200_SXM",
        "H200-SXM\u0130", "../H200-SXM", "", "-", "/", "\ud800", "H200-\u017fXM", "x" * 200, "X" * 200, "x" * 199,
        tuned_path(tmp_path, "h200 sxm").stem.removeprefix("tuned-"), tuned_path(tmp_path, "h200 sxm").stem[6:].upper(),
    ]  # fmt: skip
    files = [tuned_path(tmp_path, name) for name in names]
    assert len({file.name.casefold() for file in files}) == len(names)
    assert {file.parent for file in files} == {tmp_path}
    assert all(file.name.isascii() and len(file.name) < 240 for file in files)
    assert files[0].name == "tuned-h200-sxm.json"


def test_winners_of_gpus_with_names_alike_are_all_published(store: RecordStore, tmp_path: Path) -> None:
    gpus = ("H200-SXM", "h200 sxm", "H200-sxm")
    store.add([record(i, gpu=gpu) for i, gpu in enumerate(gpus)])
    paths = [publish(store, gpu, tmp_path) for gpu in gpus]
    assert [read_tuned(path).gpu for path in paths] == list(gpus)
    assert [len(read_tuned(path).entries) for path in paths] == [1, 1, 1]


def test_a_table_of_an_earlier_version_is_found_and_makes_room(store: RecordStore, tmp_path: Path) -> None:
    store.add([record(0, gpu="h200 sxm"), record(1, gpu="H200-SXM")])
    path = tuned_path(tmp_path, "H200-SXM")  # the file that both names had
    publish(store, "h200 sxm", tmp_path).rename(path)
    assert table_of(tmp_path, "h200 sxm") == (path, read_tuned(path))
    publish(store, "H200-SXM", tmp_path)
    assert [table_of(tmp_path, gpu)[1].gpu for gpu in ("h200 sxm", "H200-SXM")] == ["h200 sxm", "H200-SXM"]


def test_winners_that_a_store_does_not_have_are_not_lost_in_silence(store: RecordStore, tmp_path: Path) -> None:
    with RecordStore.open(tmp_path / "other.sqlite") as other:
        other.add([record(i, sizes={"m": i}) for i in range(3)])
        publish(other, "H200", tmp_path)
    store.add([record(0, sizes={"m": 0}), record(9, sizes={"m": 9})])
    with pytest.warns(LostWinnersWarning, match="2 winners of the table before are gone: .* has no record of their"):
        publish(store, "H200", tmp_path)
    publish(store, "H200", tmp_path)  # said once: they are gone


@pytest.mark.parametrize(("text", "problem"), [
    (b"", "truncated"),
    (b'{"schema": "constrint.tuned/1", "gpu": "H200", "entr', "truncated"),
    (b"\xff\xfe\x00", "is left aside"),
    (b'{"schema": "constrint.tuned/9", "gpu": "H200", "entries": []}', "its schema is 'constrint.tuned/9'"),
    (b'{"schema": "constrint.tuned/1", "gpu": "H200", "entries": [{}]}', "missing required field"),
    (b'{"records": []}', "unknown field|missing required field"),
    (b"[" * 100_000, "is left aside"),
])  # fmt: skip
def test_a_torn_or_foreign_table_is_empty_and_says_why(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "tuned-h200.json"
    path.write_bytes(text)
    table = read_tuned(path)
    assert (table.gpu, table.entries) == ("", ())
    assert any(words in table.problem for words in problem.split("|"))
    assert str(path) in table.problem


def test_times_that_are_none_make_a_table_foreign(tmp_path: Path, store: RecordStore) -> None:
    store.add([record(0)])
    path = publish(store, "H200", tmp_path)
    path.write_text(path.read_text().replace("0.0001", "0.0"))
    assert "Expected `float` > 0.0" in read_tuned(path).problem


def test_a_missing_table_is_empty_without_a_word_and_a_folder_is_said(tmp_path: Path) -> None:
    assert read_tuned(tmp_path / "none.json") == TunedTable()
    assert "Is a directory" in read_tuned(tmp_path).problem


def test_a_table_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([record(0)])
    before = publish(store, "H200", tmp_path).read_bytes()
    store.add([record(1, figures=timed(1e-9))])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="cannot be written: No space left on device; the table before it"):
        publish(store, "H200", tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "tuned-h200.json").read_bytes() == before
    assert len(list(tmp_path.glob("tuned*"))) == 1
    with pytest.raises(FileExistsError):
        write_tuned(TunedTable("H200"), tmp_path / "tuned-h200.json" / "x.json")
