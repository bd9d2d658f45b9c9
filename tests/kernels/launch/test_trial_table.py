"""How a table holds a trial: under keys of its own, until the fastest plan takes its place and goes to the disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

import msgspec
import torch

from constrint import cache
from constrint.kernels.launch.plan import table as tables
from constrint.kernels.launch.plan import trial
from constrint.kernels.launch.plan.recipe import FillStep, Recipe, RecordedCall
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import PlanTable
from constrint.kernels.launch.plan.trial import Rivals


class FakeCore:
    """The core's table by the key alone; a plan is the number of words of its recipe's fill."""

    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}
        self.ran: list[int] = []

    def table_call(self, _: Any, is_inner: bool, extra: Any, *tensors: Any) -> Any:
        if extra not in self.entries:
            return False
        entry = self.entries[extra]
        if entry is None or callable(entry):
            return None if entry is None else entry(*tensors)
        self.ran.append(entry)
        return f"result of {entry}"

    def table_insert(self, _: Any, extra: Any, tensors: Any, plan: Any, *facts: Any) -> bool:
        assert extra not in self.entries
        self.entries[extra] = plan
        return True

    def table_drop(self, _: Any, extra: Any, tensors: Any) -> bool:
        return bool(self.entries.pop(extra, "absent") != "absent")


class FakeClock:
    """A device that is done at once; the core's runs take as many seconds as their number says."""

    def __init__(self, core: FakeCore) -> None:
        self.core = core

    def event(self) -> Any:
        return FakeEvent(self.core)

    def pause(self, seconds: float) -> None: ...

    def evict(self) -> None: ...

    def host_s(self) -> float:
        return 0.0

    def is_captured(self) -> bool:
        return False


class FakeEvent:
    def __init__(self, core: FakeCore) -> None:
        self.core, self.at = core, 0

    def record(self) -> None:
        self.at = sum(self.core.ran)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1e3 * float(end.at - self.at)


def recipe(number: int) -> Recipe:
    return Recipe([FillStep(0, 0, number)], [], 1, 0, f"plan {number}")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> FakeCore:
    fake = FakeCore()
    monkeypatch.setattr(tables, "compiled", fake)
    monkeypatch.setattr(tables, "_device_facts", lambda _: ())
    monkeypatch.setattr(tables, "_tables", lambda _: "")
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(trial, "CurrentDevice", lambda: FakeClock(fake))
    return fake


def table_of(
    numbers: Sequence[int], monkeypatch: pytest.MonkeyPatch, missing: Sequence[int] = ()
) -> tuple[PlanTable, list[Any], list[Any]]:
    """A table whose calls are recorded as the first number, with the others as rivals; outcomes and what is stored."""
    outcomes: list[Any] = []
    stored: list[Any] = []

    def build(*_: Any) -> RecordedCall:
        labels = [f"kernel {number}" for number in numbers]
        rivals = Rivals([recipe(n) for n in numbers[1:]], labels, [1e-6] * len(numbers), lambda *o: outcomes.append(o))
        return RecordedCall(recipe(numbers[0]), [], rivals if len(numbers) > 1 else None)

    def plan(made: Recipe, _: int) -> int:
        (step,) = made.steps
        assert isinstance(step, FillStep)
        if step.words in missing:
            raise NotPlannedError("not on this device")
        return step.words

    table = PlanTable("tried", build, lambda: None)
    table._table = "the core's"
    monkeypatch.setattr(table, "_plan", plan)
    monkeypatch.setattr(cache, "store_soon", lambda name, _, data: stored.append((name, data)))
    return table, outcomes, stored


def test_the_fastest_takes_the_place_of_the_trial(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    table, outcomes, stored = table_of((5, 3, 4), monkeypatch)
    tensor = torch.zeros(2)
    assert table.learn("key", tensor) == "result of 5"
    assert len(core.entries) == 4
    assert not stored, "the next process tries again unless the trial ends"
    assert table.call(False, "key", tensor) == "result of 3"
    assert core.entries == {"key": 3}
    ((seconds, best),) = outcomes
    assert (list(seconds), best) == ([5.0, 3.0, 4.0], 1)
    ((name, data),) = stored
    assert name == "tried"
    kept = msgspec.msgpack.decode(data, type=Recipe)
    assert kept.steps == recipe(3).steps
    assert kept.note.startswith("kernel 3, measured here: 3000000.0 us; kernel 5")
    assert table.call(False, "key", tensor) == "result of 3"


def test_a_rival_without_a_plan_is_left_out(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    table, outcomes, _ = table_of((5, 3, 4), monkeypatch, missing=(3,))
    tensor = torch.zeros(2)
    table.learn("key", tensor)
    assert table.call(False, "key", tensor) == "result of 4"
    ((seconds, best),) = outcomes
    assert (list(seconds), best) == ([5.0, float("inf"), 4.0], 2)
    alone, outcomes, stored = table_of((6, 3), monkeypatch, missing=(3,))
    alone.learn("other", tensor)
    assert alone.call(False, "other", tensor) == "result of 6"
    assert core.entries["other"] == 6
    assert not outcomes
    assert len(stored) == 1, "there is nothing to try"


def test_without_rivals_the_plan_is_stored_at_once(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _, stored = table_of((5,), monkeypatch)
    assert table.learn("key", torch.zeros(2)) == "result of 5"
    assert core.entries == {"key": 5}
    assert len(stored) == 1
