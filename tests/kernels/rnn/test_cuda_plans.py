"""Plans of the recurrent CUDA kernels on a driver that only notes what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import torch

from constrint.choose import Request, decide
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.plan.recipe import plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda.launch import CudaBackend
from constrint.kernels.rnn.cuda.shape import CLUSTER, GRID, RING, shape_of
from constrint.kernels.rnn.interface import ForwardOutputs, RnnInputs
from constrint.kernels.rnn.spec import workload_of
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, cuda_launch, launch_bench_of


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


@pytest.mark.parametrize(("placement", "streamed_pairs"), [(CLUSTER, 0), (GRID, 0), (GRID, 2)])
def test_a_plan_fills_and_launches_what_was_stated(placement: int, streamed_pairs: int, bench: LaunchBench) -> None:
    """A forward call through the stand-in driver: the fill first, then the loop with its arguments."""
    workload, (batch, time, heads, dim) = workload_of("lstm", (16, 1024, 1, 256), "bf16"), (16, 4, 1, 256)

    def made(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    wx, r, b = made(batch, time, 4, heads, dim), made(4, heads, dim, dim), made(4, heads, dim)
    out = ForwardOutputs(made(2, batch, time, heads, dim), None, made(batch, heads, dim), made(1, batch, heads, dim))
    fixed = {"recompute": 1, "placement": placement}
    choice = decide(Request("lstm.cuda", workload, load_gpu("h200"), fixed=fixed))
    step = replace(choice.step, config={**choice.config, "streamed_pairs": streamed_pairs})
    choice = replace(choice, program=replace(choice.program, steps=(step,)))
    inputs, scratch = RnnInputs("lstm", wx, r, b, None, None, None), NotedScratch()
    *fills, loop = [
        each
        for each in CudaBackend().plan_forward(inputs, None, out, choice, scratch)
        if type(each).__name__ != "TritonLaunch"
    ]
    loaded = cuda_launch(
        *loop.arguments,  # type: ignore[attr-defined]
        **{name: getattr(loop, name) for name in ("grid", "block", "smem_bytes", "cluster", "is_cooperative")},
    )
    bench.fake.sizes([8] * 11 + [4] * 4 + [8] * 2, LOADED)
    results = [each for each in (out.states, out.end_h, out.end_rest) if each is not None]
    recipe = recipe_of([*fills, loaded], [wx, r, b], results, scratch, "a note").recipe
    shape = shape_of(CELLS["lstm"], "forward", dim, "bf16", choice.config)
    ring_bytes, streamed_bytes = RING * batch * dim * 2, loaded.grid[0] * shape.streamed_bytes.value({})
    if placement == GRID:
        # The call's own piece of memory: the ring, and the weights behind it.
        assert len(recipe.outputs) == recipe.num_results + 1
        assert recipe.outputs[-1] == ([ring_bytes + streamed_bytes], [1], "uint8")
    else:
        assert len(recipe.outputs) == recipe.num_results
    places = [(1 + number) << 40 for number in range(3 + len(recipe.outputs))]
    assert bench.core.launch(plan_of(recipe, 3), STREAM, *places) is True
    calls = [call for call in bench.fake.calls() if call["call"] in ("cuLaunchKernelEx", "cuMemsetD32Async")]
    assert [call["call"] for call in calls] == ["cuMemsetD32Async"] * (placement == GRID) + ["cuLaunchKernelEx"]
    exchange = streamed = 0
    if placement == GRID:
        exchange, streamed = places[6], bool(streamed_pairs) * (places[6] + ring_bytes)
        assert (calls[0]["address"], calls[0]["value"], calls[0]["words"]) == (exchange, 0xFFFFFFFF, ring_bytes // 4)
    launched = calls[-1]
    assert launched["shared_bytes"] == shape.smem_bytes.value({})
    assert launched["grid"] == [*loaded.grid, 1, 1]
    addresses = [int.from_bytes(bytes.fromhex(text), "little") for text in launched["arguments"][:11]]
    assert addresses == [*places[:3], 0, places[3], 0, 0, 0, 0, exchange, streamed]
    attribute = {CLUSTER: 4, GRID: 2}[placement]
    assert attribute in [kind for kind, _ in launched["attributes"]]
