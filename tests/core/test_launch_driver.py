"""Drivers are opened where they have what is needed; kernels are loaded; launches through HIP."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import FUNCTION, MISSING, libraries_of, without
from tests.support.launch_bench import STREAM, LaunchBench, kernel, tensor_map
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

CUDA_SYMBOLS = (
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuDeviceGetAttribute",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuDriverGetVersion",
    "cuMemsetD32Async",
)
HIP_SYMBOLS = (
    "hipGetErrorString",
    "hipModuleLaunchKernel",
    "hipModuleLaunchCooperativeKernel",
    "hipGetDevice",
    "hipModuleLoadData",
    "hipModuleGetFunction",
    "hipFuncGetAttribute",
    "hipMemsetD32Async",
)


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> LaunchBench:
    return LaunchBench(libraries_of(shared_results), tmp_path)


@pytest.fixture
def hip(shared_results: SharedResults, tmp_path: Path) -> LaunchBench:
    return LaunchBench(libraries_of(shared_results), tmp_path, "hip")


def test_a_library_that_is_not_there(bench: LaunchBench) -> None:
    with pytest.raises(OSError, match=r"nowhere\.so"):
        bench.core.driver("cuda", str(bench.folder / "nowhere.so"))
    with pytest.raises(OSError, match="metal"):
        bench.core.driver("metal", bench.fake.path)
    with pytest.raises(OSError, match="hip"):
        bench.core.driver("hip", bench.fake.path)


@pytest.mark.parametrize(
    ("kind", "symbol"), [("cuda", name) for name in CUDA_SYMBOLS] + [("hip", n) for n in HIP_SYMBOLS]
)
def test_a_driver_that_lacks_what_is_needed(bench: LaunchBench, kind: str, symbol: str) -> None:
    with pytest.raises(OSError, match=f"the driver has no {symbol}$"):
        bench.core.driver(kind, without(bench.libraries[kind], symbol, bench.folder))


@pytest.mark.parametrize("symbol", ["cuTensorMapEncodeTiled", "cuTensorMapReplaceAddress"])
def test_a_driver_without_tensor_maps(bench: LaunchBench, symbol: str) -> None:
    handle = bench.core.driver("cuda", without(bench.libraries["cuda"], symbol, bench.folder))
    assert bench.core.plan(handle, 1, [kernel([("integer", 8, 0, 0)])], []) is not None
    with pytest.raises(RuntimeError, match="no tensor maps"):
        bench.core.plan(handle, 1, [kernel([tensor_map()])], [])


def test_the_sizes_of_a_kernels_arguments(bench: LaunchBench, hip: LaunchBench) -> None:
    bench.fake.sizes([8, 4, 128, 8])
    assert bench.core.parameter_bytes(bench.handle, FUNCTION) == [8, 4, 128, 8]
    assert bench.core.parameter_bytes(bench.handle, FUNCTION + 1) == []
    assert hip.core.parameter_bytes(hip.handle, FUNCTION) == []
    silent = bench.core.driver("cuda", without(bench.libraries["cuda"], "cuFuncGetParamInfo", bench.folder))
    assert bench.core.parameter_bytes(silent, FUNCTION) == []


def test_loading_a_kernel(bench: LaunchBench) -> None:
    for attribute, value in {4: 168, 3: 24, 0: 1024}.items():
        bench.fake.value(attribute, value)
    assert bench.core.load_kernel(bench.handle, b"an image", "a_kernel") == (0x99, 168, 24, 1024)
    assert bench.fake.calls() == [
        {"call": "cuModuleLoadData", "image": b"an image".hex()},
        {"call": "cuModuleGetFunction", "module": 0x77, "name": "a_kernel"},
    ]


@pytest.mark.parametrize("shared_bytes", [0, 48 * 1024, 48 * 1024 + 1, 200_000])
@pytest.mark.parametrize("cluster", [1, 8, 9, 16])
def test_a_kernel_is_allowed_what_its_launches_take(bench: LaunchBench, shared_bytes: int, cluster: int) -> None:
    bench.fake.device(3)
    bench.fake.value(1, 512)
    bench.core.allow_kernel(bench.handle, 0x99, shared_bytes, cluster)
    expected = []
    if shared_bytes > 48 * 1024:
        expected += [
            {"call": "cuFuncSetCacheConfig", "function": 0x99, "config": 1},
            {"call": "cuFuncSetAttribute", "function": 0x99, "attribute": 8, "value": 97_003 - 512},
        ]
    if cluster > 8:  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        expected += [{"call": "cuFuncSetAttribute", "function": 0x99, "attribute": 14, "value": 1}]
    assert bench.fake.calls() == expected


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute"])
def test_loading_that_fails_says_why(bench: LaunchBench, call: str) -> None:
    bench.fake.fail(call)
    with pytest.raises(RuntimeError, match=f"^{call}: an illegal memory access"):
        bench.core.load_kernel(bench.handle, b"an image", "a_kernel")


@pytest.mark.parametrize(
    "call",
    ["cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncSetCacheConfig", "cuCtxGetDevice", "cuDeviceGetAttribute"],
)
def test_what_is_not_allowed_says_why(bench: LaunchBench, call: str) -> None:
    bench.fake.fail(call)
    with pytest.raises(RuntimeError, match=f"^{call}: an illegal memory access"):
        bench.core.allow_kernel(bench.handle, FUNCTION, 100_000, 1)


@pytest.mark.parametrize(
    ("function", "shared_bytes", "cluster"),
    [
        *((FUNCTION, number, 1) for number in (-1, 1 << 31, 1 << 32, 1.0)),
        (FUNCTION, 0, 0),
        (FUNCTION, 0, 17),
        (0, 0, 1),
    ],
)
def test_what_no_launch_can_take(bench: LaunchBench, function: int, shared_bytes: Any, cluster: int) -> None:
    with pytest.raises(TypeError):
        bench.core.allow_kernel(bench.handle, function, shared_bytes, cluster)
    with pytest.raises(TypeError):
        bench.core.resident_blocks(bench.handle, function, 128, shared_bytes, cluster, 132)


def test_blocks_that_are_resident_at_the_same_time(bench: LaunchBench, hip: LaunchBench) -> None:
    bench.fake.resident(2)
    assert bench.core.resident_blocks(bench.handle, FUNCTION, 256, 90_000, 1, 132) == 2 * 132
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    assert bench.fake.calls() == [{"call": name, "function": FUNCTION, "threads": 256, "shared_bytes": 90_000}]
    bench.fake.resident(7)
    assert bench.core.resident_blocks(bench.handle, FUNCTION, 256, 90_000, 16, 132) == 7 * 16
    (asked,) = bench.fake.calls()
    assert (asked["call"], asked["grid"], asked["block"]) == ("cuOccupancyMaxActiveClusters", [16, 1, 1], [256, 1, 1])
    # As in the launch: the size of a cluster, and blocks of one spread over the SMs.
    assert {kind: values[:3] for kind, values in asked["attributes"]} == {4: [16, 1, 1], 5: [1, 0, 0]}
    bench.fake.fail("cuOccupancyMaxActiveClusters", 912)  # CUDA_ERROR_INVALID_CLUSTER_SIZE
    assert bench.core.resident_blocks(bench.handle, FUNCTION, 256, 0, 16, 132) == 0
    for call, cluster in (("cuOccupancyMaxActiveClusters", 2), ("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1)):
        bench.fake.fail(call)
        with pytest.raises(RuntimeError, match=f"^{call}: an illegal"):
            bench.core.resident_blocks(bench.handle, FUNCTION, 256, 0, cluster, 132)
        old = bench.core.driver("cuda", without(bench.libraries["cuda"], call, bench.folder))
        assert bench.core.resident_blocks(old, FUNCTION, 256, 0, cluster, 132) is None
    hip.fake.resident(3)
    assert hip.core.resident_blocks(hip.handle, FUNCTION, 256, 0, 1, 304) == 3 * 304
    name = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
    old = hip.core.driver("hip", without(hip.libraries["hip"], name, hip.folder))
    assert hip.core.resident_blocks(old, FUNCTION, 256, 0, 1, 304) is None
    hip.fake.fail(name)
    with pytest.raises(RuntimeError, match=f"^{name}: invalid device function"):
        hip.core.resident_blocks(hip.handle, FUNCTION, 256, 0, 1, 304)


# HIP


@pytest.mark.parametrize("cooperative", [0, 1])
def test_launches_of_hip(hip: LaunchBench, cooperative: int) -> None:
    hip.fake.sizes([8, 4, 2])
    arguments = [("integer", 8, 0, 32), ("bytes", b"abcd"), ("integer", 2, 1, 0)]
    step = kernel(arguments, grid=(9, 8, 7), threads=512, shared_bytes=65_536, cooperative=cooperative, dependent=1)
    plan = hip.core.plan(hip.handle, 2, [("fill", 0, 16, 5, 0xFFFFFFFF), step], [])
    assert hip.core.launch(plan, STREAM, 1 << 44, -2) is True
    zeroed, launch = hip.fake.calls()
    assert zeroed == {
        "call": "hipMemsetD32Async",
        "address": (1 << 44) + 16,
        "value": -1,
        "words": 5,
        "stream": STREAM,
    }
    assert launch.pop("places") in ([0, 8, 16], [64, 72, 80])
    assert launch == {
        "call": "hipModuleLaunchCooperativeKernel" if cooperative else "hipModuleLaunchKernel",
        "function": FUNCTION,
        "grid": [9, 8, 7],
        "block": [512, 1, 1],
        "shared_bytes": 65_536,
        "stream": STREAM,
        "extra": 0,
        "arguments": [struct.pack("<Q", (1 << 44) + 32).hex(), b"abcd".hex(), "feff"],
    }


def test_the_current_device_of_hip(hip: LaunchBench) -> None:
    hip.fake.device(2)
    plan = hip.core.plan(hip.handle, 0, [kernel()], [])
    assert hip.core.current(hip.handle) == 3
    assert hip.core.launch(plan, STREAM) is True
    hip.fake.device(0)
    assert hip.core.launch(plan, STREAM) is False
    hip.fake.fail("hipGetDevice")
    assert hip.core.current(hip.handle) == 0


def test_what_hip_has_not(hip: LaunchBench) -> None:
    with pytest.raises(RuntimeError, match="no tensor maps"):
        hip.plan([tensor_map()], 1)
    with pytest.raises(RuntimeError, match="no clusters"):
        hip.core.plan(hip.handle, 0, [kernel(cluster=2)], [])
    with pytest.raises(RuntimeError, match="no clusters"):
        hip.core.allow_kernel(hip.handle, FUNCTION, 0, 2)
    hip.core.allow_kernel(hip.handle, FUNCTION, 65_536, 1)
    assert hip.fake.calls() == []


def test_errors_of_hip(hip: LaunchBench) -> None:
    plan = hip.core.plan(hip.handle, 1, [("fill", 0, 0, 1, 0), kernel(cooperative=1), kernel()], [])
    for call in ("hipMemsetD32Async", "hipModuleLaunchCooperativeKernel", "hipModuleLaunchKernel"):
        hip.fake.fail(call, 98)
        with pytest.raises(RuntimeError, match=f"^{call}: invalid device function$"):
            hip.core.launch(plan, STREAM, 4096)
        hip.fake.fail(call, 999)
        with pytest.raises(RuntimeError, match=f"^{call}: unknown error$"):
            hip.core.launch(plan, STREAM, 4096)
    for call in ("hipModuleLoadData", "hipModuleGetFunction", "hipFuncGetAttribute"):
        hip.fake.fail(call)
        with pytest.raises(RuntimeError, match=f"^{call}: invalid device function$"):
            hip.core.load_kernel(hip.handle, b"an image", "a_kernel")
    hip.fake.fail("")
    hip.fake.value(4, 96)
    assert hip.core.load_kernel(hip.handle, b"an image", "a_kernel") == (0x99, 96, 0, 0)
