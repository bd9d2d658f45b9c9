"""A run of the tuner survives whatever its candidates do, and its own death; nothing measured is lost or kept twice."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from constrint.cli.app import main
from constrint.kernels.registry import load_spec
from constrint.select import toolchain
from constrint.select.winners import read_tuned
from constrint.tune.engine import local
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from tests.support.clock import PATIENCE_S, wait_until

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

FILE = Path(__file__).parent / "hostile.py"
KERNEL, ONCE, PATIENT = (f"{FILE}:{name}" for name in ("SPEC", "ONCE", "PATIENT"))
BEHAVIOURS = sys.modules[type(load_spec(KERNEL)).__module__].BEHAVIOURS
NAMES = list(BEHAVIOURS)


class Place:
    """A folder for one user's store and table, and the command in it.

    What is not killed, and whose limits are not lowered, runs in this process, whose fork server has loaded torch.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self._patch = folder, capsys, monkeypatch

    def command(self, *arguments: str, search: str = "random", kernel: str = KERNEL) -> list[str]:
        asked = ("tune", "--kernel", kernel, "--gpu", "h200", "--device", "cpu", "--search", search)
        return [sys.executable, "-m", "constrint.cli.app", *asked, "--timeout", "2", "--json", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"CONSTRINT_CACHE": str(self.folder)}

    def start(
        self, *arguments: str, search: str = "random", kernel: str = KERNEL, **options: Any
    ) -> subprocess.Popen[bytes]:
        command = self.command(*arguments, search=search, kernel=kernel)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environment, stdout=pipe, stderr=pipe, start_new_session=True, **options
        )

    def run(self, *arguments: str, **options: str) -> dict[str, Any]:
        with self._patch.context() as patch:
            patch.setenv("CONSTRINT_CACHE", str(self.folder))
            patch.setattr(sys, "argv", self.command(*arguments, **options)[2:])
            # The tools of a process that has not loaded torch, as those that are started here.
            patch.setattr(local, "toolchain", lambda: toolchain._toolchain(False))
            with contextlib.suppress(SystemExit):
                main()
        out, err = self._capsys.readouterr()
        assert out, err
        found: dict[str, Any] = json.loads(out)
        return found

    def run_limited(self, *arguments: str, limit: Callable[[], None], **options: str) -> dict[str, Any]:
        process = self.start(*arguments, preexec_fn=limit, **options)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def records(self) -> list[TuningRecord]:
        with RecordStore.open(self.folder / "records.sqlite") as store:
            return list(store.find())

    def tried(self) -> list[TuningRecord]:
        return [r for r in self.records() if r.figures is None or not r.figures.is_final]

    def wait_for(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until `number` trials are kept."""

        def is_there() -> bool:
            assert process.poll() is None, process.communicate()
            return (self.folder / "records.sqlite").exists() and len(self.records()) >= number

        wait_until(is_there, f"{number} records")


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, capsys, monkeypatch)


def processes_with(text: str) -> Iterator[int]:
    """Processes in whose environment a text stands."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                text.encode() in (folder / "environ").read_bytes()
                and "State:\tZ" not in (folder / "status").read_text()
            ):
                yield int(folder.name)


@pytest.mark.slow
def test_every_fault_is_a_record_and_the_run_ends_with_a_winner(place: Place) -> None:
    # Time enough for what a busy machine ends itself: a process that was killed, a file that has grown too large. Both
    # files and memory are bounded by the user too, so that what fills them is at its bound at once.
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
        resource.setrlimit(resource.RLIMIT_RSS, (2 << 30, 2 << 30))

    document = place.run_limited("--trials", str(len(NAMES)), "--timeout", "5", kernel=ONCE, limit=limit)
    tried = place.tried()
    assert len(tried) == len(NAMES)
    told = {NAMES[int(str(r.config["what"]))]: r.outcome for r in tried}
    assert told == {name: outcome.name.lower() for name, outcome in BEHAVIOURS.items()}
    (result,) = document["results"]
    assert result["winner"]["config"]["what"] in (NAMES.index("right"), NAMES.index("prints"))
    assert Counter(result["outcomes"]) == Counter(r.outcome for r in tried)
    (entry,) = read_tuned(place.folder / "tuned-h200-sxm.json").entries
    assert (entry.config, entry.seconds) == (result["winner"]["config"], result["winner"]["seconds"])


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_goes_on_where_it_was(place: Place, how: signal.Signals) -> None:
    # Its candidates wait for a file: the run cannot be over when the signal comes.
    held = f"{shutil.copy(FILE, place.folder / 'held.py')}:HELD"
    process = place.start("--trials", "12", "--timeout", str(PATIENCE_S), kernel=held)
    place.wait_for(2, process)
    before = {record.id for record in place.records()}
    os.kill(process.pid, how)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert b"Traceback" not in err
    if how == signal.SIGINT:
        assert json.loads(out)["is_whole"] is False
    wait_until(lambda: not list(processes_with(str(place.folder))), "the end of its processes")
    kept = place.records()
    assert before <= {record.id for record in kept}
    (place.folder / "go").touch()
    document = place.run("--trials", "12", "--timeout", str(PATIENCE_S), "--resume", kernel=held)
    (result,) = document["results"]
    assert 2 <= result["known"] < 12
    assert result["is_whole"]
    configs = Counter(json.dumps(record.config, sort_keys=True) for record in place.tried())
    assert len(configs) == 12
    assert set(configs.values()) == {1}
    if how == signal.SIGINT:
        return
    # A third time nothing is measured.
    number = len(place.records())
    again = place.run("--trials", "12", "--resume", kernel=held)
    assert again["results"][0]["winner"] == result["winner"]
    assert len(place.records()) == number


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_what_was_kept_intact(place: Place) -> None:
    RecordStore.open(place.folder / "records.sqlite").close()
    size = (place.folder / "records.sqlite").stat().st_size

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, size + 8192))

    process = place.start("--trials", "30", search="model", kernel=PATIENT, preexec_fn=limit)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    assert b"Traceback" not in err
    assert b"error: " in err
    kept = place.records()
    assert 0 < len(kept) < 30
    document = place.run("--trials", "4", "--resume", search="model", kernel=PATIENT)
    assert document["results"][0]["known"] >= 1
