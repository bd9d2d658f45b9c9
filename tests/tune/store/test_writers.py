"""Many processes write one store, and one of them is killed: nothing lost, nothing twice, on both databases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from constrint.tune.store.store import RecordStore
from tests.support.records import record
from tests.support.store_writer import records_of

ROOT = Path(__file__).resolve().parents[3]
WRITERS, NUMBER, KILLED = 8, 500, 3


def start(place: str, writer: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.store_writer", place, str(writer), str(NUMBER)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."})


def written(place: str) -> tuple[set[str], list[set[str]]]:
    """Let them all write, one of them until it is killed; what each said is in, and the killed one's batches."""
    processes = [start(place, writer) for writer in range(WRITERS)]
    victim = processes[KILLED]
    assert victim.stdout is not None
    said = ""
    while said.count("\n") < 8:
        said += victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    outputs = [said + victim.communicate()[0] if p is victim else p.communicate()[0] for p in processes]
    assert [p.returncode for p in processes if p is not victim] == [0] * (WRITERS - 1)
    assert victim.returncode == -signal.SIGKILL
    return {name for output in outputs for name in output.split()}, [set(line.split()) for line in said.splitlines()]


def check(place: str) -> None:
    confirmed, of_victim = written(place)
    possible = {one.id for writer in range(WRITERS) for one in records_of(writer, NUMBER)}
    of_others = {one.id for writer in range(WRITERS) if writer != KILLED for one in records_of(writer, NUMBER)}
    with RecordStore.open(place) as store:
        found = [one.id for one in store.find()]
        assert len(found) == len(set(found)) == store.count()
        assert confirmed <= set(found) <= possible
        assert of_others <= set(found)
        runs = {run.run: run.num_records for run in store.runs()}
        # Nine of ten are the writer's own, the others are everyone's.
        assert runs.pop("shared") == NUMBER // 10
        killed_at = runs.pop(f"writer-{KILLED}")
        assert set(runs.values()) == {NUMBER * 9 // 10}
        own = {one.id for one in store.find(run=f"writer-{KILLED}")}
        assert killed_at < NUMBER * 9 // 10, "it was killed too late to show anything"
        assert len(own & set().union(*of_victim)) >= 8
        assert store.add([record(0, run="afterwards")]) == 1


def test_eight_writers_of_one_file_and_a_kill(tmp_path: Path) -> None:
    place = tmp_path / "records.sqlite"
    check(str(place))
    assert not list(tmp_path.glob("*.damaged*"))


@pytest.mark.slow
def test_eight_writers_of_one_database_and_a_kill(database: str) -> None:
    check(database)
