"""What is launched where blocks that wait for each other would not all be resident: on a driver that only notes.

The stand-in has so many SMs, each of which holds so many blocks, as a slice of a GPU or a share of MPS would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import torch

from constrint.errors import InfeasibleError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch import policy
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn import dispatch, fused, plans
from constrint.kernels.rnn.cuda.shape import RING
from constrint.kernels.rnn.dispatch import layer_request
from constrint.kernels.rnn.weights import launch
from constrint.kernels.rnn.weights.launch import is_one_product
from tests.support.decisions import begin_anew
from tests.support.launch_bench import LaunchBench
from tests.support.planned import LOADED, SPILL_FREE, fake_gpu, launch_bench_of, triton_launch

H200 = load_gpu("h200")
BATCH, TIME = 16, 4
CALLS: dict[str, tuple[Any, Any, list[int]]] = {
    "forward": (plans._build_forward, plans.Forward("lstm", "auto", True, False), [8] * 11 + [4] * 4 + [8] * 2),
    "backward": (plans._build_backward, plans.Backward("lstm", "auto", 0.0, True), [8] * 17 + [4] * 6 + [8] * 2),
}


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LaunchBench]:
    """A stand-in GPU that takes the kernels for compiled, in a process that has chosen nothing yet."""
    begin_anew(monkeypatch)
    monkeypatch.setattr(policy, "_LOOKED_AT", {})
    monkeypatch.setattr(dispatch, "_DISPATCHES", {})
    monkeypatch.setattr(dispatch, "layer_request", lambda *of: replace(layer_request(*of), gpu=H200, device=None))
    monkeypatch.setattr(plans, "_compile_backward", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for name, value in (("handle", lambda _: LOADED), ("binary", property(lambda _: SPILL_FREE))):
        monkeypatch.setattr(CudaLaunch, name, value)
    monkeypatch.setattr(CudaLaunch, "device", property(lambda _: torch.device("cpu")))
    # The copies at the edges are Triton's, which compiles for a GPU that is there.
    monkeypatch.setattr(fused, "ends_launch", lambda made: triton_launch(made.end_h))
    monkeypatch.setattr(fused, "before_launch", lambda _, made: triton_launch(made.before))
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def build(bench: LaunchBench, direction: str, dim: int, *, num_sms: int, backend: str = "auto") -> Any:
    """The launches of a layer that is learnt on a stand-in with so many SMs."""
    make, extra, sizes = CALLS[direction]
    bench.fake.sizes(sizes, LOADED)

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    wx, r, every = zeros(BATCH, TIME, 4, 1, dim), zeros(4, 1, dim, dim), zeros(BATCH, TIME, 1, dim)
    tensors: Any = (wx, r, None, None, None)
    if direction == "backward":
        tensors = (every, None, None, wx, r, None, zeros(2, BATCH, TIME, 1, dim), wx.clone())
    with fake_gpu(bench, num_sms):
        return make(tensors, extra._replace(backend=backend)).recipe


def test_the_gradients_of_weights_in_several_heads_are_results_of_the_call(
    bench: LaunchBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def sums(kind: Any, slots: Any, h: Any, initial: Any, r: Any, b: Any, *_: Any) -> list[Any]:
        seen.extend((slots, h, initial))
        return [triton_launch(r), *([] if b is None else [triton_launch(b)])]

    monkeypatch.setattr(launch, "weight_launches", sums)
    heads, dim = 12, 64
    bench.fake.sizes(CALLS["backward"][2], LOADED)

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    wx, r, every = zeros(BATCH, TIME, 4, heads, dim), zeros(4, heads, dim, dim), zeros(BATCH, TIME, heads, dim)
    states = zeros(2, BATCH, TIME, heads, dim)
    monkeypatch.setattr(plans, "_are_summed", lambda n, d, size, _: is_one_product(n, d, size, H200))
    for b in (None, zeros(4, heads, dim).float()):
        extra = plans.backward_of("lstm", "auto", 0.0, True, r, True, b)
        with fake_gpu(bench):
            recipe = plans._build_backward((every, None, None, wx, r, None, states, wx.clone()), extra).recipe
        results = [(tuple(shape), dtype) for shape, _, dtype in recipe.outputs[: recipe.num_results]]
        assert results[:3] == [(wx.shape, "bfloat16"), ((2, BATCH, heads, dim), "float32"), (r.shape, "bfloat16")]
        assert results[3:] == ([] if b is None else [(b.shape, "float32")])
        made = [torch.full(shape, number) for number, (shape, _) in enumerate(results)]
        d_wx, d_r, d_b, d_initial = plans.gradients_of_call(extra, made, r, True, b)
        assert [d_wx is made[0], d_initial is made[1], d_r is made[2]] == [True] * 3
        assert d_b is (None if b is None else made[3])
        slots, h, initial = seen[-3:]
        assert (slots.shape, h.data_ptr(), initial) == (wx.shape, states.data_ptr(), None)


def together(recipe: Any) -> list[int]:
    """Blocks of each launch that wait for each other."""
    return [step.shape.num_together for step in recipe.steps if hasattr(step, "shape")]


@pytest.mark.parametrize("direction", CALLS)
def test_on_a_slice_a_layer_takes_no_more_blocks_than_there_are_at_a_time(direction: str, bench: LaunchBench) -> None:
    whole = max(together(build(bench, direction, 768, num_sms=132)))
    assert whole > 16, "an H200 as a whole runs it on more blocks, so that the next line tests something"
    with pytest.warns(RuntimeWarning, match=r"wait for each other, and .* \(16 SMs here\) holds 16 of them"):
        slice_of = together(build(bench, direction, 768, num_sms=16))
    assert 1 < max(slice_of) <= 16
    assert bench.fake.called("cuLaunchKernelEx") == [], "nothing is launched to find that out"


def test_where_no_cluster_and_no_grid_is_resident_one_block_does_a_head(bench: LaunchBench) -> None:
    assert max(together(build(bench, "forward", 128, num_sms=132))) > 1
    bench.fake.resident(0)
    with pytest.warns(RuntimeWarning, match=r"holds 0 of them at the same time"):
        assert max(together(build(bench, "forward", 128, num_sms=132))) == 1


def test_weights_that_a_slice_cannot_hold_are_read_again_in_every_step(bench: LaunchBench) -> None:
    """The grid of an H200 has 128 blocks for this head; on 16 SMs few of its weights find a place."""
    assert max(together(build(bench, "forward", 2048, num_sms=132))) > 16
    with pytest.warns(RuntimeWarning, match=r"holds 16 of them at the same time"):
        recipe = build(bench, "forward", 2048, num_sms=16)
    assert max(together(recipe)) == 16
    ring_bytes, weight_bytes = RING * BATCH * 2048 * 2, 4 * 2048 * 2048 * 2
    (scratch_bytes,), _, _ = recipe.outputs[-1]
    assert weight_bytes / 2 < scratch_bytes - ring_bytes < weight_bytes


def test_where_nothing_of_the_kernels_is_resident_auto_takes_another_implementation(bench: LaunchBench) -> None:
    with (
        pytest.warns(RuntimeWarning, match=r"lstm\.cuda: no config of .* From now on lstm\.alternating is used"),
        pytest.raises(NotPlannedError, match="alternating"),
    ):
        build(bench, "forward", 2048, num_sms=1)
    # It is decided once: the next call says nothing more.
    with pytest.raises(NotPlannedError, match="alternating"):
        build(bench, "forward", 2048, num_sms=1)


def test_who_names_the_kernels_is_told_why_none_is_resident(bench: LaunchBench) -> None:
    wx = torch.zeros((BATCH, TIME, 4, 1, 2048), dtype=torch.bfloat16)
    assert dispatch.decide_for("lstm", wx, "auto", "forward", recompute=False).choice.kernel == "lstm.cuda"
    with pytest.raises(
        InfeasibleError, match=r"the device refused .* of blocks at the same time required, the limit is 1"
    ):
        build(bench, "forward", 2048, num_sms=1, backend="cuda")
