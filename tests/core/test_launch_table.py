"""Tables of plans answer calls: they allocate the results and launch, or say why they do not."""

from __future__ import annotations

import struct
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_driver import (
    BFLOAT,
    CPU,
    CUDA,
    FUNCTION,
    INTEGER,
    MISSING,
    ROCM,
    FakeParameter,
    FakeTensor,
    OtherTensor,
    libraries_of,
    new_core,
)
from tests.support.launch_bench import COUNTERS, FIRST_RESULT, SHAPE, TableBench
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> TableBench:
    return TableBench(libraries_of(shared_results), tmp_path)


def test_a_call_is_new_until_it_is_learnt(bench: TableBench) -> None:
    table, one, other = bench.table(), FakeTensor(0x1000), FakeParameter(0x2080)
    assert bench.core.table_call(table, False, None, one, other) is False
    assert bench.core.table_state(table) == (0, 0, 1)
    assert bench.insert(table, one, other) is True
    assert bench.insert(table, one, other) is False
    assert bench.core.table_call(table, False, None, one, other) is bench.made[0]
    assert bench.core.table_call(table, False, None, FakeTensor(0x7000), FakeTensor(0x8080)) is bench.made[1]
    assert bench.core.table_state(table) == (1, 2, 1)
    assert bench.launches() == [
        (0, [0x1000, 0x2080, FIRST_RESULT]),
        (0, [0x7000, 0x8080, FIRST_RESULT + 0x1000]),
    ]


def test_results_are_allocated_and_launched_into(bench: TableBench) -> None:
    table, one, other = bench.table(), FakeTensor(0x1000), FakeTensor(0x2000)
    assert bench.insert(table, one, None, other, outputs=2, results=2) is True
    made = bench.core.table_call(table, False, None, one, None, other)
    assert type(made) is tuple
    assert list(made) == bench.made
    assert bench.asked == [SHAPE, SHAPE]
    assert bench.launches() == [(0, [0x1000, 0, 0x2000, FIRST_RESULT, FIRST_RESULT + 0x1000])]
    assert bench.core.table_state(table) == (1, 1, 0)


