"""A process that adds records to a store and says which are in, for tests that kill it: PLACE WRITER NUMBER."""

from __future__ import annotations

import random
import sys

from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.records import record


def records_of(writer: int, number: int) -> list[TuningRecord]:
    """What a writer adds: every tenth record is the same for all writers."""
    return [record(i, run="shared" if i % 10 == 0 else f"writer-{writer}") for i in range(number)]


def main(place: str, writer: int, number: int) -> None:
    chance, waiting = random.Random(writer), records_of(writer, number)
    with RecordStore.open(place) as store:
        while waiting:
            size = chance.randint(1, 25)
            batch, waiting = waiting[:size], waiting[size:]
            store.add(batch)
            print(*(one.id for one in batch), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
