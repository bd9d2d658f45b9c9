"""Plans of the recurrent CUDA kernels on a driver that only notes what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.launch.plan.recipe import plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda import planned
from constrint.kernels.rnn.cuda.shape import CLUSTER, GRID, smem_bytes_of
from constrint.kernels.rnn.interface import PlannedForward, RnnInputs
from constrint.kernels.rnn.spec import workload_of
from constrint.select.first_choice import choose
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, cuda_launch, launch_bench_of


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


@pytest.mark.parametrize("placement", [CLUSTER, GRID])
def test_a_plan_fills_and_launches_what_was_stated(placement: int, bench: LaunchBench) -> None:
    """A forward call through the stand-in driver: the fill first, then the loop with its arguments."""
    workload, (batch, time, heads, dim) = workload_of("lstm", (16, 1024, 1, 256), "bf16"), (16, 4, 1, 256)

    def made(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    wx, r, b = made(batch, time, 4, heads, dim), made(4, heads, dim, dim), made(4, heads, dim)
    out = PlannedForward(made(2, batch, time, heads, dim), made(batch, heads, dim), made(1, batch, heads, dim), None)
    choice = choose(load_spec("lstm.cuda"), load_gpu("h200"), workload, fixed={"recompute": 1, "placement": placement})
    inputs = RnnInputs("lstm", wx, r, b, None, None, None)
    *fills, loop = [
        each for each in planned.forward_launches(inputs, out, choice) if type(each).__name__ != "TritonLaunch"
    ]
    loaded = cuda_launch(
        *loop.arguments,  # type: ignore[attr-defined]
        **{name: getattr(loop, name) for name in ("grid", "block", "smem_bytes", "cluster", "is_cooperative")},
    )
    bench.fake.sizes([8] * 9 + [4] * 4 + [8] * 2, LOADED)
    results = [out.states, out.end_h, out.end_rest]
    recipe = recipe_of([*fills, loaded], [wx, r, b], results, NotedScratch(), "a note").recipe
    places = [(1 + number) << 40 for number in range(6)]
    assert bench.core.launch(plan_of(recipe, 3), STREAM, *places) is True
    calls = [call for call in bench.fake.calls() if call["call"] in ("cuLaunchKernelEx", "cuMemsetD32Async")]
    assert [call["call"] for call in calls] == ["cuMemsetD32Async"] * (placement == GRID) + ["cuLaunchKernelEx"]
    if placement == GRID:
        words = batch * time * heads * dim // 2
        assert (calls[0]["address"], calls[0]["value"], calls[0]["words"]) == (places[3], 0xFFFFFFFF, words)
    launched = calls[-1]
    assert launched["shared_bytes"] == smem_bytes_of(CELLS["lstm"], "forward", dim, "bf16", choice.config)
    assert launched["grid"] == [*loaded.grid, 1, 1]
    addresses = [int.from_bytes(bytes.fromhex(text), "little") for text in launched["arguments"][:9]]
    assert addresses == [*places[:3], 0, places[3], 0, 0, 0, 0]
    attribute = {CLUSTER: 4, GRID: 2}[placement]
    assert attribute in [kind for kind, _ in launched["attributes"]]
