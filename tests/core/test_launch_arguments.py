"""Plans lay out a kernel's arguments as its binary takes them, and fill in addresses and numbers."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_driver import MISSING, Exchange, FakeParameter, FakeTensor, OtherTensor, libraries_of, new_core
from tests.support.launch_bench import STREAM, LaunchBench, tensor_map
from tests.support.needs import needs_triton
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

# What the fake driver writes behind the address of every tensor map.
REST_OF_MAP = b"\xff" * 120
# The bit that says that a tensor is small.
SMALL = 1 << 21


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> LaunchBench:
    return LaunchBench(libraries_of(shared_results), tmp_path)


@pytest.mark.parametrize("size", range(1, 9))
def test_bytes_are_passed_as_they_are(bench: LaunchBench, size: int) -> None:
    constant = bytes(range(17, 17 + size))
    assert bench.launched([("bytes", b"\x01"), ("bytes", constant), ("bytes", b"\x02")]) == [b"\x01", constant, b"\x02"]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("value", [0, 1, 100, -1, -100])
def test_integers_of_every_size(bench: LaunchBench, size: int, value: int) -> None:
    assert bench.launched([("integer", size, 0, 0)], value) == [value.to_bytes(size, "little", signed=True)]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_integers_with_and_without_a_sign_up_to_their_limits(bench: LaunchBench, size: int) -> None:
    bits = 8 * size
    for value in (-(1 << bits - 1), (1 << bits) - 1):
        assert bench.launched([("integer", size, 0, 0)], value) == [(value % (1 << bits)).to_bytes(size, "little")]
    for value in (-(1 << bits - 1) - 1, 1 << bits):
        with pytest.raises(OverflowError):
            bench.launched([("integer", size, 0, 0)], value)
    assert not bench.fake.calls()


def test_a_shift_is_added_to_its_slots_value(bench: LaunchBench) -> None:
    far = 1 << 40
    arguments = [("integer", 8, 1, 3 << 33), ("integer", 8, 0, -16), ("integer", 8, 1, 0)]
    found = [int.from_bytes(word, "little") for word in bench.launched(arguments, 4096, far)]
    assert found == [far + (3 << 33), 4080, far]


def test_numbers_of_floating_point(bench: LaunchBench) -> None:
    arguments = [("fp32", 0), ("bytes", b"z"), ("fp64", 1), ("fp32", 2)]
    assert bench.launched(arguments, 0.1, -1e300, 3) == [
        struct.pack("<f", 0.1),
        b"z",
        struct.pack("<d", -1e300),
        struct.pack("<f", 3),
    ]


def test_a_slot_takes_only_what_its_arguments_are(bench: LaunchBench) -> None:
    plan = bench.plan([("fp32", 0), ("integer", 4, 1, 0)], 3)
    for values in [(1.0, 2.0, 0), (None, 2, 0), ("1", 2, 0), (10**400, 2, 0), (1.0, 1 << 64, 0), (1.0, "2", 0)]:
        with pytest.raises((TypeError, OverflowError, AttributeError)):
            bench.core.launch(plan, STREAM, *values)
    assert not bench.fake.calls()
    assert bench.core.launch(plan, STREAM, 1.0, 2, 3.0) is True
    with pytest.raises(TypeError):
        bench.plan([("fp32", 0), ("integer", 4, 0, 0)], 1)


def test_addresses_of_tensors(bench: LaunchBench) -> None:
    class Pointer:
        def data_ptr(self) -> int:
            return 0x7F00_0000_0100

    class Number(int):
        pass

    arguments = [("integer", 8, slot, 0) for slot in range(4)]
    words = bench.launched(arguments, Pointer(), None, (1 << 64) - 256, Number(512))
    assert [int.from_bytes(word, "little") for word in words] == [0x7F00_0000_0100, 0, (1 << 64) - 256, 512]


def test_tensors_are_read_through_their_exchange(bench: LaunchBench) -> None:
    exchange = Exchange(bench.libraries["exchange"], bench.folder)
    capsule = exchange.classes_of()
    bench.core = new_core()
    assert bench.core.use_tensors(capsule, FakeTensor, FakeParameter) is True
    tensor, parameter, other = FakeTensor(0x1000), FakeParameter(0x2000), OtherTensor(0x3000)
    tensor.described.offset = 64
    words = bench.launched([("integer", 8, slot, 0) for slot in range(3)], tensor, parameter, other)
    assert [int.from_bytes(word, "little") for word in words] == [0x1040, 0x2000, 0x3000]
    tensor.described = None
    with pytest.raises(TypeError):
        bench.launched([("integer", 8, 0, 0)], tensor)


@needs_triton
def test_tensors_of_torch(bench: LaunchBench) -> None:
    import torch

    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        pytest.skip("this torch offers no exchange of tensors")
    bench.core = new_core()
    assert bench.core.use_tensors(exchange, torch.Tensor, torch.nn.Parameter) is True
    tensor, parameter = torch.empty(8, 8)[1:, 2:], torch.nn.Parameter(torch.empty(3))
    words = bench.launched([("integer", 8, slot, 0) for slot in range(2)], tensor, parameter)
    assert [int.from_bytes(word, "little") for word in words] == [tensor.data_ptr(), parameter.data_ptr()]


# Tensor maps


@pytest.mark.parametrize("rank", range(1, 6))
def test_tensor_maps_are_stated_fastest_axis_first(bench: LaunchBench, rank: int) -> None:
    shape, block = [100 + axis for axis in range(rank)], [2 << axis for axis in range(rank)]
    strides = [1 << (33 - 4 * axis) for axis in range(rank - 1)] + [1]
    made = bench.launched([tensor_map(0, 48, block, shape, strides, (9, 4), 2, 1)], 1 << 44)
    assert made == [struct.pack("<Q", (1 << 44) + 48) + REST_OF_MAP]
    bench.plan([tensor_map(0, 48, block, shape, strides, (9, 4), 2, 1)], 1)
    (encoded,) = bench.fake.called("cuTensorMapEncodeTiled")
    assert encoded == {
        "call": "cuTensorMapEncodeTiled",
        "type": 9,
        "place": 0,
        "sizes": shape[::-1],
        "strides": [4 * stride for stride in strides[:-1]][::-1],
        "block": block[::-1],
        "steps": [1] * rank,
        "options": [0, 2, 2, 1],
    }


@pytest.mark.parametrize(
    ("version", "shape", "is_cleared"),
    [
        (13010, (8, 64), True),
        (12040, (1024, 64), True),
        (13020, (8, 64), False),
        (13010, (1025, 64), False),
        (13010, (1 << 31, 64), False),
    ],
)
def test_old_drivers_do_not_mark_small_tensors(
    bench: LaunchBench, version: int, shape: tuple[int, int], is_cleared: bool
) -> None:
    bench.fake.version(version)
    (made,) = bench.launched([tensor_map(shape=shape, strides=(64, 1))], 0)
    (word,) = struct.unpack("<Q", made[8:16])
    assert word == (1 << 64) - 1 - (SMALL if is_cleared else 0)
    assert made[16:] == REST_OF_MAP[8:]


def test_a_driver_that_does_not_tell_its_version_keeps_its_marks(bench: LaunchBench) -> None:
    bench.fake.version(13010)
    bench.fake.fail("cuDriverGetVersion")
    (made,) = bench.launched([tensor_map(shape=(8, 64), strides=(64, 1))], 0)
    assert made[8:] == REST_OF_MAP


def test_more_arguments_than_fit_on_the_stack(bench: LaunchBench) -> None:
    arguments: list[Any] = []
    for slot in range(40):
        arguments += [("bytes", bytes([slot])), tensor_map(slot, 16)]
    values = [1024 * slot for slot in range(40)]
    made = bench.launched(arguments, *values)
    assert made[::2] == [bytes([slot]) for slot in range(40)]
    assert made[1::2] == [struct.pack("<Q", value + 16) + REST_OF_MAP for value in values]


def test_as_many_arguments_as_a_kernel_may_have(bench: LaunchBench) -> None:
    assert bench.launched([("bytes", bytes([i])) for i in range(256)]) == [bytes([i]) for i in range(256)]
    with pytest.raises(TypeError):
        bench.plan([("bytes", b"x")] * 257, 0)


def arguments_and_values() -> st.SearchStrategy[tuple[list[Any], list[Any], list[bytes]]]:
    """Arguments of all kinds, the values of their slots (integers in even slots), and the bytes that they become."""

    @st.composite
    def draw_all(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[bytes]]:
        whole = draw(st.lists(st.integers(0, (1 << 63) - 1), min_size=3, max_size=3))
        parts = draw(st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3))
        values = [value for pair in zip(whole, parts, strict=True) for value in pair]
        arguments: list[Any] = []
        expected = []
        for kind in draw(st.lists(st.sampled_from(["bytes", "integer", "fp32", "fp64", "map"]), max_size=30)):
            at, shift = draw(st.integers(0, 2)), draw(st.integers(-(1 << 61), 1 << 61))
            word = struct.pack("<Q", (whole[at] + shift) % (1 << 64))
            if kind == "bytes":
                arguments.append(("bytes", draw(st.binary(min_size=1, max_size=8))))
                expected.append(arguments[-1][1])
            elif kind == "integer":
                arguments.append(("integer", 8, 2 * at, shift))
                expected.append(word)
            elif kind == "map":
                arguments.append(tensor_map(2 * at, shift))
                expected.append(word + REST_OF_MAP)
            else:
                arguments.append((kind, 2 * at + 1))
                expected.append(struct.pack("<f" if kind == "fp32" else "<d", parts[at]))
        return arguments, values, expected

    return draw_all()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments_and_values())
def test_any_mixture_of_arguments(bench: LaunchBench, drawn: tuple[list[Any], list[Any], list[bytes]]) -> None:
    arguments, values, expected = drawn
    assert bench.launched(arguments, *values) == expected
