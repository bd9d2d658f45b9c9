"""A candidate reaches neither secrets nor the network nor the disk, with bubblewrap and, in part, without."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.attacks.workers import escaped
from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.propose import GateSettings, examine, find_sandbox, sandbox, wire
from constrint.propose.process import SandboxWorker, WorkerLost, WorkerRefused
from constrint.propose.sandbox import LIMITS, PLAIN, SCRATCH_BYTES, Sandbox
from constrint.tune.keeper import descendants
from constrint.tune.search.llm.records import SourceProposal
from tests.propose.hostile import ATTEMPTS
from tests.support.clock import wait_until
from tests.support.needs import needs_triton

pytestmark = needs_triton
FOUND = find_sandbox()
needs_bubblewrap = pytest.mark.skipif(isinstance(FOUND, str), reason=f"needs bubblewrap: {FOUND}")
Try = Callable[[str], str]


class Attempts:
    """What the functions of `hostile.py` are told: a secret in a variable, one in the home, a server that listens."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = folder / "home"
        home.mkdir()
        (home / "secret").write_text("the secret of the file")
        monkeypatch.setenv("CONSTRINT_TEST_SECRET", "the secret of the variable")
        self.server = socket.create_server(("127.0.0.1", 0))
        values = {
            "SECRET_FILE": str(home / "secret"),
            "HOME_FOLDER": str(home),
            "FOLDER": str(folder),
            "PORT": str(self.server.getsockname()[1]),
        }
        self.source = ATTEMPTS
        for name, value in values.items():
            self.source = self.source.replace(name, value)

    def try_in(self, worker: SandboxWorker, name: str) -> str:
        """What came of one function."""
        worker.ask(wire.Load(source=escaped(self.source), entry=name), wire.Acknowledged, 30)
        with pytest.raises((WorkerRefused, WorkerLost)) as refused:
            worker.ask(wire.CallOnce(outputs=(), inputs=()), wire.Called, 60)
        return str(refused.value)


def left_behind(attempts: Attempts, worker: SandboxWorker) -> list[int]:
    """The processes of a worker whose candidate has forked three that left their session."""
    assert attempts.try_in(worker, "fork_and_leave") == "RuntimeError: forked"
    inside = [worker.pid, *descendants(worker.pid)]
    assert len(inside) >= 5
    return inside


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    made = Attempts(tmp_path, monkeypatch)
    # Functions of `hostile.py` take two arguments.
    made.source += "\nfor _name, _f in list(globals().items()):\n"
    made.source += (
        "    if callable(_f) and getattr(_f, '__code__', None) and _f.__code__.co_varnames[:2] == ('y', 'x'):\n"
    )
    made.source += "        globals()[_name] = (lambda f: lambda: f(None, None))(_f)\n"
    yield made
    made.server.close()


@needs_bubblewrap
def test_bubblewrap_keeps_secrets_network_and_disk_out_of_reach(attempts: Attempts, tmp_path: Path) -> None:
    assert isinstance(FOUND, Sandbox)
    with SandboxWorker(FOUND) as worker:

        def said(name: str) -> str:
            return attempts.try_in(worker, name)

        assert said("read_variable") == "RuntimeError: None"
        assert "0 with the secret" in said("read_variables_of_others")
        assert said("read_file").startswith("FileNotFoundError")
        assert said("list_home").startswith("FileNotFoundError")
        refused = said("open_socket")
        assert "connected" not in refused
        assert refused.startswith(("OSError", "ConnectionRefusedError"))
        assert said("write_outside") == "RuntimeError: refused 6"
        assert said("raise_limits").startswith("ValueError")
        assert said("take_memory").startswith("MemoryError")
        assert "File too large" in said("large_file")
        assert "root again: False" in said("who")
        assert said("make_namespaces") == "RuntimeError: done: []"
        filled = said("fill_disk")
        assert "No space left" in filled
        assert int(filled.split()[-2]) <= SCRATCH_BYTES >> 20
        written = said("fill_everything")
        assert int(written.split()[-2]) <= SCRATCH_BYTES >> 20
        assert said("print_much") == "RuntimeError: printed 20 MB"
        inside = left_behind(attempts, worker)
    wait_until(lambda: not any(Path(f"/proc/{p}").exists() for p in inside), "the end of a sandbox's processes")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["home", "secret"]


def test_memory_is_bounded_in_sum(attempts: Attempts) -> None:
    """Each of the processes keeps its own limit."""
    found = FOUND if isinstance(FOUND, Sandbox) else PLAIN
    with SandboxWorker(replace(found, totals={"memory_bytes": 900 << 20, "processes": 100})) as worker:
        said = attempts.try_in(worker, "take_memory_together")
        assert said.startswith("it took more than 0.878906 GiB of memory, in all its processes")


