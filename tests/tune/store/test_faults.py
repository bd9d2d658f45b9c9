"""What can happen to a store's file: damage, a full disk, no right to write, a later version, something else's file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from constrint.errors import StoreDamagedError, StoreError, UsageError
from constrint.tune.store.sqlite_file import DamagedStoreWarning
from constrint.tune.store.store import RecordStore
from tests.support.records import record

ROOT = Path(__file__).resolve().parents[3]


def filled(path: Path, number: int = 300) -> Path:
    with RecordStore.open(path) as store:
        store.add([record(i) for i in range(number)])
    return path


def scribble(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def spoil(path: Path, how: str) -> None:
    size = path.stat().st_size
    if how == "truncated":
        os.truncate(path, size // 2)
    elif how == "cut in a page":
        os.truncate(path, 4096 + 1000)
    elif how == "scribbled":
        scribble(path, 4096, os.urandom(size - 4096))
    elif how == "schema lost":
        scribble(path, 100, bytes(3996))
    elif how == "no header":
        scribble(path, 0, b"garbage of sixteen bytes")


@pytest.mark.parametrize("how", ["truncated", "cut in a page", "scribbled", "schema lost", "no header"])
def test_a_damaged_store_is_set_aside_and_work_goes_on(tmp_path: Path, how: str) -> None:
    path = filled(tmp_path / "records.sqlite")
    spoil(path, how)
    spoilt = path.read_bytes()
    with pytest.warns(DamagedStoreWarning, match=r"is damaged \(.*It is kept as .*\.damaged-20"):
        store = RecordStore.open(path)
    with store:
        found = list(store.find())
        assert set(map(repr, found)) <= {repr(record(i)) for i in range(300)}
        assert len(found) >= {"truncated": 100, "schema lost": 300, "no header": 300}.get(how, 0)
        assert store.add([record(1000)]) == 1
    (aside,) = tmp_path.glob("*.damaged*")
    assert aside.read_bytes() == spoilt
    with RecordStore.open(path) as again:
        assert list(again.find()) == [*found, record(1000)]


def test_every_backup_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    for _ in range(3):
        filled(path)
        spoil(path, "scribbled")
        with pytest.warns(DamagedStoreWarning):
            RecordStore.open(path).close()
    assert len(list(tmp_path.glob("*.damaged*"))) == 3


def test_only_one_of_many_sets_it_aside(tmp_path: Path) -> None:
    path = filled(tmp_path / "records.sqlite")
    spoil(path, "scribbled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedStoreWarning)
        with ThreadPoolExecutor(6) as pool:
            stores = list(pool.map(lambda _: RecordStore.open(path), range(6)))
    for number, store in enumerate(stores):
        assert store.add([record(number)]) == 1
    assert {store.count() for store in stores} == {6}
    for store in stores:
        store.close()
    assert len([path for path in tmp_path.glob("*.damaged*") if not path.name.endswith(("-wal", "-shm"))]) == 1
    assert not list(tmp_path.glob("*lock*"))


def test_damage_while_it_is_open_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    path = filled(tmp_path / "records.sqlite", 2000)
    with RecordStore.open(path) as store:
        assert store.count() == 2000
        spoil(path, "scribbled")
        with pytest.raises(StoreDamagedError, match=r"malformed; open it again: what can be read is then copied"):
            list(store.find())


def test_a_writer_that_does_not_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrint.tune.store.sqlite_file.BUSY_S", 0.05)
    path = filled(tmp_path / "records.sqlite", 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with RecordStore.open(path) as store:
        assert store.count() == 1
        with pytest.raises(StoreError, match="database is locked; another process has been writing for a long time"):
            store.add([record(2)])
        other.execute("ROLLBACK")
        assert store.add([record(2)]) == 1
    other.close()


def test_a_file_that_is_removed_or_set_aside_meanwhile_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path) as store:
        store.add([record(0)])
        path.unlink()
        assert store.add([record(1)]) == 1
        with RecordStore.open(path) as other:
            assert list(other.find()) == list(store.find()) == [record(1)]
            other.add([record(i) for i in range(2, 300)])
        spoil(path, "scribbled")
        with pytest.warns(DamagedStoreWarning):
            RecordStore.open(path).close()
        assert store.add([record(1000)]) == 1
        left = list(store.find())
    assert left[-1] == record(1000)
    with RecordStore.open(path) as again:
        assert list(again.find()) == left


def test_a_folder_is_refused_with_a_name_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder; name a file in it, such as .*records\.sqlite"):
        RecordStore.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be reached or made"):
        RecordStore.open(tmp_path / "file" / "records.sqlite")


@pytest.mark.parametrize("schema", ["2", "1000000000000", "-1", "x", None])
def test_another_schema_is_refused(tmp_path: Path, schema: str | None) -> None:
    path = filled(tmp_path / "records.sqlite", 1)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE constrint_meta SET value = ?", (schema,))
    raw.close()
    with pytest.raises(StoreError, match=r"and this version of constrint reads up to 1\. Upgrade constrint, or name"):
        RecordStore.open(path)
    assert path.exists()


def test_a_damaged_store_of_another_schema_is_refused_too(tmp_path: Path) -> None:
    path = filled(tmp_path / "records.sqlite", 60)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE constrint_meta SET value = '2'")
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'constrint_records_by_run'").fetchone()
    raw.close()
    scribble(path, (root - 1) * 4096, os.urandom(4096))
    before = path.read_bytes()
    for is_made in (False, True):
        with pytest.raises(StoreError, match="has schema 2, and this version"):
            RecordStore.open(path, is_made=is_made)
    assert path.read_bytes() == before


def test_a_table_that_somebody_added_is_no_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "records.sqlite", 3)
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE notes (text)")
        raw.execute("ALTER TABLE constrint_records ADD COLUMN note TEXT")
    raw.close()
    with RecordStore.open(path) as store:
        assert store.add([record(3)]) == 1
        assert list(store.find()) == [record(i) for i in range(4)]


@pytest.mark.parametrize(("old", "new"), [
    (b"TABLE constrint_records", b"TABLE constrint_recXrds"),
    (b"proposalsconstrint_proposals", b"prXposalsconstrint_prXposals"),
    (b"constrint_meta", b"constrint_m\xfft\xff"),
    (b"PRIMARY KEY", b"PRIMARY K\xff\xfe"),
])  # fmt: skip
def test_a_damaged_schema_is_told_and_its_records_are_read(tmp_path: Path, old: bytes, new: bytes) -> None:
    """Text of the schema that is no UTF-8, or names other tables: no traceback, and no empty store in silence."""
    path = filled(tmp_path / "records.sqlite", 20)
    data = path.read_bytes()
    at = data.index(old)
    scribble(path, at, new)
    with pytest.warns(DamagedStoreWarning, match="is damaged"):
        store = RecordStore.open(path, is_made=False)
    with store:
        assert list(store.find()) == [record(i) for i in range(20)]


def test_indices_that_differ_from_their_tables_are_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "records.sqlite", 20)
    with sqlite3.connect(path) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'constrint_records_by_run'").fetchone()
    raw.close()
    at = path.read_bytes().index(b"run-1", (root - 1) * 4096)
    scribble(path, at, b"run-2")
    with pytest.warns(DamagedStoreWarning, match=r"is damaged \(.*index constrint_records_by_run"):
        store = RecordStore.open(path)
    with store:
        assert list(store.find(run="run-1")) == [record(i) for i in range(20)]


#: Runs with files of at most so many bytes: SQLite cannot write any further, as on a full disk.
FULL_DISK = """
import resource, sys
from constrint.errors import StoreFullError
from constrint.tune.store.store import RecordStore
from tests.support.records import record
with RecordStore.open(sys.argv[1]) as store:
    store.add([record(i) for i in range(100)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    kept = 100
    try:
        for start in range(100, 10_000, 100):
            store.add([record(i) for i in range(start, start + 100)])
            kept += 100
    except StoreFullError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert store.count() == kept, (store.count(), kept)
    assert store.add([record(i) for i in range(kept, kept + 100)]) == 100
    print(kept + 100)
"""

#: Without the right to write: reading works, adding says what to do.
READ_ONLY = """
import os, sys
from pathlib import Path
from constrint.errors import StoreReadOnlyError
from constrint.tune.store.store import RecordStore
from tests.support.records import record
RecordStore.open(sys.argv[1]).close()  # whatever is imported may belong to root
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
with RecordStore.open(sys.argv[1]) as store:
    print(len(list(store.find())), store.count())
    try:
        store.add([record(1000)])
    except StoreReadOnlyError as error:
        print(error)
try:
    RecordStore.open(Path(sys.argv[1]).parent / "new.sqlite")
except StoreReadOnlyError as error:
    print(error)
try:
    RecordStore.open(Path(sys.argv[1]).parent / "folder" / "new.sqlite")
except StoreReadOnlyError as error:
    print(error)
"""


def run_python(program: str, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="the size of files cannot be limited here")
    path = tmp_path / "records.sqlite"
    said, kept = run_python(FULL_DISK, str(path))
    assert "free some space" in said
    assert "or name a store elsewhere" in said
    with RecordStore.open(path) as store:
        assert store.count() == int(kept)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are not those of POSIX here")
def test_without_the_right_to_write_a_store_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    path = filled(folder / "records.sqlite")
    os.chmod(path, 0o444)
    os.chmod(folder, 0o555)
    for parent in [p for p in folder.parents if any(part.startswith("pytest-of-") for part in p.parts)]:
        os.chmod(parent, 0o755)  # pytest's folders are for their owner alone
    try:
        counts, added, made, folder_made = run_python(READ_ONLY, str(path))
    finally:
        os.chmod(folder, 0o755)
    assert counts == "300 300"
    assert "attempt to write a readonly database; change its permissions, or name a store elsewhere" in added
    assert "unable to open database file; see that its folder can be written to" in made
    assert "cannot be reached or made: Permission denied; name one elsewhere" in folder_made
