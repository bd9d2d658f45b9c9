"""Damage the file of a store, read it by every command, then write to it: no traceback, no changed record believed.

    python -m benchmarks.attacks.store_mutations --count 2000 --seed 1

Each attempt changes the bytes of a store, or of one whose last writer was killed (file and journal). Then:

- every command that reads ends without a traceback and changes no byte;
- every record that is read is one that was written, exactly;
- a record of the file that is missing is told (a journal's last transactions are not: SQLite ends at a damaged frame);
- a command that writes keeps every record that could be read, and the damaged file, or refuses and changes no byte.

Ends with 1 if an attempt shows otherwise, and names its seed.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.attacks import asked_of, called
from constrint.errors import ConstrintError
from constrint.tune.store.proposals import ProposalRecord
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.records import record

PAGE = 4096
NUMBER = 60
READS = ("list", "list --all --json", "proposals", "export", "prune --failed --dry-run", "show 1", "diff run-1 run-2")
NAME = "records.sqlite"
RECORDS = [record(i, run=f"run-{i % 2 + 1}", gpu=("H200", "A100")[i % 3 == 0]) for i in range(NUMBER)]
PROPOSALS = [
    ProposalRecord(run="run-1", round=0, place=i, origin="x", operation="gemm", gpu="H200", dtype="bf16", sizes={})
    for i in range(6)
]


def make(folder: Path, is_killed: bool) -> None:
    """A store with records and proposals; `is_killed`: with a journal that no process moved into the file."""
    with RecordStore.open(folder / NAME) as store:
        store.add(RECORDS[:30])
    store = RecordStore.open(folder / NAME)
    store.add(RECORDS[30:])
    store.add_proposals(PROPOSALS)
    with store._database.reading():
        parts = contents(folder)
    store.close()
    for name, content in parts.items() if is_killed else ():
        (folder / name).write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    """Names and bytes of a folder's files."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mutate(path: Path, chance: random.Random) -> str:
    """Damage a file; returns the kind of the damage."""
    data = bytearray(path.read_bytes())
    kind = chance.choice(
        ("byte", "byte", "byte", "bit", "text", "header", "schema", "run", "swap", "copy", "zero", "cut")
    )
    at = chance.randrange(len(data))
    pages = range(len(data) // PAGE)
    one, other = (chance.choice(pages) * PAGE if len(pages) > 1 else 0 for _ in range(2))
    if kind == "byte":
        data[at] = chance.randrange(256)
    elif kind == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "text":
        digits = [place for place, value in enumerate(data) if chr(value).isdigit()]
        data[chance.choice(digits)] = ord(chance.choice("0123456789"))
    elif kind == "header":
        data[chance.randrange(min(100, len(data)))] = chance.randrange(256)
    elif kind == "schema":
        data[chance.randrange(100, min(PAGE, len(data)))] = chance.randrange(256)
    elif kind == "run":
        data[at : at + chance.randrange(1, 3000)] = chance.randbytes(chance.randrange(1, 3000))
    elif kind == "swap":
        data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[one : one + PAGE]
    elif kind == "copy":
        data[one : one + PAGE] = data[other : other + PAGE]
    elif kind == "zero":
        data[one : one + PAGE] = bytes(PAGE)
    else:
        del data[chance.choice((at, 0, 1, 50, 99, 100, PAGE)) :]
    path.write_bytes(data)
    return kind


def read(path: Path, *, is_made: bool = False) -> tuple[list[TuningRecord], list[ProposalRecord], bool]:
    """Records and proposals of a store, and whether anything was said of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with RecordStore.open(path, is_made=is_made) as store:
                store.gpus()
                store.runs()
                return list(store.find()), store.proposals(), bool(said)
        except ConstrintError:
            return [], [], True


def attempt(folder: Path, chance: random.Random) -> tuple[str, str, int]:
    """Damage and use a copy of a store; returns the kind of damage, the fault if any, and the number of records."""
    path = folder / NAME
    files = [one for one in folder.iterdir() if one.name in (NAME, f"{NAME}-wal")]
    victim = chance.choice(files)
    kind = f"{'journal' if victim != path else 'file'}: {mutate(victim, chance)}"
    has_journal = len(files) > 1
    before = contents(folder)
    found, proposals, is_said = read(path)
    for line in chance.sample(READS, 3):
        called("records", *line.split(), "--store", str(path))
    called("records", "publish", "--folder", str(folder / "tables"), "--store", str(path))
    shutil.rmtree(folder / "tables", ignore_errors=True)
    after = contents(folder)
    if {name: after.get(name) for name in before if not name.endswith("-shm")} != {
        name: content for name, content in before.items() if not name.endswith("-shm")
    }:
        return kind, f"a command that reads changed {sorted(after)}", 0
    if wrong := _wrong(found, proposals, []):
        return kind, wrong, len(found)
    is_whole = len(found) == NUMBER and len(proposals) == len(PROPOSALS)
    if not is_whole and not is_said and not has_journal:
        return kind, f"{len(found)} of {NUMBER} records and {len(proposals)} proposals are read, and nothing is said", 0
    fresh = record(1000)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with RecordStore.open(path) as store:
                store.add([fresh])
    except ConstrintError:
        if contents(folder).get(NAME) != before.get(NAME):
            return kind, "a store was refused, and changed", len(found)
        return kind, "", len(found)
    now, proposals_now, _ = read(path)
    if wrong := _wrong(now, proposals_now, [fresh]):
        return kind, f"after a write, {wrong}", len(found)
    lost = {repr(one) for one in (*found, fresh)} - {repr(one) for one in now}
    if lost or len(proposals_now) < len(proposals):
        return kind, f"{len(lost)} records are lost by a write", len(found)
    return kind, "", len(found)


def _wrong(records: Sequence[TuningRecord], proposals: Sequence[ProposalRecord], more: list[TuningRecord]) -> str:
    changed = {repr(one) for one in records} - {repr(one) for one in (*RECORDS, *more)}
    changed |= {repr(one) for one in proposals} - {repr(one) for one in PROPOSALS}
    if changed:
        return f"{len(changed)} changed records are believed, such as {sorted(changed)[0]}"
    return "a record is read twice" if len({one.id for one in records}) < len(records) else ""


def attack(count: int, seed: int) -> list[str]:
    """Make attempts; returns the faults, and prints a summary."""
    faults, kinds, num_read = [], Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for is_killed in (False, True):
            (root / str(is_killed)).mkdir()
            make(root / str(is_killed), is_killed)
        for number in range(count):
            chance = random.Random(f"{seed}-{number}")
            folder = root / "attempt"
            shutil.copytree(root / str(chance.random() < 0.3), folder)
            try:
                kind, fault, found = attempt(folder, chance)
            except Exception:  # noqa: BLE001 - any exception is a traceback of a command, which is a fault
                kind, fault, found = "?", traceback.format_exc(), 0
            kinds[kind] += 1
            num_read += found
            if fault:
                faults.append(f"seed {seed}-{number}, {kind}: {fault}")
            shutil.rmtree(folder)
    share = num_read / max(count * NUMBER, 1)
    print(f"{count} mutations of stores, seed {seed}: {len(faults)} faults; {share:.0%} of the records were read.")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attack; 1 where it finds a fault."""
    asked = asked_of(__doc__, 2000, arguments)
    faults = attack(asked.count, asked.seed)
    print("\n".join(faults[:20]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
