"""Work whose result several test processes share: the first that asks does it, the others wait and read."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from constrint import cache as results_on_disk
from constrint.choose import forget
from constrint.kernels.gemm import candidates, tables
from constrint.kernels.gemm.spec import gemm_specs


class SharedResults:
    """Results by name, for all workers of one run of pytest.

    Args:
        folder: A folder that all of them see.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of_run(factory: pytest.TempPathFactory) -> SharedResults:
        """Those of this run; a worker of pytest-xdist has a folder below the one that all have."""
        base = factory.getbasetemp()
        _RUN.append(SharedResults(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base))
        return _RUN[-1]

    def files_once(self, name: str, make: Callable[[Path], None]) -> Path:
        """The folder that `make` filled, in the process that was first to ask for this name."""
        folder = self.folder / f"files-{name}"
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                part = Path(tempfile.mkdtemp(dir=self.folder))
                make(part)
                part.replace(folder)
        return folder

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """What `work` returned, as JSON keeps it, in the process that was first to ask for this name."""
        file = self.folder / f"shared-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text(json.dumps(work()))
            return json.loads(file.read_text())


#: Those of this run, once a test has begun.
_RUN: list[SharedResults] = []


@cache
def files_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one process of this run fills for all; outside of a run, for this process."""
    if _RUN:
        return _RUN[-1].files_once(name, make)
    return SharedResults(Path(tempfile.mkdtemp(prefix="constrint-tests-"))).files_once(name, make)


class SharedTables:
    """Stands for `constrint.cache` where tables of GEMMs are kept: what one test of this run made, the others read.

    A table takes seconds. Where a test keeps things on disk itself, it has the cache that it asks for.

    Args:
        results: Those of the run.
        always: Whether a test that keeps things on disk itself has these tables all the same.
        kind: Name of the folder: tables that are made in different ways lie apart.
    """

    def __init__(self, results: SharedResults, *, always: bool = False, kind: str = "tables") -> None:
        self._folder, self._always = results.folder / kind, always
        self._folder.mkdir(exist_ok=True)

    def load(self, kind: str, key: bytes) -> bytes | None:
        """The entry of a kind under a key; None where there is none."""
        if results_on_disk.folder() is not None and not self._always:
            return results_on_disk.load(kind, key)
        try:
            return self._file(kind, key).read_bytes()
        except OSError:
            return None

    def store(self, kind: str, key: bytes, data: bytes) -> None:
        """Keep an entry; it is whole or absent for every other process."""
        if results_on_disk.folder() is not None and not self._always:
            results_on_disk.store(kind, key, data)
            return
        part = self._folder / f"part-{os.getpid()}"
        part.write_bytes(data)
        part.replace(self._file(kind, key))

    def _file(self, kind: str, key: bytes) -> Path:
        return self._folder / hashlib.sha256(kind.encode() + b":" + key).hexdigest()


#: The products by which the tables of each kernel keep their rows, for users.
WHOLE = {type(spec): spec.table_shapes for spec in gemm_specs()}
#: Where these are more than MANY, one in EVERY counts for tests: a table takes half a second instead of two.
MANY, EVERY = 1000, 5
#: Whole tables that this process has read or made.
_WHOLE_TABLES: dict[int, tables.Tables] = {}


def use_few_shapes(results: SharedResults, patch: pytest.MonkeyPatch) -> None:
    """Let tables be made by few products, and be shared by the run: they hold valid rows, but not all of the best."""
    patch.setattr(tables, "cache", SharedTables(results))
    for spec, stages in WHOLE.items():
        if sum(len(shapes) for shapes, _ in stages) > MANY:
            patch.setattr(spec, "table_shapes", tuple((shapes[::EVERY], best_of) for shapes, best_of in stages))


def use_whole_tables(results: SharedResults, patch: pytest.MonkeyPatch) -> None:
    """Let tables be made as users have them, and choices be made by these."""
    patch.setattr(tables, "cache", SharedTables(results, kind="whole-tables"))
    for spec, stages in WHOLE.items():
        patch.setattr(spec, "table_shapes", stages)
    patch.setattr(candidates, "_TABLES", _WHOLE_TABLES)
    forget()
