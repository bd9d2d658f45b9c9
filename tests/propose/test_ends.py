"""A candidate that leaves what cannot be freed ends no judge, and its worker ends without a word."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.attacks import triton_source
from benchmarks.attacks.triton_source import Case
from benchmarks.attacks.workers import escaped
from constrint.propose import find_sandbox, process, wire
from constrint.propose.process import SandboxWorker, WorkerLost, WorkerRefused
from constrint.propose.sandbox import PLAIN, Sandbox
from tests.support.clock import PATIENCE_S
from tests.support.forked_worker import OpenWorker
from tests.support.needs import needs_triton

pytestmark = needs_triton
FOUND = find_sandbox()
#: The memory of a call is kept until the next one. In place of it lies here what ends the process where it is freed, as
#: a block does whose size a kernel has overwritten; with a block the allocator decides whether it notices.
KEEPS_WHAT_CANNOT_BE_FREED = """
import gc
import os

class Overwritten:
    def __del__(self):
        os.write(2, b"free(): invalid pointer")
        os.abort()

def run():
    (server,) = [one for one in gc.get_objects() if type(one).__name__ in ("Server", "OpenServer")]
    server._prepared = Overwritten()
"""
KINDS = ("names", "interior", "texts")


def called(worker: Any, source: str) -> None:
    """Let a worker call a candidate that takes no arguments."""
    worker.ask(wire.Load(source=source, entry="run"), wire.Acknowledged, 60)
    worker.ask(wire.CallOnce(outputs=(), inputs=()), wire.Called, 60)


def test_a_worker_frees_nothing_at_its_end() -> None:
    with SandboxWorker(FOUND if isinstance(FOUND, Sandbox) else PLAIN, is_interpreted=True) as worker:
        called(worker, escaped(KEEPS_WHAT_CANNOT_BE_FREED))
        started = worker._process
        assert started.stdin is not None
        assert started.stderr is not None
        # So its worker sees the end of a judge.
        started.stdin.close()
        assert (started.wait(PATIENCE_S), started.stderr.read()) == (0, b"")


def test_what_a_forked_worker_prints_is_not_the_output_of_its_judge() -> None:
    """The allocator's `free(): invalid pointer` stood there at the end of an attack whose judge was well."""
    where = "' '.join(os.readlink(f'/proc/self/fd/{number}') for number in (1, 2))"
    source = f"import os\ndef run():\n    raise ValueError({where})\n"
    with OpenWorker(is_interpreted=True) as worker, pytest.raises(WorkerRefused, match="/dev/null /dev/null"):
        called(worker, source)


def test_a_worker_whose_end_nobody_saw_is_lost_and_no_more() -> None:
    """A candidate with all of Python that ends the process above it, and then its own."""
    source = "import os\ndef run():\n    os.kill(os.getppid(), 9)\n    os._exit(3)\n"
    with OpenWorker(is_interpreted=True) as worker, pytest.raises(WorkerLost, match="nobody saw how"):
        called(worker, source)


@pytest.mark.parametrize(("waited_s", "rest_s"), [(0.0, -6.0), (7.0, 1.0), (1000.0, 10.0)])
def test_a_wait_has_the_time_besides_its_limit_in_which_the_worker_waited_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, waited_s: float, rest_s: float
) -> None:
    """Ten seconds of a wait of four are over; no more than four times the limit comes besides."""
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: 110.0))
    monkeypatch.setattr(process, "delays_of", lambda pid: {1: 3.0 + waited_s, 2: 0.0})
    with SandboxWorker(PLAIN, is_interpreted=True) as worker:
        assert worker._rest_s(100.0, {1: 3.0}, 4.0) == pytest.approx(rest_s)
        assert worker._rest_s(109.0, {1: 3.0}, 4.0) == pytest.approx(3.0)


def test_an_exception_of_the_judge_is_a_find_and_no_end_of_the_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(case: Case) -> tuple[str, str]:
        if case.kind == "interior":
            raise OSError("no more files")
        return "legal", ""

    monkeypatch.setattr(triton_source, "judged", failing)
    monkeypatch.setattr(triton_source, "cases", lambda *_: [Case(kind, "", lambda *_: True) for kind in KINDS])
    said: list[str] = []
    counts, found = triton_source.attack(3, seed=1, say=said.append)
    assert [message.splitlines()[-1] for _, _, message in found] == ["OSError: no more files"]
    assert counts == Counter({"names: legal": 1, "interior: the judge ended": 1, "texts: legal": 1})
    assert "no more files" in said[0]


def test_an_attack_that_goes_on_draws_what_it_would_have_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def judged(case: Case) -> tuple[str, str]:
        tried.append(case.source)
        return "legal", ""

    monkeypatch.setattr(triton_source, "judged", judged)
    triton_source.attack(30, seed=9)
    triton_source.attack(6, seed=9, first=24)
    assert tried[24:30] == tried[30:]
