"""Plans enqueue their steps as they say, refuse values of another kind, and tell what the driver says."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import FUNCTION, MISSING, libraries_of
from tests.support.launch_bench import STREAM, LaunchBench, kernel, tensor_map
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> LaunchBench:
    return LaunchBench(libraries_of(shared_results), tmp_path)


def test_a_launch_is_what_the_step_says(bench: LaunchBench) -> None:
    plan = bench.core.plan(bench.handle, 0, [kernel(grid=[7, 5, 3], threads=256, shared_bytes=200_000)], [])
    assert bench.core.launch(plan, STREAM) is True
    assert bench.fake.calls() == [
        {
            "call": "cuLaunchKernelEx",
            "function": FUNCTION,
            "grid": [7, 5, 3],
            "block": [256, 1, 1],
            "shared_bytes": 200_000,
            "stream": STREAM,
            "extra": 0,
            "attributes": [],
            "arguments": [],
            "places": [],
        }
    ]


@pytest.mark.parametrize("cooperative", [0, 1])
@pytest.mark.parametrize("dependent", [0, 1])
@pytest.mark.parametrize("cluster", [1, 2, 8, 16])
def test_attributes_of_a_launch(bench: LaunchBench, cooperative: int, dependent: int, cluster: int) -> None:
    step = kernel(cooperative=cooperative, dependent=dependent, cluster=cluster)
    assert bench.core.launch(bench.core.plan(bench.handle, 0, [step], []), STREAM) is True
    (launch,) = bench.fake.calls()
    expected: dict[int, list[int]] = {}
    if cooperative:
        expected[2] = [1]
    if dependent:
        expected[6] = [1]
    if cluster > 1:
        expected |= {4: [cluster, 1, 1], 5: [1]}
    found = dict(launch["attributes"])
    assert len(found) == len(launch["attributes"])
    assert found == {kind: values + [0] * (16 - len(values)) for kind, values in expected.items()}


def test_steps_run_in_their_order(bench: LaunchBench) -> None:
    for number in range(20):
        bench.fake.sizes([8], FUNCTION + number)
    steps: list[Any] = [("fill", 1, 4 * number, number + 1, 1000 * number) for number in range(3)]
    steps += [kernel([("integer", 8, number % 2, number)], FUNCTION + number) for number in range(20)]
    steps += [("fill", 0, -(1 << 40), 1 << 40, 0xFFFFFFFF)]
    assert bench.core.launch(bench.core.plan(bench.handle, 2, steps, []), STREAM, 1 << 41, 1 << 42) is True
    calls = bench.fake.calls()
    filled = {"call": "cuMemsetD32Async", "stream": STREAM}
    assert calls[:3] == [filled | {"address": (1 << 42) + 4 * i, "words": i + 1, "value": 1000 * i} for i in range(3)]
    assert calls[23:] == [filled | {"address": 1 << 40, "words": 1 << 40, "value": 0xFFFFFFFF}]
    assert [call["function"] for call in calls[3:23]] == [FUNCTION + number for number in range(20)]
    words = [int.from_bytes(bytes.fromhex(call["arguments"][0]), "little") for call in calls[3:23]]
    assert words == [(1 << 41 + number % 2) + number for number in range(20)]


@pytest.mark.parametrize(
    ("demand", "fits", "does_not"),
    [
        (("multiple", 0, 16), [0, 16, -32, 1 << 40, None], [1, 8, -8, (1 << 40) + 8]),
        (("equal", 0, 7), [7], [8, -7, 7 + (1 << 32), None]),
        (("equal", 0, -1), [-1, (1 << 64) - 1], [1]),
        (("int32", 0, 0), [0, -(1 << 31), (1 << 31) - 1], [1 << 31, -(1 << 31) - 1, 1 << 62]),
    ],
)
def test_demands_refuse_other_values(bench: LaunchBench, demand: Any, fits: list[Any], does_not: list[Any]) -> None:
    plan = bench.plan([("integer", 8, 0, 0)], 2, [("multiple", 1, 2), demand])
    for value in fits:
        assert bench.core.launch(plan, STREAM, value, 2) is True
    assert len(bench.fake.calls()) == len(fits)
    for value in does_not:
        assert bench.core.launch(plan, STREAM, value, 2) is False
    assert bench.core.launch(plan, STREAM, fits[0], 3) is False
    assert bench.fake.calls() == []


def test_a_demand_comes_before_the_size_of_an_argument(bench: LaunchBench) -> None:
    plan = bench.plan([("integer", 4, 0, 0)], 1, [("int32", 0, 0)])
    assert bench.core.launch(plan, STREAM, 1 << 40) is False


def test_another_context_takes_the_long_way(bench: LaunchBench) -> None:
    plan = bench.plan([("integer", 8, 0, 0)], 1)
    bench.fake.context(0x2000)
    assert bench.core.current(bench.handle) == 0x2000
    assert bench.core.launch(plan, STREAM, 0) is False
    assert bench.fake.calls() == []
    bench.fake.context(0x1000)
    assert bench.core.launch(plan, STREAM, 0) is True


def test_a_driver_without_a_context(bench: LaunchBench) -> None:
    plan = bench.plan([], 0)
    bench.fake.fail("cuCtxGetCurrent")
    assert bench.core.current(bench.handle) == 0
    assert bench.core.launch(plan, STREAM) is False
    assert bench.core.launch(bench.plan([], 0), STREAM) is False


def test_a_launch_that_fails_says_why(bench: LaunchBench) -> None:
    bench.fake.sizes([8])
    plan = bench.core.plan(bench.handle, 1, [("fill", 0, 0, 1, 0), kernel([tensor_map()])], [])
    for call in ("cuMemsetD32Async", "cuTensorMapReplaceAddress", "cuLaunchKernelEx"):
        bench.fake.fail(call, 700)
        with pytest.raises(RuntimeError, match=f"^{call}: an illegal memory access was encountered$"):
            bench.core.launch(plan, STREAM, 4096)
        assert bench.fake.calls()[-1]["call"] == call
        bench.fake.fail(call, 999)
        with pytest.raises(RuntimeError, match=f"^{call}: unknown error$"):
            bench.core.launch(plan, STREAM, 4096)
    bench.fake.fail("")
    assert bench.core.launch(plan, STREAM, 4096) is True
    bench.fake.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(RuntimeError, match="cuTensorMapEncodeTiled"):
        bench.plan([tensor_map()], 1)


def test_a_launch_wants_a_value_for_every_slot(bench: LaunchBench) -> None:
    plan = bench.plan([("integer", 8, 0, 0)], 2)
    for values in [(), (1,), (1, 2, 3)]:
        with pytest.raises(TypeError, match=f"2 slots, got {len(values)} values"):
            bench.core.launch(plan, STREAM, *values)
    many = bench.plan([("integer", 8, slot, 0) for slot in range(256)], 256)
    assert bench.core.launch(many, STREAM, *range(256)) is True
    (launch,) = bench.fake.calls()
    assert [int(word[:4], 16) for word in launch["arguments"]] == [slot << 8 for slot in range(256)]


@pytest.mark.parametrize(
    "step",
    [
        (),
        ("other",),
        ("fill", 0, 0, 1),
        ("fill", 2, 0, 1, 0),
        ("fill", -1, 0, 1, 0),
        ("fill", 0, 1 << 62, 1, 0),
        ("fill", 0, 0, (1 << 40) + 1, 0),
        ("fill", 0, 0, -1, 0),
        ("fill", 0, 0, 1, -1),
        ("fill", 0, 0, 1, 1 << 32),
        ("kernel", FUNCTION),
        kernel(function=0),
        kernel(grid=(1, 1)),
        kernel(grid=(0, 1, 1)),
        kernel(grid=((1 << 32) + 1, 1, 1)),
        kernel(grid=7),
        kernel(threads=0),
        kernel(threads=1025),
        kernel(shared_bytes=1 << 32),
        kernel(shared_bytes=-1),
        kernel(cluster=0),
        kernel(cluster=17),
        kernel([("bytes", b"")]),
        kernel([("bytes", b"123456789")]),
        kernel([("bytes", "text")]),
        kernel([("integer", 0, 0, 0)]),
        kernel([("integer", 9, 0, 0)]),
        kernel([("integer", 8, 2, 0)]),
        kernel([("integer", 8, 1 << 32, 0)]),
        kernel([("integer", 8, 0)]),
        kernel([("fp32", -1)]),
        kernel([("fp16", 0)]),
        kernel([()]),
        kernel([None]),
        kernel([tensor_map(block=(64,))]),
        kernel([tensor_map(block=(), shape=(), strides=())]),
        kernel([tensor_map(block=[1] * 6, shape=[1] * 6, strides=[1] * 6)]),
        kernel([tensor_map(block=(257, 1))]),
        kernel([tensor_map(block=((1 << 32) + 64, 1))]),
        kernel([tensor_map(shape=(0, 512))]),
        kernel([tensor_map(shape=(-1, 512))]),
        kernel([tensor_map(strides=(512, 2))]),
        kernel([tensor_map(strides=(-512, 1))]),
        kernel([tensor_map(strides=(1 << 61, 1))]),
        kernel([tensor_map(element=(6, 0))]),
        kernel([tensor_map(slot=2)]),
    ],
    ids=str,
)
def test_what_no_plan_can_be_made_of(bench: LaunchBench, step: Any) -> None:
    with pytest.raises(TypeError):
        bench.core.plan(bench.handle, 2, [step], [])


@pytest.mark.parametrize(
    ("slots", "demands"),
    [
        (257, []),
        (-1, []),
        ((1 << 32) + 2, []),
        (2.0, []),
        (2, [("multiple", 0, 0)]),
        (2, [("multiple", 0, -2)]),
        (2, [("equal", 2, 0)]),
        (2, [("equal", 0)]),
        (2, [("less", 0, 1)]),
        (2, [("equal", 1, 1)]),
        (2, None),
    ],
    ids=str,
)
def test_slots_and_demands_that_cannot_be(bench: LaunchBench, slots: Any, demands: Any) -> None:
    with pytest.raises(TypeError):
        bench.core.plan(bench.handle, slots, [kernel([("fp64", 1)])], demands)


def test_a_plan_keeps_its_driver(bench: LaunchBench) -> None:
    plan = bench.plan([("integer", 8, 0, 0)], 1)
    bench.handle = None
    bench.core.driver("cuda", bench.fake.path)
    assert bench.core.launch(plan, STREAM, 5) is True


def test_launches_from_several_threads(bench: LaunchBench) -> None:
    plan = bench.plan([("integer", 8, 0, 0), tensor_map(1)], 2)
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(200):
                assert bench.core.launch(plan, number, 1000 * number + turn, number) is True
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = {
        (call["stream"], int.from_bytes(bytes.fromhex(call["arguments"][0]), "little"), call["arguments"][1][:16])
        for call in bench.fake.called("cuLaunchKernelEx")
    }
    assert found == {
        (number, 1000 * number + turn, struct.pack("<Q", number).hex()) for number in range(4) for turn in range(200)
    }
