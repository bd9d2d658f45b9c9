"""Work whose result several test processes share: the first that asks does it, the others wait and read."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


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
        return SharedResults(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """What `work` returned, as JSON keeps it, in the process that was first to ask for this name."""
        file = self.folder / f"shared-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text(json.dumps(work()))
            return json.loads(file.read_text())
