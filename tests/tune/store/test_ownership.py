"""Whose file it is: what was never a store is refused and stays as it is, and reading writes nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from constrint.errors import UsageError
from constrint.tune.store.sqlite_file import APPLICATION_ID, DamagedStoreWarning
from constrint.tune.store.store import RecordStore
from tests.cli.conftest import Call
from tests.cli.conftest import run as run
from tests.support.records import record
from tests.tune.store.test_proposals import EARLIER


def contents(folder: Path) -> dict[str, bytes]:
    """Names and bytes of all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def database(path: Path, script: str, *, in_journal: bool = False) -> None:
    """A database of another program; `in_journal`: one that was killed before its journal was moved into the file."""
    raw = sqlite3.connect(path)
    raw.executescript(script)
    raw.commit()
    if in_journal:
        raw.executescript("PRAGMA journal_mode = WAL; CREATE TABLE later (x); INSERT INTO later VALUES (1)")
        parts = contents(path.parent)
        raw.close()
        for name, content in parts.items():
            (path.parent / name).write_bytes(content)
    raw.close()


def earlier_dump(path: Path) -> None:
    path.write_text(f"-- a dump of a store\n{EARLIER}")


#: Files that were never a store.
OTHERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("remember the milk\n" * 400),
    "one byte": lambda path: path.write_bytes(b"x"),
    "zeros": lambda path: path.write_bytes(bytes(8192)),
    "the first bytes of a database": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "a dump of a store": earlier_dump,
    "another program's": lambda path: database(path, "CREATE TABLE moz_places (id, url)"),
    "another program's, open": lambda path: database(path, "CREATE TABLE moz_places (id, url)", in_journal=True),
    "another program's with an id": lambda path: database(path, f"PRAGMA application_id = 7; {EARLIER}"),
    "without a table": lambda path: database(path, "PRAGMA user_version = 3; VACUUM"),
    "another program's, damaged": lambda path: path.write_bytes(b"SQLite format 3\0" + os.urandom(4000)),
}


@pytest.mark.parametrize("name", ["notes.db", "records.sqlite"])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_something_else_is_left_alone(
    run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))  # in which `records.sqlite` is the user's own store
    path = tmp_path / name
    OTHERS[kind](path)
    before = contents(tmp_path)
    for is_made in (False, True):
        with pytest.raises(UsageError, match=f"{name} is no store: it is .* and was left as it is. Name a file"):
            RecordStore.open(path, is_made=is_made)
    for command in ("list", "show x", "prune --failed --yes", "export", "proposals"):
        code, _, err = run("records", *command.split(), "--store", path)
        assert (code, err.count("is no store"), err.count("\n")) == (2, 1, 1)
    assert contents(tmp_path) == before


def test_names_of_files_do_nothing_to_a_terminal(run: Call, tmp_path: Path) -> None:
    path = tmp_path / "\x1b]0;x\x07\n.sqlite"
    states: list[Callable[[], object]] = [
        lambda: None, path.touch, lambda: OTHERS["text"](path), lambda: OTHERS["another program's"](path),
        path.mkdir, lambda: fill_and_damage(path),
    ]  # fmt: skip
    for state in states:
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        state()
        _, out, err = run("records", "list", "--store", path)
        assert (out + err).replace("\n", "").isprintable()
        assert err.count("\n") == 1


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(UsageError, match="is no file that could hold a store"):
            RecordStore.open(path)


@pytest.mark.parametrize("is_named", [True, False])
def test_commands_that_read_write_nothing(
    run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    path, store = tmp_path / "records.sqlite", ("--store", tmp_path / "records.sqlite") if is_named else ()
    reads = ("list", "list --all", "export", "proposals", "show 0", "prune --failed --dry-run", "diff a b")
    states: list[Callable[[], object]] = [lambda: None] if not is_named else []
    states += [path.touch, lambda: database(path, EARLIER), lambda: fill_and_damage(path)]
    for state in states:
        path.unlink(missing_ok=True)
        state()
        before = contents(tmp_path)
        for command in reads:
            code, _, err = run("records", *command.split(), *store)
            assert (code, "Traceback" in err) == (2 if command in ("show 0", "diff a b") else 0, False)
            assert contents(tmp_path) == before


def fill_and_damage(path: Path) -> None:
    path.unlink(missing_ok=True)
    with RecordStore.open(path) as store:
        store.add([record(i) for i in range(20)])
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 5000)


