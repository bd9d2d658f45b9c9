"""Kill processes that write one store, again and again: no acknowledged record is lost, none is there twice.

    python -m benchmarks.attacks.store_kills --count 500 --seed 1

Several processes write records and name each batch once it is stored. They are killed one after the other, at a random
moment, some of them while they open the store, and others take their place. Some kills meet a store that is missing,
one of an earlier version, or a damaged one that is being put aside. Ends with 1 where a record that was acknowledged is
not there, also while others write, or a record is there twice or changed, or a file lies about.

`--place URL` attacks a PostgreSQL database instead, which must be empty.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmarks.attacks import ended, parser_of
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.records import record

WRITERS = 4
#: Records of a batch, at most.
BATCH = 12
#: Kills of one store; then the next one is begun.
KILLS_OF_STORE = 25
PAGE, INDEX_LEAF = 4096, 10
KINDS = ("missing", "missing", "earlier", "damaged")


def of_writer(writer: int, number: int) -> TuningRecord:
    """A record of a writer: every tenth is the same for all writers."""
    return record(number, run="shared" if number % 10 == 0 else f"writer-{writer}")


def write(place: str, writer: int, seed: str) -> None:
    """Write batches until killed, and name each batch once it is stored."""
    chance, number = random.Random(seed), 0
    warnings.simplefilter("ignore")
    print("begins", flush=True)
    with RecordStore.open(place) as store:
        while True:
            size = chance.randint(1, BATCH)
            store.add(of_writer(writer, i) for i in range(number, number + size))
            print(number, number + size, flush=True)
            number += size


class WriterProcess:
    """A process that writes; forked from this one, since a new one takes seconds to import.

    Args:
        place: The store.
        writer: The writer's number.
        seed: Seed of the sizes of batches.
    """

    def __init__(self, place: str, writer: int, seed: str) -> None:
        self.writer, self._said = writer, b""
        self._read, told = os.pipe()
        self.process = os.fork()
        if not self.process:
            os.dup2(told, 1)
            try:
                sys.stdout = os.fdopen(1, "w")
                write(place, writer, seed)
            finally:
                os._exit(1)
        os.close(told)

    def wait(self, lines: int, seconds: float) -> None:
        """Wait until it has said so many lines, or is at this many seconds of the last one."""
        while self._said.count(b"\n") < lines and select.select([self._read], [], [], seconds)[0]:
            piece = os.read(self._read, 1 << 16)
            if not piece:
                return
            self._said += piece

    def kill(self) -> list[TuningRecord]:
        """Kill it; returns the records that it acknowledged.

        Raises:
            RuntimeError: When it had ended by itself.
        """
        os.kill(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        while piece := os.read(self._read, 1 << 16):
            self._said += piece
        os.close(self._read)
        if not os.WIFSIGNALED(status):
            raise RuntimeError(f"writer {self.writer} ended by itself")
        whole = [line.split() for line in self._said.decode().split("\n")[:-1]]
        batches = [range(int(line[0]), int(line[1])) for line in whole if len(line) == 2]
        return [of_writer(self.writer, i) for batch in batches for i in batch]


def begin(folder: Path, kind: str) -> tuple[str, list[TuningRecord]]:
    """A store to attack, and the records that it has."""
    path = folder / "records.sqlite"
    old = [record(i, run="before") for i in range(40)]
    if kind == "missing":
        return str(path), []
    with RecordStore.open(path) as store:
        store.add(old)
    if kind == "earlier":
        raw = sqlite3.connect(path)
        raw.executescript(
            "ALTER TABLE constrint_records DROP COLUMN checksum; DROP TABLE constrint_proposals; "
            "PRAGMA application_id = 0;"
        )
        raw.close()
    else:
        data = bytearray(path.read_bytes())
        # In a page of an index: tables stay as they are, so that every record can be read.
        pages = (at for at in range(0, len(data), PAGE) if data[at] == INDEX_LEAF and b"before" in data[at : at + PAGE])
        at = data.index(b"before", next(pages))
        data[at : at + 6] = b"behind"
        path.write_bytes(data)
    return str(path), old


def attack_store(place: str, acknowledged: list[TuningRecord], kills: int, chance: random.Random, seed: str) -> str:
    """Kill writers of a store; returns the fault if any, and lists what was acknowledged."""
    running = [WriterProcess(place, writer, f"{seed}-{writer}") for writer in range(WRITERS)]
    for number in range(WRITERS, WRITERS + kills):
        victim = running.pop(chance.randrange(len(running)))
        victim.wait(chance.choice((1, 1, 2, 3, chance.randrange(4, 20))), chance.choice((0.05, 0.3, 2.0)))
        acknowledged += victim.kill()
        running.append(WriterProcess(place, number, f"{seed}-{number}"))
        if chance.random() < 0.1:
            with RecordStore.open(place, is_made=False) as store:
                there = [one.id for one in store.find()]
            lost = {one.id for one in acknowledged} - set(there)
            if lost or len(there) != len(set(there)):
                return f"while others write, {len(lost)} of {len(acknowledged)} records are missing"
    for each in running:
        acknowledged += each.kill()
    with RecordStore.open(place) as store:
        found = {one.id: one for one in store.find()}
        total = store.count()
    wanted = {one.id: one for one in acknowledged}
    if lost := wanted.keys() - found.keys():
        return f"{len(lost)} of {len(wanted)} acknowledged records are lost"
    if any(found[name] != one for name, one in wanted.items() if one.run not in ("shared", "before")):
        return "a record is not as it was written"
    return "" if total == len(found) else f"{total} rows hold {len(found)} records"


def attack(count: int, seed: int, place: str = "") -> tuple[list[str], int]:
    """Make kills; returns the faults, and the number of acknowledged records."""
    faults, num_acknowledged = [], 0
    for at in range(0, count, KILLS_OF_STORE):
        chance = random.Random(f"{seed}-{at}")
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = chance.choice(KINDS)
            where, acknowledged = (place, []) if place else begin(Path(name), kind)
            try:
                fault = attack_store(where, acknowledged, min(KILLS_OF_STORE, count - at), chance, f"{seed}-{at}")
            except (RuntimeError, OSError) as error:
                fault = repr(error)
            left = [one.name for one in Path(name).iterdir() if ".damaged" not in one.name]
            if not fault and sorted(left) not in ([], ["records.sqlite"]):
                parts = [one for one in left if not one.startswith((".constrint-", "records.sqlite"))]
                fault = f"files lie about: {parts}" if parts else ""
            num_acknowledged += len({one.id for one in acknowledged})
        faults += [f"seed {seed}-{at}, {kind}: {fault}"] if fault else []
    return faults, num_acknowledged


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attack; 1 where it finds a fault."""
    parser = parser_of(__doc__, 500)
    parser.add_argument("--place", default="", help="an empty PostgreSQL database instead of files")
    asked = parser.parse_args(arguments)
    faults, number = attack(asked.count, asked.seed, asked.place)
    told = f"{number:,} records acknowledged, {len(faults)} faults."
    return ended(faults[:20], f"{asked.count} kills of writers, seed {asked.seed}: {told}")


if __name__ == "__main__":
    sys.exit(main())
