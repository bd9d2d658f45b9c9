"""How Triton's compiled kernels are launched without its launcher."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from constrint.kernels.launch.plan import loaded
from constrint.kernels.launch.plan.arguments import check_layout, declared_bytes, integer
from constrint.kernels.launch.plan.recipe import KernelStep
from constrint.kernels.launch.plan.shape import LaunchShape, NotPlannedError
from tests.support.fake_driver import FUNCTION, MISSING, libraries_of
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.shared import SharedResults


def kernel(**facts: Any) -> Any:
    target = SimpleNamespace(warp_size=facts.pop("warp_size", 32))
    return SimpleNamespace(metadata=SimpleNamespace(num_warps=4, shared=1024, target=target, **facts))


def test_the_shape_of_a_launch() -> None:
    assert LaunchShape.of(kernel(), (7,)) == ((7, 1, 1), 128, 1024, 1, False, False)
    assert LaunchShape.of(kernel(warp_size=64), (7, 5, 3)) == ((7, 5, 3), 256, 1024, 1, False, False)


def test_the_blocks_of_clusters_are_counted() -> None:
    assert LaunchShape.of(kernel(num_ctas=2), (7, 5)) == ((14, 5, 1), 128, 1024, 2, False, False)


def test_flags_of_a_launch() -> None:
    assert LaunchShape.of(kernel(launch_cooperative_grid=True, launch_pdl=False), (1,))[-2:] == (True, False)
    assert LaunchShape.of(kernel(launch_cooperative_grid=False, launch_pdl=True), (1,))[-2:] == (False, True)


@pytest.mark.parametrize("facts", [{"global_scratch_size": 8}, {"profile_scratch_size": 8}, {"num_ctas": 16}])
def test_what_only_triton_can_launch_has_no_shape(facts: dict[str, int]) -> None:
    with pytest.raises(NotPlannedError, match=r"scratch memory|a cluster of 16"):
        LaunchShape.of(kernel(**facts), (1,))


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_core_launches_a_shape_that_was_kept_on_disk(shared_results: SharedResults, tmp_path: Path) -> None:
    shape = LaunchShape.of(kernel(num_ctas=2, launch_cooperative_grid=True, launch_pdl=True), (7, 5))
    kept = msgspec.msgpack.encode(KernelStep("image", "name", shape, []))
    step = msgspec.msgpack.decode(kept, type=KernelStep)
    assert step.shape == shape
    bench = LaunchBench(libraries_of(shared_results), tmp_path)
    plan = bench.core.plan(bench.handle, 0, [("kernel", FUNCTION, *step.shape.for_core(), [])], [])
    assert bench.core.launch(plan, STREAM) is True
    (launch,) = bench.fake.calls()
    assert (launch["grid"], launch["block"], launch["shared_bytes"]) == ([14, 5, 1], [128, 1, 1], 1024)
    # Cooperative, dependent, and in clusters of two, which need not fill the device evenly.
    assert {kind: values[0] for kind, values in launch["attributes"]} == {2: 1, 6: 1, 4: 2, 5: 1}


#: Parameters as Triton's PTX declares them: an address, a tensor map, numbers, and two addresses of scratch memory.
PTX = """
.visible .entry a_kernel(
	.param .u64 .ptr .global .align 1 a_kernel_param_0,
	.param .align 64 .b8 a_kernel_param_1[128],
	.param .u32 a_kernel_param_2,
	.param .u8 a_kernel_param_3,
	.param .f32 a_kernel_param_4,
	.param .u64 .ptr .global .align 1 a_kernel_param_5,
	.param .u64 .ptr .global .align 1 a_kernel_param_6
)
.reqntid 128
{
	ld.param.b64 	%rd1, [a_kernel_param_0];
"""
AMDGCN = """
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
      - .offset:         16
        .size:           8
        .value_kind:     hidden_hostcall_buffer
    .group_segment_fixed_size: 0
"""


def test_the_assembly_tells_the_sizes_of_parameters() -> None:
    assert declared_bytes({"ptx": PTX}) == [8, 128, 4, 1, 4, 8, 8]
    assert declared_bytes({"amdgcn": AMDGCN}) == [8, 4]
    assert declared_bytes({"ttir": "module {}"}) == []


def test_the_sizes_of_parameters_decide_about_a_plan_whatever_the_version() -> None:
    """The driver tells them from CUDA 12.4 on; elsewhere Triton's assembly does."""
    laid = [integer(0, 8), ("map",), integer(0, 4), integer(1, 1), ("fp32", 0), integer(0, 8), integer(0, 8)]
    check_layout(laid, [], {"ptx": PTX})
    check_layout(laid, [8, 128, 4, 1, 4, 8, 8], {})
    for told, assembly in (([8, 128, 4, 1, 4, 8], {}), ([], {"ptx": PTX.replace(".u8", ".u64")})):
        with pytest.raises(NotPlannedError, match="laid out in another way"):
            check_layout(laid, told, assembly)
    with pytest.raises(NotPlannedError, match="neither the driver nor the assembly tells"):
        check_layout(laid, [], {})


def test_a_kernel_lives_as_long_as_plans_may_launch_its_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.8 and later unload the module of a kernel that nothing refers to."""

    class Compiled:
        kernel, function, metadata = b"image", 7, SimpleNamespace(name="of_triton")

    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for name in ("_HANDLES", "_DIGESTS"):
        monkeypatch.setattr(loaded, name, {})
    compiled = Compiled()
    alive = weakref.ref(compiled)
    loaded.keep_triton(compiled)
    del compiled
    gc.collect()
    assert alive() is not None