def test_reading_leaves_the_journal_of_a_process_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    store = RecordStore.open(path)
    store.add([record(i) for i in range(20)])
    with store._database.reading():
        parts = contents(tmp_path)
    store.close()
    for name, content in parts.items():
        (tmp_path / name).write_bytes(content)
    assert "records.sqlite-wal" in parts
    # SQLite itself removes the journal of a file of one byte, also where it may only read.
    path.write_bytes(b"S")
    with pytest.warns(DamagedStoreWarning, match="all but its journal is lost"):
        RecordStore.open(path, is_made=False).close()
    assert contents(tmp_path)["records.sqlite-wal"] == parts["records.sqlite-wal"]
    path.write_bytes(parts["records.sqlite"])
    with RecordStore.open(path, is_made=False) as reader:
        assert list(reader.find()) == [record(i) for i in range(20)]
    after = contents(tmp_path)
    assert {name: after[name] for name in ("records.sqlite", "records.sqlite-wal")} == {
        name: parts[name] for name in ("records.sqlite", "records.sqlite-wal")
    }


def test_a_store_of_an_earlier_version_is_read_and_marked_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    database(path, EARLIER)
    old = [record(i) for i in range(3)]
    with RecordStore.open(tmp_path / "new.sqlite") as store:
        store.add(old)
    with sqlite3.connect(path) as raw:
        names = ", ".join(row[1] for row in raw.execute("PRAGMA table_info(constrint_records)"))
        raw.execute("ATTACH ? AS new", (str(tmp_path / "new.sqlite"),))
        raw.execute(f"INSERT INTO constrint_records SELECT {names} FROM new.constrint_records")
        raw.execute("UPDATE constrint_records SET gpu = 'H2OO' WHERE id = ?", (old[2].id,))
    raw.close()

    def application() -> int:
        return int.from_bytes(path.read_bytes()[68:72], "big")

    with RecordStore.open(path, is_made=False) as store:
        with pytest.warns(UserWarning, match="its columns differ from its text"):
            found = list(store.find())
        assert found == old[:2]
        assert (application(), store.unreadable_ids()) == (0, [old[2].id])
        store.add([record(9)])
        assert application() == APPLICATION_ID
        assert list(store.find()) == [*old[:2], record(9)]
    with sqlite3.connect(path) as raw:
        (num_sealed,) = raw.execute("SELECT count(checksum) FROM constrint_records").fetchone()
    raw.close()
    assert num_sealed == 3
    with RecordStore.open(path) as store:
        assert store.unreadable_ids() == [old[2].id]


def test_an_empty_file_is_said_and_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.touch()
    with pytest.warns(DamagedStoreWarning, match="has 0 bytes: it is read as an empty one"):
        store = RecordStore.open(path, is_made=False)
    with store:
        assert (store.count(), path.read_bytes()) == (0, b"")
        with pytest.warns(DamagedStoreWarning, match="has 0 bytes"):
            assert store.add([record(0)]) == 1
        assert list(store.find()) == [record(0)]


def test_opening_a_store_again_keeps_the_locks_of_the_first_connection(tmp_path: Path) -> None:
    """POSIX drops a process's locks on a file when the process closes it, however often it has it open."""
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path) as store:
        store.add([record(0)])
        with store._database.reading() as connection:
            connection.exec_driver_sql("SELECT 1 FROM constrint_meta").all()
            RecordStore.open(path).close()
            RecordStore.open(path, is_made=False).close()
            locks = Path("/proc/locks").read_text() if Path("/proc/locks").exists() else ""
            inode = f":{path.stat().st_ino} "
            assert not locks or [line for line in locks.splitlines() if inode in line and f" {os.getpid()} " in line]


def test_a_link_to_a_store_stays_a_link(tmp_path: Path) -> None:
    link, path = tmp_path / "link.sqlite", tmp_path / "there" / "records.sqlite"
    path.parent.mkdir()
    link.symlink_to(path)
    with RecordStore.open(link) as store:
        store.add([record(0)])
    fill_and_damage(path)
    with pytest.warns(DamagedStoreWarning, match="is damaged"), RecordStore.open(link) as store:
        store.add([record(99)])
    assert link.is_symlink()
    assert len(list(path.parent.glob("*.damaged*"))) == 1
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big")


def test_the_journal_of_a_file_that_was_removed_is_not_met_by_a_fresh_one(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path) as store:
        store.add([record(0)])
        with store._database.reading():
            journal = path.with_name("records.sqlite-wal").read_bytes()
    path.unlink()
    path.with_name("records.sqlite-wal").write_bytes(journal)
    with RecordStore.open(path) as store:
        assert store.add([record(1)]) == 1
        assert list(store.find()) == [record(1)]
    assert [one.read_bytes() == journal for one in tmp_path.glob("*.damaged*-wal")] == [True]
