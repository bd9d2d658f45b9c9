"""Tables hold when what they call fails or changes them, in threads, and whatever they are given."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import PATIENCE_S
from tests.support.fake_driver import MISSING, FakeParameter, FakeTensor, OtherTensor, libraries_of
from tests.support.launch_bench import FIRST_RESULT, SHAPE, Named, TableBench
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> TableBench:
    return TableBench(libraries_of(shared_results), tmp_path)


# What goes wrong


class Fault(Exception):
    """Raised by the code that a table calls."""


def faulty(*_: Any) -> Any:
    raise Fault


class Restless(FakeTensor):
    """Raises where its `fault` is asked for; the tests make it a tensor in the place of FakeTensor."""

    fault = ""

    def __getattribute__(self, name: str) -> Any:
        if name == type(self).fault:
            raise Fault
        return super().__getattribute__(name)


@pytest.mark.parametrize("part", ["allocate", "counters", "precision", "has_grad", "listeners"])
def test_what_a_table_calls_may_raise(bench: TableBench, part: str) -> None:
    sound = bench.table()
    options: dict[str, Any] = {part: (faulty,) if part == "listeners" else faulty}
    table = bench.table(**options)
    tensor = FakeTensor(bits=32, requires_grad=True)
    for one in (sound, table):
        if part == "precision" and one is table:
            with pytest.raises(Fault):
                bench.insert(one, tensor, counters=1)
        else:
            bench.insert(one, tensor, counters=1)
    with pytest.raises(Fault):
        bench.core.table_call(table, part not in ("has_grad", "listeners"), None, tensor)
    assert bench.fake.calls() == []
    assert bench.core.table_call(sound, True, None, tensor) is bench.made[-1]


def test_an_allocator_that_fails_later_frees_what_it_made(bench: TableBench) -> None:
    seen: list[weakref.ref[FakeTensor]] = []

    def allocate(*_: Any) -> FakeTensor:
        if len(seen) == 2:
            raise Fault
        made = FakeTensor()
        seen.append(weakref.ref(made))
        return made

    table, tensor = bench.table(allocate=allocate), FakeTensor()
    bench.insert(table, tensor, outputs=3, results=2)
    with pytest.raises(Fault):
        bench.core.table_call(table, False, None, tensor)
    assert [one() for one in seen] == [None, None]


def test_a_launch_that_fails_frees_what_was_made(bench: TableBench) -> None:
    table, tensor = bench.table(allocate=lambda *_: FakeTensor()), FakeTensor()
    bench.insert(table, tensor, outputs=2)
    bench.fake.fail("cuLaunchKernelEx", 700)
    gc.collect()
    before = sum(type(one) is FakeTensor for one in gc.get_objects())
    for _ in range(10):
        with pytest.raises(RuntimeError, match=r"^cuLaunchKernelEx: an illegal memory access was encountered$"):
            bench.core.table_call(table, False, None, tensor)
    gc.collect()
    assert sum(type(one) is FakeTensor for one in gc.get_objects()) == before
    bench.fake.fail("")
    assert isinstance(bench.core.table_call(table, False, None, tensor), FakeTensor)


@pytest.mark.parametrize("fault", ["requires_grad", "is_neg"])
def test_tensors_may_raise(bench: TableBench, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    assert bench.core.use_tensors(bench.capsule, Restless, FakeParameter) is True
    table, tensor = bench.table(), Restless()
    monkeypatch.setattr(Restless, "fault", fault)
    with pytest.raises(Fault):
        bench.core.table_call(table, False, None, tensor)
    monkeypatch.setattr(Restless, "fault", "described")
    assert bench.core.table_call(table, False, None, tensor) is None


def test_objects_that_cannot_be_looked_up(bench: TableBench) -> None:
    class Unequal(Named):
        __hash__ = Named.__hash__

        def __eq__(self, other: object) -> bool:
            raise Fault

    table, tensor = bench.table(), FakeTensor()
    with pytest.raises(TypeError, match="unhashable"):
        bench.core.table_call(table, False, [], tensor)
    with pytest.raises(TypeError, match="unhashable"):
        bench.insert(table, tensor, extra={})
    bench.insert(table, tensor, extra=Unequal("one"))
    with pytest.raises(Fault):
        bench.core.table_call(table, False, Unequal("other"), tensor)
    with pytest.raises(Fault):
        bench.insert(table, tensor, extra=Unequal("other"))
    assert bench.core.table_state(table) == (1, 0, 0)


def test_counters_that_are_no_address(bench: TableBench) -> None:
    tensor = FakeTensor()
    for address, error in (("far", TypeError), (None, TypeError), (1 << 64, OverflowError)):
        table = bench.table(counters=lambda *_, address=address: address)
        bench.insert(table, tensor, counters=1)
        with pytest.raises(error):
            bench.core.table_call(table, False, None, tensor)
    assert not bench.fake.calls()


@pytest.mark.parametrize(("how", "says"), [(1, "there is no stream"), (2, "did not say why")])
def test_a_stream_that_is_not_found(bench: TableBench, how: int, says: str) -> None:
    table, tensor = bench.table(), FakeTensor()
    bench.insert(table, tensor)
    bench.exchange.fail_streams(how)
    with pytest.raises(RuntimeError, match=says):
        bench.core.table_call(table, False, None, tensor)
    assert not bench.made


# Code that changes a table while it is used


@pytest.mark.parametrize("name", ["0", "9", "another"])
@pytest.mark.parametrize("what", ["clear", "insert"])
def test_comparing_may_change_the_table(bench: TableBench, name: str, what: str) -> None:
    table, tensor = bench.table(12), FakeTensor()
    for number in range(10):
        bench.insert(table, tensor, extra=Named(f"{number}"))

    changes: list[str] = []

    def change() -> None:
        changes.append(what)
        if what == "clear":
            bench.core.table_clear(table)
        else:
            for size in range(1, 40):
                bench.core.table_insert(table, None, (FakeTensor(shape=(size,)),), None, (), 0, 0)

    made = bench.core.table_call(table, False, Named(name, change), tensor)
    assert changes
    assert made is False or (name != "another" and made is bench.made[0])
    bench.insert(table, tensor, extra=Named(name))
    assert bench.core.table_call(table, False, Named(name), tensor) is bench.made[-1]
    assert bench.core.table_state(table)[0] == (1 if what == "clear" else 12)


def test_the_table_may_be_cleared_while_results_are_allocated(bench: TableBench) -> None:
    def allocate(*_: Any) -> FakeTensor:
        bench.core.table_clear(table)
        gc.collect()
        return FakeTensor(FIRST_RESULT)

    table, tensor = bench.table(allocate=allocate), FakeTensor(0x1000)
    bench.core.table_insert(table, Named("one"), (tensor,), bench.plan(3), (([1], [1], "a"), ([2], [1], "b")), 2, 0)
    made = bench.core.table_call(table, False, Named("one"), tensor)
    assert [type(one) for one in made] == [FakeTensor, FakeTensor]
    assert bench.launches() == [(0, [0x1000, FIRST_RESULT, FIRST_RESULT])]
    assert bench.core.table_state(table) == (0, 1, 0)


@pytest.mark.parametrize("what", ["clear", "evict", "delete"])
def test_what_goes_may_use_the_table(bench: TableBench, what: str) -> None:
    tensor, ran = FakeTensor(), []

    class Last(Named):
        __hash__ = Named.__hash__

        def __del__(self) -> None:
            ran.append(self.name)
            if what != "delete":
                bench.core.table_clear(table)
                bench.core.table_insert(table, self.name, (tensor,), None, (), 0, 0)
                bench.core.table_call(table, False, None, tensor)

    table = bench.table(3)
    for number in range(3):
        bench.insert(table, tensor, extra=Last(f"{number}"))
    if what == "clear":
        bench.core.table_clear(table)
    elif what == "evict":
        bench.insert(table, tensor)
    else:
        del table
    assert sorted(ran) == ["0", "1", "2"]


def test_references_are_returned(bench: TableBench) -> None:
    bench.fake.note(False)
    result = FakeTensor(FIRST_RESULT)
    modes: dict[str, Any] = {"allocate": result, "grad": False}

    def allocate(*_: Any) -> Any:
        if modes["allocate"] is None:
            raise Fault
        return modes["allocate"]

    precision = ("ieee", 1 << 70)
    table = bench.table(
        allocate=allocate, listeners=(lambda: False,), precision=lambda: precision, has_grad=lambda: modes["grad"]
    )
    tensor, extra, shape = FakeTensor(bits=32, requires_grad=True), ("extra", 1 << 71), (SHAPE, SHAPE)
    plan = bench.plan(4)
    assert bench.core.table_insert(table, extra, (tensor, None), plan, shape, 2, 0) is True
    held: list[Any] = [table, tensor, extra, result, precision, *shape[:1], shape, plan, bench.handle, bench.capsule]

    def call(is_inner: bool, *tensors: Any) -> Any:
        try:
            return bench.core.table_call(table, is_inner, (extra[0], 1 << 71), *tensors)
        except Fault:
            return "raised"

    def all_ways() -> list[Any]:
        found = []
        for grad, allocated in ((False, result), (True, result), (False, None), (False, 5)):
            modes.update(grad=grad, allocate=allocated)
            found.append(call(False, tensor, None))
        modes.update(grad=False, allocate=result)
        found += [call(False, tensor), call(False, OtherTensor()), call(True, tensor, None)]
        found.append(bench.core.table_insert(table, extra, (tensor, None), plan, shape, 2, 0))
        found.append(bench.core.launch(plan, 0, tensor, None, 3, tensor))
        return found

    assert all_ways() == [(result, result), True, "raised", None, False, None, (result, result), False, True]
    before = [sys.getrefcount(one) for one in (*held, None, True, False)]
    for _ in range(2000):
        all_ways()
    after = [sys.getrefcount(one) for one in (*held, None, True, False)]
    assert after[: len(held)] == before[: len(held)]
    assert all(abs(one - other) < 200 for one, other in zip(after, before, strict=True))


def test_threads_call_learn_and_clear_at_once(bench: TableBench) -> None:
    bench.fake.note(False)
    modes = {"stop": False}
    table = bench.table(6, allocate=lambda *_: FakeTensor())
    tensors = [FakeTensor(0x1000 * size, shape=(size, 4)) for size in range(1, 10)]
    plans = [bench.plan(2, number) for number in range(len(tensors))]
    failures: list[BaseException] = []
    answers: list[int] = []

    def work(number: int) -> None:
        answered = 0
        try:
            for turn in range(10_000):
                at = (turn * (number + 1)) % len(tensors)
                extra = Named(f"{at % 3}")
                made = bench.core.table_call(table, turn % 2 == 0, extra, tensors[at])
                if made is False:
                    bench.core.table_insert(table, extra, (tensors[at],), plans[at], (SHAPE,), 1, 0)
                else:
                    assert type(made) is FakeTensor
                    answered += 1
        except BaseException as error:
            failures.append(error)
        answers.append(answered)

    def clear() -> None:
        while not modes["stop"]:
            bench.core.table_clear(table)
            bench.core.table_state(table)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    clearing = threading.Thread(target=clear)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in (*threads, clearing):
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        modes["stop"] = True
        clearing.join()
        sys.setswitchinterval(switching)
    assert not failures
    entries, hits, misses = bench.core.table_state(table)
    assert entries <= 6
    assert hits + misses == 40_000
    assert hits == sum(answers) == bench.fake.num_launches > 0


def test_threads_may_call_while_the_interpreter_ends(shared_results: SharedResults, tmp_path: Path) -> None:
    libraries = libraries_of(shared_results)
    program = """
import pathlib, sys, threading, time
from tests.support.launch_bench import FakeTensor, TableBench
bench = TableBench({"cuda": sys.argv[1], "exchange": sys.argv[2]}, pathlib.Path(sys.argv[3]))
bench.fake.note(False)
table, tensor = bench.table(allocate=lambda *_: FakeTensor()), FakeTensor()
bench.insert(table, tensor, tensor)
def work():
    while True:
        bench.core.table_call(table, False, None, tensor, tensor)
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [sys.executable, "-c", program, libraries["cuda"], libraries["exchange"], str(folder)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == 0, ended.stderr


def test_no_argument_ends_the_interpreter(shared_results: SharedResults, tmp_path: Path) -> None:
    libraries = libraries_of(shared_results)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.launch_fuzz"]
    command += [libraries["cuda"], libraries["exchange"], str(tmp_path), "10000", "20260"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    assert "calls" in ended.stdout