@needs_bubblewrap
@pytest.mark.slow
def test_bubblewrap_stops_a_process_that_forks_without_end(attempts: Attempts) -> None:
    assert isinstance(FOUND, Sandbox)
    if FOUND.note:
        pytest.skip(f"the limit of processes does not hold here: {FOUND.note}")
    with SandboxWorker(FOUND) as worker:
        said = attempts.try_in(worker, "fork")
        assert said.startswith("RuntimeError: BlockingIOError after")
        assert int(said.split()[-2]) < LIMITS["processes"]
        folder = f"/proc/{worker.pid}/task/{worker.pid}/children"
        inside = Path(folder).read_text().split()
    assert inside
    wait_until(lambda: not any(Path(f"/proc/{p}").exists() for p in inside), "the end of a sandbox's processes")


def test_without_bubblewrap_the_environment_is_scrubbed_and_limits_hold(attempts: Attempts) -> None:
    with SandboxWorker(PLAIN) as worker:
        assert attempts.try_in(worker, "read_variable") == "RuntimeError: None"
        assert attempts.try_in(worker, "take_memory").startswith("MemoryError")
        assert "File too large" in attempts.try_in(worker, "large_file")
        assert attempts.try_in(worker, "print_much") == "RuntimeError: printed 20 MB"
        if os.getuid() != 0:
            assert attempts.try_in(worker, "raise_limits").startswith("ValueError")
        folder, inside = worker.folder, left_behind(attempts, worker)
        assert Path(folder).is_dir()
        # A forged answer is refused, and so is all that the process says afterwards.
        assert "its answer is none" in attempts.try_in(worker, "forge")
    assert not Path(folder).exists()
    wait_until(lambda: not any(Path(f"/proc/{p}").exists() for p in inside), "the end of a worker's processes")


def test_a_worker_that_ends_is_told_with_its_last_words(attempts: Attempts) -> None:
    with SandboxWorker(PLAIN) as worker:
        assert attempts.try_in(worker, "last_words") == (
            "the process ended (exit code 3); it printed: told before the end"
        )


@needs_bubblewrap
def test_an_attempt_is_recorded_as_what_its_gate_found(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the reading of the source had let it through."""
    monkeypatch.setattr("constrint.propose.examination.illegal", lambda source, entry: "")
    source = escaped(attempts.source.partition("\nfor _name")[0])
    found = examine(
        SourceProposal(task="softmax", language="triton", source=source, entry="read_file"), load_gpu("h200")
    )
    assert [(result.gate, result.passed) for result in found.results] == [("legal", True), ("compiles", False)]
    assert found.message.startswith("FileNotFoundError")
    assert found.score == 0


def test_no_sandbox_has_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.find_sandbox.cache_clear()
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda: None)
    proposal = SourceProposal(task="softmax", language="triton", source="x = 1")
    with pytest.raises(UsageError, match="--allow-unsandboxed"):
        examine(proposal, load_gpu("h200"))
    assert examine(proposal, load_gpu("h200"), GateSettings(allow_unsandboxed=True)).refused_by == "legal"
    sandbox.find_sandbox.cache_clear()


def test_a_system_that_forbids_namespaces_is_told_from_one_without_bubblewrap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forbidden = tmp_path / "bwrap"
    forbidden.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    forbidden.chmod(0o755)
    sandbox.find_sandbox.cache_clear()
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda: str(forbidden))
    with pytest.raises(UsageError, match="this system does not let it work: bwrap: No permissions"):
        sandbox.sandbox_for(allow_unsandboxed=False)
    sandbox.find_sandbox.cache_clear()


def test_a_home_is_never_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where Python itself lies in the home, the home is not shown for it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("sys.base_prefix", str(tmp_path.parent))
    assert not {str(tmp_path), str(tmp_path.parent)} & set(sandbox._own_places())


def test_a_compiler_in_a_folder_of_its_own_is_bound_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Triton builds what starts a kernel with the C compiler of the machine, wherever it lies."""
    compiler = tmp_path / "odd" / "bin" / "gcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    for name, value in (("CC", str(compiler)), ("PATH", f"{compiler.parent}:{os.environ['PATH']}")):
        with monkeypatch.context() as patch:
            patch.delenv("CC", raising=False)
            patch.setenv(name, value)
            command = Sandbox("bubblewrap").command(uses_gpu=True)
            bound = [command[at + 1] for at, word in enumerate(command) if word == "--ro-bind-try"]
            assert str(tmp_path / "odd") in bound
            assert "/" not in bound
            assert PLAIN.environment(is_interpreted=False, uses_gpu=True)["CC"] == str(compiler)


def test_a_machine_without_a_compiler_is_at_fault_and_no_candidate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Sandbox("bubblewrap").command(uses_gpu=False)
    with pytest.raises(UsageError, match=r"no C compiler: gcc, clang, cc were looked for on PATH\. Install one"):
        Sandbox("bubblewrap").command(uses_gpu=True)
