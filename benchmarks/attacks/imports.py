"""Import mutated files of every format: no traceback, no part of a file, nothing that a later command stumbles over.

    python -m benchmarks.attacks.imports --count 3000 --seed 1

Each attempt changes a file of records (bytes, or values of its JSON: of other types, too large, not finite, hostile
text, missing, given twice, nested) and imports it. A refused file must leave the store as it was, with one error of one
line and no control characters. Whatever was taken must be read back, and then listed, exported in every format and
published without a traceback. Ends with 1 if an attempt shows otherwise, and names its seed.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.attacks import asked_of, called
from constrint.answers.formats.records import writer
from constrint.answers.registry import RECORDS
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.records import record, timed

FORMATS = ("jsonl", "kernel-tuner", "t4")
#: Values that replace others.
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, -0.0, 1e-320, 1e308, 0.1, float("nan"), float("inf"),
    "", "\0", "\ud800", "\x1b]0;x\x07", "a\nb\r", "\u202egpu", "=1+1", "x" * 100_000, "H200-SXM", "h200 sxm", "../../x",
    "this:s", "nan", "1e999", [], {}, [[]], {"": ""}, {"a": {"b": {"c": []}}}, [None] * 3, {"tile_m": 2**70},
)  # fmt: skip


def records() -> list[TuningRecord]:
    """Records of one kernel and workload, as every format takes them, with all their fields."""
    return [
        record(
            i,
            outcome="crashed" if i == 2 else "ok",
            message="it fell" if i == 2 else "",
            figures=None if i == 2 else timed(1e-4 + i * 1e-6, is_final=i == 3),
            config={"tile_m": 16 * (i + 1), "fast": i % 2 == 0, "mode": "a b", "ratio": 0.25},
            predicted_s=1e-4,
            options={"bias": 1},
            fixed={"split_k": 1},
        )
        for i in range(4)
    ]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a document with each of its keys or indices."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from places(value[key])


def mutate_values(text: str, chance: random.Random) -> bytes:
    """Change values of a document, or of one line of it."""
    lines = text.splitlines()
    at = chance.randrange(len(lines))
    is_lines = text.count('{"schema"') > 1 or (text.startswith("{") and len(lines) > 1 and lines[0].endswith("}"))
    document = json.loads(lines[at] if is_lines else text)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        found = list(places(document))
        if not found:
            break
        inside, key = chance.choice(found)
        what = chance.choice(("replace", "replace", "replace", "remove", "rename", "copy"))
        if what == "remove":
            del inside[key]
        elif what == "rename" and isinstance(inside, dict):
            inside[str(chance.choice(HOSTILE))[:300]] = inside.pop(key)
        elif what == "copy":
            other, other_key = chance.choice(found)
            with contextlib.suppress(KeyError, IndexError):
                inside[key] = json.loads(json.dumps(other[other_key]))
        else:
            inside[key] = chance.choice(HOSTILE)
    changed = json.dumps(document, ensure_ascii=chance.random() < 0.7)
    lines[at] = changed
    return ("\n".join(lines) if is_lines else changed).encode("utf-8", "surrogatepass")


def mutate_bytes(text: str, chance: random.Random) -> bytes:
    """Change bytes of a file."""
    data = bytearray(text.encode())
    at, to = sorted(chance.randrange(len(data)) for _ in range(2))
    kind = chance.choice(("byte", "digit", "cut", "hole", "twice", "insert", "key twice", "mark", "wide", "deep"))
    if kind == "byte":
        data[at] = chance.randrange(256)
    elif kind == "digit":
        digits = [place for place, value in enumerate(data) if chr(value).isdigit()]
        data[chance.choice(digits)] = ord(chance.choice("0123456789-.eE"))
    elif kind == "cut":
        del data[at:]
    elif kind == "hole":
        del data[at : min(to, at + chance.choice((1, 10, 1000)))]
    elif kind == "twice":
        data += bytes(data[at:] if chance.random() < 0.5 else data)
    elif kind == "insert":
        data[at:at] = chance.choice(
            (b"\0", b"\xff", b"\n", b",", b'"', b"[" * 5000, b"NaN", b"Infinity", b"\xed\xa0\x80")
        )
    elif kind == "key twice":
        data = bytearray(data.replace(b'"gpu"', b'"gpu": "x", "gpu"', 1))
    elif kind == "mark":
        data[:0] = b"\xef\xbb\xbf"
    elif kind == "wide":
        return text.encode(chance.choice(("utf-16", "utf-32", "utf-7", "latin-1")), "replace")
    else:
        return (b"[" * 100_000) if chance.random() < 0.5 else b'{"a":' * 50_000
    return bytes(data)


def state_of(place: str) -> tuple[list[str], int]:
    """The ids of a store, and how many of its records cannot be read."""
    with RecordStore.open(place, is_made=False) as store:
        return store.ids(""), len(store.unreadable_ids())


def attempt(folder: Path, place: str, chance: random.Random) -> tuple[str, bool, str]:
    """Import a mutated file; returns its format, whether it was taken, and the fault if any."""
    form = chance.choice(FORMATS)
    text = "".join(writer(form)(records()))
    content = (mutate_values if chance.random() < 0.65 else mutate_bytes)(text, chance)
    file = folder / "file"
    file.write_bytes(content)
    before = state_of(place)
    options = ("--gpu", "H200", "--kernel", "gemm.pointer", "--dtype", "bf16", "--workload", "m=1,n=2,k=3")
    code, _, err = called(
        "records", "import", str(file), "--format", form, "--store", place, *(options if chance.random() < 0.4 else ())
    )
    after = state_of(place)
    if code:
        if after != before:
            return form, False, f"a part of a refused file was taken: {len(before[0])} records, then {len(after[0])}"
        if err.count("\n") != 1 or not err[:-1].isprintable() or len(err) > 2000:
            return form, False, f"the error is no line of text: {err[:300]!a}"
        return form, False, ""
    if after[1]:
        return form, True, f"{after[1]} of its records cannot be read back"
    if chance.random() < 0.3:
        used = [
            ("list",),
            ("list", "--all"),
            ("publish", "--folder", str(folder / "tables")),
            ("prune", "--stale", "--dry-run"),
        ]
        used += [("export", "--format", name) for name in RECORDS.names()]
        for words in used:
            called("records", *words, "--store", place)
    return form, True, ""


def attack(count: int, seed: int) -> list[str]:
    """Make attempts; returns the faults, and prints a summary."""
    faults, taken = [], Counter[str]()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(count):
            chance = random.Random(f"{seed}-{number}")
            # A store takes a few files, and is then begun anew: what one file brought meets the next one.
            place = Path(name) / f"{number // 20}.sqlite"
            if number % 20 == 0:
                with RecordStore.open(place) as store:
                    store.add([record(1, run="own")])
            try:
                form, is_taken, fault = attempt(Path(name), str(place), chance)
            except Exception:  # noqa: BLE001 - any exception is a traceback of a command, which is a fault
                form, is_taken, fault = "?", False, traceback.format_exc()
            taken[form] += is_taken
            faults += [f"seed {seed}-{number}, {form}: {fault}"] if fault else []
    print(f"{count} mutated imports, seed {seed}: {sum(taken.values())} files were taken, {len(faults)} faults.")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attack; 1 where it finds a fault."""
    asked = asked_of(__doc__, 3000, arguments)
    faults = attack(asked.count, asked.seed)
    print("\n".join(faults[:20]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
