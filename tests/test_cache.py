"""The cache on disk: whole entries or none, for any number of processes and threads, and never an error."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from constrint import cache
from tests.support.clock import PATIENCE_S


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_stored_is_loaded_and_nothing_else(folder: Path) -> None:
    assert cache.load("kind", b"key") is None
    cache.store("kind", b"key", b"data")
    assert cache.load("kind", b"key") == b"data"
    assert cache.load("kind", b"other") is None
    assert cache.load("another", b"key") is None
    cache.store("kind", b"key", b"")
    assert cache.load("kind", b"key") == b""


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_damaged_entries_are_none(folder: Path, damage: bytes | None) -> None:
    cache.store("kind", b"key", b"data" * 100)
    (path,) = files(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?" if damage is None else damage)
    assert cache.load("kind", b"key") is None
    cache.store("kind", b"key", b"again")
    assert cache.load("kind", b"key") == b"again"


def test_an_entry_holds_for_its_key_alone(folder: Path) -> None:
    """A binary of another source in the right place is not launched."""
    for kind, key in (("kind", b"key"), ("kind", b"other"), ("another", b"key")):
        cache.store(kind, key, kind.encode() + key)
    paths = [Path(cache._path(kind, key)) for kind, key in (("kind", b"key"), ("kind", b"other"), ("another", b"key"))]
    for other in paths[1:]:
        paths[0].write_bytes(other.read_bytes())
        assert cache.load("kind", b"key") is None
    assert cache.load("kind", b"other") == b"kindother"


def foreign(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files to others")
    os.chown(path, 65534, 65534)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners of this kind here")
@pytest.mark.parametrize("change", [
    lambda path: path.chmod(0o620), lambda path: path.chmod(0o602), foreign,
    lambda path: path.parent.chmod(0o770), lambda path: path.parent.parent.chmod(0o707),
    lambda path: foreign(path.parent), lambda path: foreign(path.parent.parent),
])  # fmt: skip
def test_what_others_may_write_is_not_used(folder: Path, change: Callable[[Path], None]) -> None:
    cache.store("kind", b"key", b"data")
    (path,) = files(folder)
    assert (path.parent.stat().st_mode, path.parent.parent.stat().st_mode) == (0o40700, 0o40700)
    change(path)
    cache._is_own_folder.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [cache.load("kind", b"key") for _ in range(3)] == [None] * 3
    is_folder = cache._is_own(path.stat())
    assert ["nothing is read from the cache" in str(one.message) for one in said] == [True] * is_folder
    cache._is_own_folder.cache_clear()


def test_a_loose_umask_makes_no_folder_for_others(folder: Path) -> None:
    before = os.umask(0)
    try:
        cache.store("kind", b"key", b"data")
    finally:
        os.umask(before)
    assert cache.load("kind", b"key") == b"data"


def test_nothing_is_kept_where_it_is_ignored_or_cannot_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cache.ignored():
        cache.store("kind", b"key", b"data")
        cache.store_soon("kind", b"key", b"data")
        assert cache.folder() is None
    monkeypatch.setenv("CONSTRINT_CACHE", "0")
    cache.store("kind", b"key", b"data")
    assert cache.load("kind", b"key") is None
    blocked = folder / "file"
    blocked.write_bytes(b"")
    assert files(folder) == [blocked]
    monkeypatch.setenv("CONSTRINT_CACHE", str(blocked))
    cache.store("kind", b"key", b"data")
    assert cache.load("kind", b"key") is None
    assert files(folder) == [blocked]


SOON = """
from constrint import cache
for i in range(200):
    cache.store_soon("kind", str(i).encode(), bytes([i]) * 1000)
assert cache.load("kind", b"199") == bytes([199]) * 1000
"""


def test_what_is_stored_soon_is_there_at_once_and_on_disk_at_the_end(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", SOON], check=True)
    assert [cache.load("kind", str(i).encode()) for i in range(200)] == [bytes([i]) * 1000 for i in range(200)]
    assert len(files(folder)) == 200


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_and_a_forked_process_share_a_folder(folder: Path) -> None:
    def work(number: int) -> None:
        for i in range(100):
            cache.store_soon("kind", str(i % 10).encode(), bytes([number]) * 5000)
            data = cache.load("kind", str(i % 10).encode())
            assert data is not None
            assert len(set(data)) == 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    if hasattr(os, "fork"):
        child = multiprocessing.get_context("fork").Process(target=work, args=(9,))
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 0
    for thread in threads:
        thread.join()


def test_sources_of_device_code_belong_to_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept plan launches the binary of a source, so it ends with that."""
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    seen = set()
    for number, name in enumerate(("a.py", "kernel.cu", "header.cuh", "kernel.cu", "notes.txt")):
        (tmp_path / name).write_text("x" * number)
        cache._version.cache_clear()
        seen.add(cache._version())
    cache._version.cache_clear()
    assert len(seen) == 4


def test_another_version_of_the_files_begins_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("kind", b"key", b"data")
    cache._root_of.cache_clear()
    monkeypatch.setattr(cache, "_version", lambda: "0.0-other")
    assert cache.load("kind", b"key") is None
    monkeypatch.undo()
    cache._root_of.cache_clear()
