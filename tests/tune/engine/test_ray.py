"""Trials on a Ray cluster of two machines, which are processes here: whatever is lost, no candidate is."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from constrint import __version__
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select import Workload
from constrint.select.fingerprint import fingerprint_of
from constrint.tune import Outcome, Trial
from constrint.tune.engine import ray as engine_module
from constrint.tune.engine.interface import Job, JobResult, Setup
from constrint.tune.engine.ray import RayEngine
from constrint.tune.engine.ray_cluster import RayCluster, RayDevice, choose
from constrint.tune.engine.ray_host import DeviceReport
from constrint.tune.search.interface import Proposal
from constrint.tune.session import Goal
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Settings, Tuner
from tests.support.clock import PATIENCE_S, wait_until
from tests.tune.test_tuner import processes_with

for package, extra in (("torch", "torch"), ("ray", "ray")):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the extra [{extra}]: {package} is not installed", allow_module_level=True)

#: Of this process's cluster alone.
TOKEN = uuid4().hex
HOSTILE = Path(__file__).parents[1] / "hostile.py"
KERNEL = f"{HOSTILE}:SPEC"
WORKLOAD = Workload("hostile", {"n": 8}, "fp32")
SETUP = Setup(
    load_spec, load_gpu("h200"), device="cpu", run_patience_s=8.0, compile_patience_s=8.0, max_memory_bytes=500 << 20
)
BEHAVIOURS: dict[str, Outcome] = sys.modules[type(load_spec(KERNEL)).__module__].BEHAVIOURS
NAMES = list(BEHAVIOURS)
#: One of each kind of outcome; `test_local.py` has them all.
SOME = ("right", "is_killed", "hangs", "wrong", "refused", "segfaults", "prints", "kills_compiler", "raises", "right")


def trial(what: str, kernel: str = KERNEL) -> Trial:
    return Trial(kernel, WORKLOAD, {"what": NAMES.index(what), "times": 1})


def answers(engine: RayEngine, number: int, limit_s: float = PATIENCE_S) -> dict[int, JobResult]:
    """The answers to so many jobs, by number."""
    found: dict[int, JobResult] = {}
    until = time.monotonic() + limit_s
    while len(found) < number:
        assert time.monotonic() < until, f"only {sorted(found)} are answered"
        found |= {done.job.number: done for done in engine.poll(0.2)}
    return found


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    """A cluster whose head does no work."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # Ray would write a token of its own into the home folder.
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        # Ray would let all other processes of this machine go before its own ones.
        patch.setenv("RAY_worker_niceness", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield made
        made.shutdown()


@pytest.fixture
def cluster(started: Any) -> Any:
    """That cluster with two machines for work."""
    while len(started.worker_nodes) < 2:
        started.add_node(num_cpus=1)
    return started


def actors() -> list[int]:
    """The processes of this cluster's actors; tests in other processes may have clusters of their own.

    What an actor has forked has its name until it runs a program of its own.
    """
    parents = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::Host") and TOKEN.encode() in (path.parent / "environ").read_bytes():
                after_name = (path.parent / "stat").read_text().rpartition(")")[2]
                parents[int(path.parent.name)] = int(after_name.split()[1])
    return [pid for pid, parent in parents.items() if parent not in parents]


def wait_for_actors(number: int) -> list[int]:
    """So many of them, once those of an engine that was closed are gone."""
    found: list[int] = []

    def are_there() -> bool:
        found[:] = actors()
        return len(found) == number

    wait_until(are_there, f"{number} actors")
    return found


@dataclass
class Listed:
    """A search that proposes what is on a list."""

    left: list[Proposal] = field(default_factory=list)

    def ask(self, number: int) -> list[Proposal]:
        asked, self.left = self.left[:number], self.left[number:]
        return asked

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        pass


class AfterTrials:
    """Does something when so many trials are known."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self._left, self._act = number, act

    def started(self, slot: int, session: Any) -> None:
        pass

    def tried(self, slot: int, session: Any, record: Any, left_s: float | None) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()

    def finished(self, slot: int, tuned: Any) -> None:
        pass


class CountingEngine(RayEngine):
    """Counts how often each candidate is handed to a device."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.submitted: Counter[str] = Counter()
        super().__init__(*arguments, **options)

    def submit(self, slot: int, job: Job) -> None:
        if not job.is_final:
            self.submitted[str(job.trials[0].config)] += 1
        super().submit(slot, job)


def tuned_with(engine: RayEngine, folder: Path, names: Sequence[str], listener: AfterTrials) -> list[TuningRecord]:
    """Try behaviours twice each; gives what is recorded of them."""
    proposals = [Proposal("hostile", {"what": NAMES.index(name), "times": t}) for name in names for t in (1, 2)]
    settings = Settings(SETUP.gpu, lambda task: Listed(list(proposals)), len(proposals), name_of=lambda name: KERNEL)
    with RecordStore.open(folder / "records.sqlite") as store:
        report = Tuner(settings, engine, store, listener).run([Goal(load_kernel(KERNEL), WORKLOAD)])
        records = list(store.find())
    (tuned,) = report.tuned
    assert tuned.is_whole
    assert tuned.winner is not None
    assert NAMES[int(str(tuned.winner.config["what"]))] in ("right", "prints")
    return records


def outcomes(records: Sequence[TuningRecord]) -> Counter[tuple[str, int, str]]:
    tried = [record for record in records if record.figures is None or not record.figures.is_final]
    return Counter((NAMES[int(str(r.config["what"]))], int(str(r.config["times"])), r.outcome) for r in tried)


def expected(names: Sequence[str]) -> Counter[tuple[str, int, str]]:
    return Counter((name, times, BEHAVIOURS[name].name.lower()) for name in names for times in (1, 2))


def check_that_other_kernels_are_refused(engine: RayEngine, folder: Path) -> None:
    """A device whose machine has another kernel than this one, or none, is given up."""
    changed, missing = (Path(shutil.copy(HOSTILE, folder / name)) for name in ("changed.py", "missing.py"))
    for file in (changed, missing):
        fingerprint_of(load_spec(f"{file}:SPEC"))
    changed.write_text(HOSTILE.read_text() + "\nNEWER = 1\n")
    missing.unlink()
    for slot, file in enumerate((changed, missing)):
        engine.submit(slot, Job(100 + slot, (trial("right", f"{file}:SPEC"),)))
    found = answers(engine, 2)
    assert all(done.slot_is_lost and done.answers[0].outcome == Outcome.NOT_RUN for done in found.values())
    assert "is not the one of this machine" in found[100].answers[0].message
    assert "there is no such Python file" in found[101].answers[0].message
    with pytest.raises(ConstrintError, match="no device can be used"):
        engine.poll(0.0)


@pytest.mark.slow
def test_candidates_have_their_outcomes_and_harm_no_actor(cluster: Any, tmp_path: Path) -> None:
    engine = RayEngine(SETUP, cluster.address)
    try:
        assert len(set(engine.slots)) == 2
        before = wait_for_actors(2)
        for number, name in enumerate(SOME):
            engine.submit(number % 2, Job(number, (trial(name),)))
        found = answers(engine, len(SOME))
        told = {number: (SOME[number], done.answers[0].outcome.name) for number, done in found.items()}
        assert told == {number: (name, BEHAVIOURS[name].name) for number, name in enumerate(SOME)}
        assert {number: done.slot for number, done in found.items()} == {n: n % 2 for n in range(len(SOME))}
        assert not any(done.slot_is_lost for done in found.values())
        assert sorted(actors()) == sorted(before)
        check_that_other_kernels_are_refused(engine, tmp_path)
    finally:
        engine.close()
    wait_for_actors(0)


@pytest.mark.slow
def test_a_machine_that_dies_loses_no_candidate(cluster: Any, tmp_path: Path) -> None:
    # What hangs and what is slow keeps both machines busy when one of them dies, as in a power cut.
    names = ("right", "hangs", "slow", "wrong", "prints", "is_killed", "raises")
    machine = next(iter(cluster.worker_nodes))
    listener = AfterTrials(3, lambda: cluster.remove_node(machine, allow_graceful=False))
    engine = CountingEngine(SETUP, cluster.address)
    try:
        records = tuned_with(engine, tmp_path, names, listener)
    finally:
        engine.close()
    assert outcomes(records) == expected(names)
    # What it had was tried once more, and nothing twice more. Whether it had anything at that moment is chance: that a
    # job is tried again is what `tests/tune/test_tuner_logic.py` asserts.
    assert set(engine.submitted.values()) <= {1, 2}


@pytest.mark.slow
def test_an_actor_that_says_nothing_is_given_up(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = RayEngine(SETUP, cluster.address)
    silent = wait_for_actors(2)[0]
    try:
        os.kill(silent, signal.SIGSTOP)
        for slot in range(2):
            engine.submit(slot, Job(slot, (trial("slow"),)))
        # The other one may load its libraries for as long as it takes.
        found = answers(engine, 1)
        monkeypatch.setattr(engine_module, "SILENT_S", 1.0)
        found |= answers(engine, 1)
        assert sorted(done.slot_is_lost for done in found.values()) == [False, True]
        (lost,) = (done for done in found.values() if done.slot_is_lost)
        assert lost.answers[0].outcome == Outcome.NOT_RUN
        assert "has said nothing for 1 s" in lost.answers[0].message
        # What comes later for that device is answered at once.
        engine.submit(lost.slot, Job(7, (trial("right"),)))
        assert answers(engine, 1)[7].slot_is_lost
    finally:
        os.kill(silent, signal.SIGKILL)
        engine.close()


@pytest.mark.slow
def test_the_command_prints_json_alone_and_ends_all_actors_when_it_is_interrupted(cluster: Any, tmp_path: Path) -> None:
    asked = ("tune", "--engine", "ray", "--address", cluster.address, "--device", "cpu", "--gpu", "h200", "--json")
    command = [sys.executable, "-m", "constrint.cli.app", *asked, "--kernel", KERNEL, "--search", "random"]
    environment = os.environ | {"CONSTRINT_CACHE": str(tmp_path)}
    process = subprocess.Popen(
        [*command, "--trials", "38", "--timeout", "2"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def has_three() -> bool:
        assert process.poll() is None, process.communicate()
        if not (tmp_path / "records.sqlite").exists():
            return False
        with RecordStore.open(tmp_path / "records.sqlite") as store:
            return len(list(store.find())) >= 3

    wait_until(has_three, "three records")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["is_whole"] is False
    assert len(document["results"]) == 1
    assert "Traceback" not in err
    wait_for_actors(0)


#: A program that starts a cluster of its own, and is killed.
DRIVER = """
import time
from constrint.tune.engine.ray_cluster import RayCluster
cluster = RayCluster("local", "cpu", num_actors=1)
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_nothing_of_its_own_cluster() -> None:
    mark = uuid4().hex
    environment = os.environ | {"CONSTRINT_TEST_MARK": mark}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], env=environment, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "started\n"
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_with(mark)]
    assert len(commands) > 5
    # Ray's own agents would stay for more than a minute.
    assert sum(b"environ" in command for command in commands) == 1
    driver.kill()
    driver.communicate()
    wait_until(lambda: not list(processes_with(mark)), "the end of the cluster's processes")


@pytest.mark.parametrize("address", ["nonsense", "host", "host:0x", "host:99999", "http://host:1"])
def test_an_address_that_is_none_is_said_to_be(address: str) -> None:
    with pytest.raises(UsageError, match="write HOST:PORT"):
        RayCluster(address, "cpu")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_where_nothing_answers_is_said_at_once(scheme: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConstrintError, match="no Ray cluster answers at") as raised:
            RayCluster(f"{scheme}127.0.0.1:{taken.getsockname()[1]}", "cpu")
    assert len(str(raised.value).splitlines()) == 1


def test_without_ray_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'constrint\[ray\]'"):
        RayCluster("auto", "cpu")


def device(name: str, model: str | None, tools: str = "3.9.0", version: str = __version__) -> RayDevice:
    report = DeviceReport("host", version, f"NVIDIA {model or 'unheard of'}", model, None, {"triton": tools})
    return RayDevice(None, name, 1, report)


def test_devices_of_another_model_or_with_other_tools_are_not_used() -> None:
    devices = [
        device("a", "H200-SXM"),
        device("b", "A100"),
        device("c", None),
        device("d", "H200-SXM", tools="3.6.0"),
        device("e", "H200-SXM", version="0.0.1"),
        device("f", "H200-SXM"),
    ]
    chosen, unused = choose(devices, "H200-SXM", is_cpu=False)
    assert [each.name for each in chosen] == ["a", "f"]
    assert unused == [
        f"e has constrint 0.0.1, not {__version__}",
        "b is NVIDIA A100, not H200-SXM",
        "c is NVIDIA unheard of, not H200-SXM",
        "d has triton 3.6.0, where others have triton 3.9.0",
    ]


def test_a_model_that_is_named_stands_for_devices_of_which_none_is_known() -> None:
    devices = [device("a", "A100"), device("b", None)]
    assert [each.name for each in choose(devices, "H200-SXM", is_cpu=False)[0]] == ["b"]
    assert [each.name for each in choose(devices, "A100", is_cpu=False)[0]] == ["a"]
    assert choose(devices, "A100", is_cpu=True)[0] == devices
