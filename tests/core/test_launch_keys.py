"""What tables recognise a call by, and which calls they keep."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import (
    BFLOAT,
    CUDA,
    FLOAT,
    FUNCTION,
    INTEGER,
    MISSING,
    Exchange,
    FakeParameter,
    FakeTensor,
    libraries_of,
    new_core,
)
from tests.support.launch_bench import SHAPE, Named, TableBench
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> TableBench:
    return TableBench(libraries_of(shared_results), tmp_path)


# What a call is recognised by


@pytest.mark.parametrize(
    "other",
    [
        {"address": 0x10001},
        {"address": 0x10040},
        {"shape": (8, 8)},
        {"shape": (16, 8), "strides": (16, 1)},
        {"shape": (8, 16, 1)},
        {"shape": (1, 8, 16)},
        {"shape": (8, 16), "strides": (1, 8)},
        {"shape": (8, 16), "strides": (32, 1)},
        {"shape": (8 + (1 << 32), 16)},
        {"code": BFLOAT},
        {"code": INTEGER},
        {"bits": 32},
        {"bits": 8},
        {"device": (CUDA, 1)},
    ],
    ids=str,
)
def test_every_fact_of_a_tensor_counts(bench: TableBench, other: dict[str, Any]) -> None:
    table, seen, different = bench.table(), FakeTensor(), FakeTensor(**other)
    assert bench.insert(table, seen, number=1) is True
    assert bench.core.table_call(table, False, None, different) is False
    assert bench.insert(table, different, number=2) is True
    for tensor in (seen, different, seen):
        assert bench.core.table_call(table, False, None, tensor) is bench.made[-1]
    assert [number for number, _ in bench.launches()] == [1, 2, 1]


def test_addresses_128_bytes_apart_are_alike(bench: TableBench) -> None:
    table = bench.table()
    assert bench.insert(table, FakeTensor(0x10010)) is True
    for address in (0x10010, 0x10090, 0x7F00_0000_0010):
        assert bench.core.table_call(table, False, None, FakeTensor(address)) is bench.made[-1]
    assert [words[0] for _, words in bench.launches()] == [0x10010, 0x10090, 0x7F00_0000_0010]


def test_the_lanes_of_a_dtype_count(bench: TableBench) -> None:
    table, packed = bench.table(), FakeTensor()
    packed.described.lanes = 2
    assert bench.insert(table, FakeTensor()) is True
    assert bench.core.table_call(table, False, None, packed) is False


def test_where_tensors_are_missing_counts(bench: TableBench) -> None:
    tensor = FakeTensor()
    calls = [(tensor,), (tensor, None), (None, tensor), (None, tensor, None), (None, None, tensor), (tensor, tensor)]
    table = bench.table()
    for number, call in enumerate(calls):
        assert bench.core.table_call(table, False, None, *call) is False
        assert bench.insert(table, *call, number=number) is True
    for call in calls:
        assert bench.core.table_call(table, False, None, *call) is bench.made[-1]
    assert [number for number, _ in bench.launches()] == list(range(len(calls)))


def test_the_further_object_counts_by_equality(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor()
    extras: list[Any] = [None, (True, "relu"), (False, "relu"), (True, "gelu"), "relu", 2.5, frozenset({1})]
    for number, extra in enumerate(extras):
        assert bench.core.table_call(table, False, extra, tensor) is False
        assert bench.insert(table, tensor, extra=extra, number=number) is True
    again: list[Any] = [None, (True, "re" + "lu"[:]), (False, "relu"), (True, "gelu"), "relu", 5 / 2, frozenset([1])]
    for extra in again:
        assert bench.core.table_call(table, False, extra, tensor) is bench.made[-1]
    assert [number for number, _ in bench.launches()] == list(range(len(extras)))


def test_objects_of_one_hash_are_told_apart(bench: TableBench) -> None:
    table, tensor = bench.table(64), FakeTensor()
    for number in range(30):
        assert bench.insert(table, tensor, extra=Named(f"{number}"), number=number) is True
    for number in range(29, -1, -1):
        assert bench.core.table_call(table, False, Named(f"{number}"), tensor) is bench.made[-1]
    assert [number for number, _ in bench.launches()] == list(range(29, -1, -1))
    assert bench.core.table_call(table, False, Named("another"), tensor) is False


def test_products_of_wide_floats_depend_on_their_precision(bench: TableBench) -> None:
    modes = {"precision": ("ieee",)}
    table = bench.table(precision=lambda: modes["precision"])
    narrow, wide = FakeTensor(bits=16), FakeTensor(bits=32)
    for mode in ("ieee", "tf32"):
        modes["precision"] = (mode,)
        assert bench.core.table_call(table, False, 1, narrow, wide) is False
        assert bench.insert(table, narrow, wide, extra=1, number=len(mode)) is True
    modes["precision"] = ("ieee",)
    assert bench.core.table_call(table, False, 1, narrow, wide) is bench.made[-1]
    assert bench.insert(table, narrow, extra=1) is True
    modes["precision"] = ("another",)
    assert bench.core.table_call(table, False, 1, narrow) is bench.made[-1]
    assert bench.core.table_call(table, False, 1, narrow, wide) is False


@pytest.mark.parametrize(("code", "bits"), [(INTEGER, 32), (FLOAT, 64), (FLOAT, 16), (BFLOAT, 16)])
def test_other_types_do_not_ask_for_the_precision(bench: TableBench, code: int, bits: int) -> None:
    def precision() -> Any:
        raise AssertionError

    table = bench.table(precision=precision)
    assert bench.core.table_call(table, False, None, FakeTensor(code=code, bits=bits)) is False


# What a table keeps


def test_the_least_recently_used_go_first(bench: TableBench) -> None:
    table = bench.table(3)
    tensors = [FakeTensor(shape=(size, 4)) for size in range(1, 6)]
    for tensor in tensors[:3]:
        bench.insert(table, tensor)
    assert bench.core.table_call(table, False, None, tensors[0]) is bench.made[0]
    bench.insert(table, tensors[3])  # sizes 3, 1, 4 stay
    bench.insert(table, tensors[2])  # used by being learnt again
    bench.insert(table, tensors[4])  # sizes 4, 3, 5 stay
    found = [bench.core.table_call(table, False, None, tensor) is not False for tensor in tensors]
    assert found == [False, False, True, True, True]
    assert bench.core.table_state(table) == (3, 4, 2)


@pytest.mark.parametrize("capacity", [1, 0, -5, -(1 << 63)])
def test_a_table_keeps_one_entry_at_least(bench: TableBench, capacity: int) -> None:
    table = bench.table(capacity)
    for size in range(1, 4):
        assert bench.insert(table, FakeTensor(shape=(size,))) is True
    assert bench.core.table_state(table) == (1, 0, 0)
    assert bench.core.table_call(table, False, None, FakeTensor(shape=(3,))) is bench.made[0]


def test_many_entries(bench: TableBench) -> None:
    table = bench.table(100)
    for size in range(1, 1001):
        assert bench.insert(table, FakeTensor(shape=(size, size)), number=size % 7) is True
    found = [
        size
        for size in range(1, 1001)
        if bench.core.table_call(table, False, None, FakeTensor(shape=(size, size))) is not False
    ]
    assert found == list(range(901, 1001))
    assert bench.core.table_state(table) == (100, 100, 900)


def test_a_cleared_table_learns_anew(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor()
    held = Named("held")
    seen = weakref.ref(held)
    bench.insert(table, tensor, extra=held)
    del held
    assert seen() is not None
    assert bench.core.table_clear(table) is None
    assert seen() is None
    assert bench.core.table_state(table) == (0, 0, 0)
    assert bench.core.table_call(table, False, None, tensor) is False
    assert bench.insert(table, tensor) is True
    assert bench.core.table_call(table, False, None, tensor) is bench.made[0]


def test_a_table_lets_go_of_what_it_held(bench: TableBench) -> None:
    class Part:
        def __call__(self, *_: Any) -> Any:
            return None

    parts = [Part() for _ in range(5)]
    extra = Named("held")
    seen = [weakref.ref(part) for part in (*parts, extra)]
    allocate, counters, listener, precision, has_grad = parts
    table = bench.core.table(4, allocate, counters, (listener,), precision, has_grad)
    bench.insert(table, FakeTensor(), extra=extra)
    del parts, extra, allocate, counters, listener, precision, has_grad
    assert all(one() is not None for one in seen)
    del table
    assert all(one() is None for one in seen)


@pytest.mark.parametrize(
    ("tensors", "slots", "outputs", "results", "counters"),
    [
        (1, 3, (SHAPE,), 1, 0),
        (1, 1, (SHAPE,), 1, 0),
        (1, 2, (SHAPE,), 1, 4),
        (1, 2, (SHAPE,), 2, 0),
        (1, 2, (SHAPE,), -1, 0),
        (1, 2, ("no tuple",), 1, 0),
        (1, 3, (SHAPE,), 1, -1),
        (1, 18, (SHAPE,) * 17, 1, 0),
        (17, 18, (SHAPE,), 1, 0),
        (1, 2, [SHAPE], 1, 0),
    ],
)
def test_entries_that_cannot_be(
    bench: TableBench, tensors: int, slots: int, outputs: Any, results: int, counters: int
) -> None:
    table = bench.table()
    with pytest.raises(TypeError):
        bench.core.table_insert(table, None, (FakeTensor(),) * tensors, bench.plan(slots), outputs, results, counters)
    assert bench.core.table_state(table) == (0, 0, 0)


@pytest.mark.parametrize("argument", [("fp32", 0), ("fp64", 0), ("integer", 4, 0, 0)])
def test_tables_fill_slots_with_addresses_only(bench: TableBench, argument: Any) -> None:
    step = ("kernel", FUNCTION, (1, 1, 1), 32, 0, 1, 0, 0, [argument])
    plan = bench.core.plan(bench.handle, 2, [step], [])
    with pytest.raises(TypeError):
        bench.core.table_insert(bench.table(), None, (FakeTensor(),), plan, (SHAPE,), 1, 0)


def test_the_exchange_has_to_be_the_classes_own(bench: TableBench) -> None:
    core = new_core()
    assert core.use_tensors(bench.exchange.capsule(2), FakeTensor, FakeParameter) is False
    bench.exchange.capsule(1)
    other = Exchange(bench.libraries["exchange"], bench.folder).capsule()
    for arguments in [
        (other, FakeTensor, FakeParameter),
        (bench.capsule, int, FakeParameter),
        (bench.capsule, FakeTensor, str),
        (bench.capsule, FakeTensor(), FakeParameter),
        (bench.capsule, None, None),
    ]:
        with pytest.raises(TypeError):
            core.use_tensors(*arguments)
    with pytest.raises(ValueError, match="PyCapsule"):
        core.use_tensors(bench.handle, FakeTensor, FakeParameter)
    assert core.use_tensors(bench.capsule, FakeTensor, FakeParameter) is True
