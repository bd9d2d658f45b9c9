"""Records reach the disk in groups, all of them, and a store that keeps nothing is heard of."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import StoreError
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.store.writer import MOST_WAITING, Writer
from tests.support.clock import PATIENCE_S


def records(number: int, first: int = 0) -> list[TuningRecord]:
    told: dict[str, Any] = {"kernel": "k", "operation": "o", "gpu": "g", "dtype": "bf16", "sizes": {}, "run": "r"}
    return [TuningRecord(**told, config={"i": first + i}, outcome="ok", created=0.0) for i in range(number)]


class Slow:
    """A store whose disk is busy until it is told to go on."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.is_free, self.is_asked = threading.Event(), threading.Event()

    def add(self, added: Iterable[TuningRecord]) -> int:
        self.is_asked.set()
        assert self.is_free.wait(PATIENCE_S)
        self.groups.append(len(list(added)))
        return self.groups[-1]


def test_everything_is_kept(tmp_path: Path) -> None:
    with RecordStore.open(tmp_path / "records.sqlite") as store:
        writer = Writer(store)
        for i in range(50):
            writer.add(records(2, 2 * i))
        writer.wait()
        assert store.count() == 100
        writer.add(records(1, 100))
        writer.close()
        assert store.count() == 101


def test_what_comes_while_the_disk_is_busy_goes_to_it_at_once() -> None:
    store = Slow()
    writer = Writer(store)  # type: ignore[arg-type]
    writer.add(records(1))
    assert store.is_asked.wait(PATIENCE_S)
    for _ in range(10):
        writer.add(records(2))
    store.is_free.set()
    writer.close()
    assert store.groups == [1, 20]


def test_whoever_brings_too_many_waits_for_the_disk() -> None:
    store = Slow()
    writer = Writer(store)  # type: ignore[arg-type]
    writer.add(records(1))
    assert store.is_asked.wait(PATIENCE_S)
    threading.Timer(0.2, store.is_free.set).start()
    writer.add(records(MOST_WAITING + 1))
    assert store.is_free.is_set()
    writer.close()


def test_a_store_that_keeps_nothing_is_heard_of_and_asked_no_more() -> None:
    class Full:
        num_asked = 0

        def add(self, added: Iterable[TuningRecord]) -> int:
            self.num_asked += 1
            raise StoreError("the disk is full.")

    store = Full()
    writer = Writer(store)  # type: ignore[arg-type]
    writer.add(records(1))
    with pytest.raises(StoreError, match="full"):
        writer.wait()
    with pytest.raises(StoreError, match="full"):
        writer.add(records(1))
    writer.close()
    assert store.num_asked == 1
