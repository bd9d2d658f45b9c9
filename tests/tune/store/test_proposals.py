"""Proposals in the store: kept once, found again, and taken by stores of earlier versions."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import UsageError
from constrint.tune.store.proposals import GateKept, ProposalRecord
from constrint.tune.store.store import RecordStore, UnreadableRecordWarning
from tests.support.records import record

#: The tables of a store as version 0.1 made them before there were proposals.
EARLIER = """
CREATE TABLE constrint_meta (name VARCHAR(32) NOT NULL, value TEXT, PRIMARY KEY (name));
CREATE TABLE constrint_records (id VARCHAR(32) NOT NULL, "key" VARCHAR(32) NOT NULL, operation TEXT NOT NULL,
  kernel TEXT NOT NULL, gpu TEXT NOT NULL, dtype TEXT NOT NULL, workload TEXT NOT NULL, outcome TEXT NOT NULL,
  run TEXT NOT NULL, created DOUBLE NOT NULL, record TEXT NOT NULL, PRIMARY KEY (id));
CREATE INDEX constrint_records_by_run ON constrint_records (run);
CREATE INDEX constrint_records_by_workload ON constrint_records (operation, gpu, dtype);
CREATE INDEX constrint_records_by_time ON constrint_records (created, id);
INSERT INTO constrint_meta VALUES ('schema', '1');
"""


def proposal(place: int = 0, **changes: Any) -> ProposalRecord:
    values: dict[str, Any] = {
        "run": "run-1",
        "round": 0,
        "place": place,
        "origin": "some-model",
        "host": "models.example",
        "operation": "gemm",
        "gpu": "H200",
        "dtype": "bf16",
        "sizes": {"m": 4096, "n": 4096, "k": 4096},
        "kind": "space",
        "because": "it is said to be fast",
        "kernel": "gemm.pointer",
        "config": {"tile_m": 128},
        "gates": (GateKept(gate="legal", passed=True), GateKept(gate="compiles", passed=False, message="no")),
        "created": 5.0 + place,
    }
    return ProposalRecord(**values | changes)


def test_proposals_are_kept_once_and_found_by_what_they_are_for(store: RecordStore) -> None:
    kept = [proposal(0), proposal(1, run="run-2"), proposal(2, gpu="A100")]
    assert store.proposals() == []
    assert store.add_proposals(kept) == 3
    assert store.add_proposals([proposal(0, because="something else"), proposal(3)]) == 1
    assert store.proposals() == [*kept, proposal(3)]
    assert store.proposals(run="run-2") == [kept[1]]
    assert store.proposals(gpu="A100", run="run-1") == [kept[2]]
    assert store.add_proposals([]) == 0
    assert store.count() == 0  # a proposal is no measurement
    assert kept[0].passed == "legal"


def test_a_measurement_leads_to_its_proposal(store: RecordStore) -> None:
    one, other = record(1), record(2)
    store.add([one, other])
    mine = proposal(0, record_key=one.key)
    store.add_proposals([mine, proposal(1)])
    assert store.proposals(run=one.run, record_key=one.key) == [mine]


def test_one_that_would_not_be_read_back_is_refused_with_all_others(store: RecordStore) -> None:
    wrong = proposal(1, gates=(GateKept(gate="fast", passed=True, seconds=float("nan")),))
    with pytest.raises(UsageError, match="not finite"):
        store.add_proposals([proposal(0), wrong])
    with pytest.raises(UsageError, match="cannot be kept"):
        store.add_proposals([proposal(0, because="\ud800")])
    assert store.proposals() == []


def test_a_store_of_an_earlier_version_takes_proposals_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(EARLIER)
    connection.close()
    with RecordStore.open(path, is_made=False) as store:
        assert (store.proposals(), list(store.find())) == ([], [])  # reading makes no table
        assert not has_proposals(path)
        store.add_proposals([proposal(0)])
        assert has_proposals(path)
        store.add([record(0)])
        assert list(store.find()) == [record(0)]
    with RecordStore.open(path) as store:
        assert store.proposals() == [proposal(0)]


def has_proposals(path: Path) -> bool:
    connection = sqlite3.connect(path)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    return "constrint_proposals" in names


def test_a_store_that_may_only_be_read_shows_its_proposals(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path) as store:
        store.add_proposals([proposal(0)])
    path.chmod(0o400)
    with RecordStore.open(path) as store:
        assert store.proposals() == [proposal(0)]


def test_one_of_a_later_version_is_left_out_and_said_once(store: RecordStore, tmp_path: Path) -> None:
    store.add_proposals([proposal(0), proposal(1)])
    with sqlite3.connect(tmp_path / "records.sqlite") as connection:
        statement = 'UPDATE constrint_proposals SET proposal = replace(proposal, \'"place":0\', \'"place":0,"new":1\')'
        connection.execute(statement)
    connection.close()
    with pytest.warns(UnreadableRecordWarning, match="left out"):
        assert store.proposals() == [proposal(1)]


@pytest.mark.slow
def test_the_same_on_postgresql(database: str) -> None:
    with RecordStore.open(database) as one, RecordStore.open(database) as other:
        one.add([record(0)])
        assert other.proposals() == []
        assert one.add_proposals([proposal(0)]) == 1
        assert other.add_proposals([proposal(0), proposal(1)]) == 1
        assert one.proposals() == other.proposals() == [proposal(0), proposal(1)]