def test_scratch_memory_is_not_returned(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor(0x1000)
    assert bench.insert(table, tensor, outputs=3, results=1) is True
    assert bench.core.table_call(table, True, None, tensor) is bench.made[0]
    assert bench.insert(table, tensor, tensor, outputs=1, results=0) is True
    assert bench.core.table_call(table, True, None, tensor, tensor) == ()
    assert [len(words) for _, words in bench.launches()] == [4, 3]


def test_the_allocator_is_given_what_the_entry_says(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor()
    shapes = (((1,), (1,), "first"), ((2, 2), (2, 1), "second"))
    assert bench.core.table_insert(table, None, (tensor,), bench.plan(3), shapes, 2, 0) is True
    bench.core.table_call(table, False, None, tensor)
    assert tuple(bench.asked) == shapes


def test_the_address_counts_its_offset(bench: TableBench) -> None:
    table, tensor, moved = bench.table(), FakeTensor(0x1000), FakeTensor(0x0F80)
    moved.described.offset = 0x80
    assert bench.insert(table, tensor) is True
    assert bench.core.table_call(table, False, None, moved) is bench.made[0]
    moved.described.offset = 0x40
    assert bench.core.table_call(table, False, None, moved) is False
    assert bench.launches() == [(0, [0x1000, FIRST_RESULT])]


def test_counters_are_the_last_slot(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor(0x1000, device=(CUDA, 3))
    assert bench.insert(table, tensor, counters=(1 << 40) + 5) is True
    assert bench.core.table_call(table, False, None, tensor) is bench.made[0]
    assert bench.asked == [SHAPE, (3, 2003, (1 << 40) + 5)]
    (launch,) = bench.fake.calls()
    assert launch["stream"] == 2003
    assert int.from_bytes(bytes.fromhex(launch["arguments"][2]), "little") == COUNTERS


def test_a_stream_without_counters_takes_the_long_way(bench: TableBench) -> None:
    table, tensor = bench.table(counters=lambda *_: 0), FakeTensor()
    assert bench.insert(table, tensor, counters=4) is True
    assert bench.core.table_call(table, False, None, tensor) is None
    assert bench.fake.calls() == []


def test_a_call_without_a_plan(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor()
    assert bench.core.table_insert(table, None, (tensor,), None, (), 0, 0) is True
    assert bench.core.table_call(table, False, None, tensor) is None
    assert bench.core.table_state(table) == (1, 1, 0)
    assert not bench.made


def test_a_call_that_a_function_makes(bench: TableBench) -> None:
    table, tensor, other, asked = bench.table(), FakeTensor(), FakeTensor(0x2000), []

    def function(*given: Any) -> str:
        asked.append(given)
        return "a result"

    assert bench.core.table_insert(table, None, (tensor, None, other), function, (), 0, 0) is True
    assert bench.core.table_call(table, False, None, tensor, None, other) == "a result"
    assert asked == [(tensor, None, other)]
    assert bench.fake.calls() == []
    assert not bench.made
    references = sys.getrefcount(function)
    bench.core.table_clear(table)
    assert sys.getrefcount(function) == references - 1


def test_what_a_function_raises_is_the_callers_to_see(bench: TableBench) -> None:
    def function(*given: Any) -> None:
        # A function may change the table that called it.
        bench.core.table_clear(table)
        raise ValueError("no such product")

    table, tensor = bench.table(), FakeTensor()
    assert bench.core.table_insert(table, None, (tensor,), function, (), 0, 0) is True
    with pytest.raises(ValueError, match="no such product"):
        bench.core.table_call(table, True, None, tensor)
    assert bench.core.table_call(table, True, None, tensor) is False


def test_tensors_of_rocm(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor(device=(ROCM, 1))
    assert bench.insert(table, tensor) is True
    assert bench.core.table_call(table, False, None, tensor) is bench.made[0]
    assert bench.fake.calls()[0]["stream"] == 10_001


@pytest.mark.parametrize("heard", [True, 1, "something", [0]])
def test_a_listener_that_hears_takes_the_long_way(bench: TableBench, heard: Any) -> None:
    answers: list[Any] = [None, False, 0]
    table, tensor = bench.table(listeners=tuple(partial(answers.__getitem__, i) for i in range(3))), FakeTensor()
    assert bench.insert(table, tensor) is True
    assert bench.core.table_call(table, False, None, tensor) is bench.made[0]
    for place in range(3):
        answers[:] = [None, False, 0]
        answers[place] = heard
        assert bench.core.table_call(table, False, None, tensor) is None
    assert bench.core.table_call(table, True, None, tensor) is bench.made[1]


def test_gradients_are_recorded_first(bench: TableBench) -> None:
    modes = {"grad": True}
    table = bench.table(has_grad=lambda: modes["grad"])
    plain, wanting = FakeTensor(0x1000), FakeTensor(0x2000, requires_grad=True)
    assert bench.insert(table, plain, plain) is True
    assert bench.core.table_call(table, False, None, plain, wanting) is True
    assert bench.core.table_call(table, False, None, None, wanting) is True
    assert bench.core.table_call(table, True, None, plain, wanting) is bench.made[0]
    modes["grad"] = False
    assert bench.core.table_call(table, False, None, plain, wanting) is bench.made[1]


def test_functions_of_another_table_run_calls_that_autograd_records(bench: TableBench) -> None:
    modes = {"grad": True}
    table, other = bench.table(has_grad=lambda: modes["grad"]), bench.table()
    tensor, plain = FakeTensor(0x1000, requires_grad=True), FakeTensor(0x2000)
    bench.insert(table, tensor)
    bench.core.table_record(table, other)
    assert bench.core.table_call(table, False, None, tensor) is True, "the other table does not know it"
    bench.core.table_insert(other, None, (tensor,), None, (), 0, 0)
    assert bench.core.table_call(table, False, None, tensor) is True, "it has no function of it"
    bench.core.table_drop(other, None, (tensor,))
    bench.core.table_insert(other, None, (tensor,), lambda given: ("recorded", given), (), 0, 0)
    assert bench.core.table_call(table, False, None, tensor) == ("recorded", tensor)
    assert bench.core.table_call(table, False, "others", tensor) is True
    for call in ((True, None, tensor), (False, None, plain)):
        assert bench.core.table_call(table, *call) is bench.made[-1], "gradients are not asked for, or not wanted"
    modes["grad"] = False
    assert bench.core.table_call(table, False, None, tensor) is bench.made[-1]
    listened = bench.table(listeners=(lambda: True,))
    bench.core.table_record(listened, other)
    assert bench.core.table_call(listened, False, None, tensor) is None
    bench.core.table_insert(other, "open", (tensor,), lambda given: "whatever listens", (), 0, 0, True)
    assert bench.core.table_call(listened, False, "open", tensor) == "whatever listens"


def test_gradients_are_not_asked_for_where_no_tensor_wants_them(bench: TableBench) -> None:
    def has_grad() -> bool:
        raise AssertionError

    table, tensor = bench.table(has_grad=has_grad), FakeTensor()
    assert bench.core.table_call(table, False, None, tensor) is False


def test_a_listener_comes_before_gradients(bench: TableBench) -> None:
    table = bench.table(listeners=(lambda: True,))
    assert bench.core.table_call(table, False, None, FakeTensor(requires_grad=True)) is None


@pytest.mark.parametrize("is_inner", [False, True])
@pytest.mark.parametrize(
    "tensors",
    [
        (OtherTensor(),),
        (FakeTensor(), OtherTensor()),
        (5,),
        ("tensor",),
        (FakeTensor(device=(CPU, 0)),),
        (FakeTensor(), FakeTensor(device=(CPU, 0))),
        (FakeTensor(device=(CUDA, 0)), FakeTensor(device=(CUDA, 1))),
        (FakeTensor(is_negated=True),),
        (FakeTensor(address=0),),
        (),
        (None, None),
        (FakeTensor(),) * 17,
        (FakeTensor(shape=[1] * 127),),
        (FakeTensor(shape=[1] * 12),) * 10,
    ],
)
def test_what_plans_are_not_for(bench: TableBench, is_inner: bool, tensors: tuple[Any, ...]) -> None:
    table = bench.table()
    assert bench.core.table_call(table, is_inner, None, *tensors) is None
    if len(tensors) <= 16:
        assert bench.core.table_insert(table, None, tensors, None, (), 0, 0) is False
    assert bench.core.table_state(table) == (0, 0, 0)


@pytest.mark.parametrize(
    "tensors",
    [
        (FakeTensor(),) * 16,
        (FakeTensor(shape=[1] * 126),),
        (FakeTensor(shape=()),),
        (FakeTensor(shape=(0, 5), address=0),),
        (FakeTensor(code=INTEGER, is_negated=True),),
        (FakeTensor(code=BFLOAT, is_negated=True),),
        (None, FakeTensor(), None),
    ],
)
def test_what_plans_are_for(bench: TableBench, tensors: tuple[Any, ...]) -> None:
    table = bench.table()
    assert bench.insert(table, *tensors) is True
    assert bench.core.table_call(table, False, None, *tensors) is bench.made[0]


def test_descriptions_that_no_tensor_has(bench: TableBench) -> None:
    table = bench.table()
    broken = FakeTensor()
    broken.described.num_axes = -1
    without_strides = FakeTensor()
    without_strides.described.strides = 0
    undescribed = FakeTensor()
    undescribed.described = 5
    missing = FakeTensor()
    del missing.described
    for tensor in (broken, without_strides, undescribed, missing):
        assert bench.core.table_call(table, False, None, tensor) is None


def test_without_an_exchange_nothing_is_planned(bench: TableBench) -> None:
    core = new_core()
    table = core.table(4, bench.allocate, bench.count, (), None, bool)
    assert core.table_call(table, True, None, FakeTensor()) is None
    assert core.table_call(table, False, None, FakeTensor()) is None
    assert core.table_insert(table, None, (FakeTensor(),), None, (), 0, 0) is False


def test_another_context_takes_the_long_way(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor()
    assert bench.insert(table, tensor) is True
    bench.fake.context(0x2000)
    assert bench.core.table_call(table, False, None, tensor) is None
    assert not bench.made
    assert not bench.fake.calls()


def test_a_plans_demands_hold_in_tables_too(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor(0x1040)
    plan = bench.core.plan(bench.handle, 2, [], [("multiple", 0, 128)])
    assert bench.core.table_insert(table, None, (tensor,), plan, (SHAPE,), 1, 0) is True
    assert bench.core.table_call(table, False, None, tensor) is None


def test_an_allocator_that_gives_no_tensor(bench: TableBench) -> None:
    given: list[Any] = [OtherTensor(), 5, None]
    table, tensor = bench.table(allocate=lambda *_: given[-1]), FakeTensor()
    assert bench.insert(table, tensor) is True
    while given:
        assert bench.core.table_call(table, False, None, tensor) is None
        given.pop()
    assert not bench.fake.calls()


# Hooks of Triton's


def hooked(monkeypatch: pytest.MonkeyPatch, **runtime: Any) -> SimpleNamespace:
    """A stand-in for Triton's settings."""
    module = ModuleType("triton.knobs")
    module.runtime = SimpleNamespace(**runtime)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.knobs", module)
    return module.runtime  # type: ignore[no-any-return]


def test_hooks_of_triton_see_launches(bench: TableBench, monkeypatch: pytest.MonkeyPatch) -> None:
    enter, leave = SimpleNamespace(calls=[]), SimpleNamespace(calls=[])
    runtime = hooked(monkeypatch, launch_enter_hook=enter, launch_exit_hook=leave)
    table, tensor = bench.table(), FakeTensor()
    bench.insert(table, tensor)

    def is_planned() -> bool:
        made = bench.core.table_call(table, False, None, tensor)
        assert made is None or made is bench.made[-1]
        return made is not None

    assert is_planned()
    for hook in (enter, leave):
        hook.calls.append(print)
        assert not is_planned()
        assert bench.core.table_call(table, True, None, tensor) is bench.made[-1]
        hook.calls.clear()
    assert is_planned()
    for name in ("launch_enter_hook", "launch_exit_hook"):
        setattr(runtime, name, print)  # a hook of its own kind may do anything
        assert not is_planned()
        setattr(runtime, name, None)
        assert is_planned()
        delattr(runtime, name)
        assert is_planned()


def test_triton_may_come_later_or_not_at_all(bench: TableBench, monkeypatch: pytest.MonkeyPatch) -> None:
    table, tensor = bench.table(), FakeTensor()
    bench.insert(table, tensor)
    monkeypatch.setitem(sys.modules, "triton.knobs", None)
    assert bench.core.table_call(table, False, None, tensor) is bench.made[-1]
    monkeypatch.delitem(sys.modules, "triton.knobs")
    assert bench.core.table_call(table, False, None, tensor) is bench.made[-1]
    runtime = hooked(monkeypatch, launch_enter_hook=print)
    assert bench.core.table_call(table, False, None, tensor) is None
    del runtime.launch_enter_hook
    assert bench.core.table_call(table, False, None, tensor) is bench.made[-1]
    vars(sys.modules["triton.knobs"]).pop("runtime")
    assert bench.core.table_call(table, False, None, tensor) is bench.made[-1]


def test_factors_are_arguments_that_are_in_no_signature(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor(0x1000)
    laid = [("integer", 8, 0, 0), ("fp64", 1), ("integer", 8, 2, 0), ("fp32", 1)]
    bench.fake.sizes([8, 8, 8, 4], FUNCTION)
    step = ("kernel", FUNCTION, (1, 1, 1), 32, 0, 1, 0, 0, laid)
    plan = bench.core.plan(bench.handle, 3, [step], [])
    assert bench.core.table_insert(table, None, (tensor, 0.25), plan, (SHAPE,), 1, 0) is True
    assert bench.core.table_call(table, False, None, tensor, 0.25) is bench.made[0]
    assert bench.core.table_call(table, False, None, tensor, -3.5) is bench.made[1]
    assert bench.core.table_state(table)[:2] == (1, 2)
    given = [launch["arguments"] for launch in bench.fake.calls()]
    assert [bytes.fromhex(words[1]) for words in given] == [struct.pack("<d", 0.25), struct.pack("<d", -3.5)]
    assert [bytes.fromhex(words[3]) for words in given] == [struct.pack("<f", 0.25), struct.pack("<f", -3.5)]
    # A number that is no float is no factor, and a plan reads factors where the call has them alone.
    assert bench.core.table_call(table, False, None, tensor, 1) is None
    assert bench.core.table_call(table, False, None, tensor, tensor) is False
    with pytest.raises(TypeError):
        bench.core.table_insert(table, None, (tensor, tensor), plan, (SHAPE,), 1, 0)
