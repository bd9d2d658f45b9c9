"""How Triton's compiled kernels are launched without its launcher."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch", reason="torch is not installed")

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
