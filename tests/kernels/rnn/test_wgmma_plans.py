"""Plans and decisions of layers whose forward pass is the kernel for many sequences, on a driver that only notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn import dispatch
from constrint.kernels.rnn.candidates import choose_for
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda.spec import CudaRnnSpec
from constrint.kernels.rnn.interface import BackwardTensors, ForwardOutputs, RnnInputs
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.wgmma.launch import WgmmaBackend
from constrint.kernels.rnn.wgmma.shape import SOURCE, shape_of
from constrint.kernels.rnn.wgmma.spec import SPECS, WgmmaBothSpec, WgmmaSpec
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, cuda_launch, launch_bench_of

H200 = load_gpu("h200")
BATCH, TIME, HEADS, DIM = 100, 4, 1, 256


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def inputs() -> RnnInputs:
    wx, r, b = zeros(BATCH, TIME, 4, HEADS, DIM), zeros(4, HEADS, DIM, DIM), zeros(4, HEADS, DIM)
    return RnnInputs("lstm", wx, r, b, None, None, None)


def results(*, trains: bool) -> ForwardOutputs:
    gates = zeros(BATCH, TIME, 4, HEADS, DIM) if trains else None
    every = zeros(2, BATCH, TIME, HEADS, DIM)
    return ForwardOutputs(every, gates, zeros(BATCH, HEADS, DIM), zeros(1, BATCH, HEADS, DIM))


@pytest.mark.parametrize("trains", [False, True])
def test_a_plan_fills_and_launches_what_was_stated(trains: bool, bench: LaunchBench) -> None:
    """A forward call through the stand-in driver: the fill first, then the loop with its arguments."""
    workload = workload_of("lstm", (BATCH, 1024, HEADS, DIM), "bf16")
    choice = choose_for(SPECS[0], H200, workload, 0)
    given, made, scratch = inputs(), results(trains=trains), NotedScratch()
    fill, loop, _ = WgmmaBackend().plan_forward(given, None, made, choice, scratch)
    loaded = cuda_launch(
        *loop.arguments,  # type: ignore[attr-defined]
        **{name: getattr(loop, name) for name in ("grid", "block", "smem_bytes", "cluster", "is_cooperative")},
    )
    bench.fake.sizes([8] * 10 + [4] * 4 + [8] * 2, LOADED)
    every = (made.states, made.end_h, made.end_rest, made.gates)
    written = [tensor for tensor in every if tensor is not None]
    tensors = [given.wx, given.r, given.b]
    recipe = recipe_of([fill, loaded], tensors, written, scratch, "a note").recipe
    places = [(1 + number) << 40 for number in range(3 + len(recipe.outputs))]
    assert bench.core.launch(plan_of(recipe, 3), STREAM, *places) is True
    calls = [call for call in bench.fake.calls() if call["call"] in ("cuLaunchKernelEx", "cuMemsetD32Async")]
    assert [call["call"] for call in calls] == ["cuMemsetD32Async", "cuLaunchKernelEx"]
    shape = shape_of(CELLS["lstm"], DIM, choice.config)
    groups = HEADS * -(-BATCH // choice.config["tile_batch"])
    ring_bytes, exchange = groups * shape.ring_bytes.value({}), places[-1]
    assert (calls[0]["address"], calls[0]["value"], calls[0]["words"]) == (exchange, 0xFFFFFFFF, ring_bytes // 4)
    assert calls[1]["shared_bytes"] == shape.smem_bytes.value({})
    assert calls[1]["grid"] == [groups * DIM // choice.config["units"], 1, 1]
    addresses = [int.from_bytes(bytes.fromhex(text), "little") for text in calls[1]["arguments"][:10]]
    saved = places[6] if trains else 0
    assert addresses == [*places[:3], 0, places[3], saved, 0, 0, 0, exchange]
    cooperative = 2
    assert cooperative in [kind for kind, _ in calls[1]["attributes"]]


@pytest.mark.parametrize("what", ["initial", "r", "wx"])
def test_what_has_to_be_converted_has_no_plan(what: str) -> None:
    given = inputs()
    if what == "initial":
        given = replace(given, initial=zeros(2, BATCH, HEADS, DIM))
    elif what == "r":
        given = replace(given, r=given.r.float())
    else:
        given = replace(given, wx=zeros(BATCH, TIME, 4, HEADS, DIM + 2)[..., :DIM])
    choice = choose_for(SPECS[0], H200, workload_of("lstm", (BATCH, 1024, HEADS, DIM), "bf16"), 1)
    with pytest.raises(NotPlannedError, match="have to be converted"):
        WgmmaBackend().plan_forward(given, None, results(trains=False), choice, NotedScratch())


@pytest.mark.parametrize(
    ("name", "backward", "backend"),
    [
        ("wgmma", "lstm-backward.cuda", "CudaBackend"),
        ("wgmma_both", "lstm-backward.wgmma_both", "WgmmaBackend"),
    ],
)
def test_who_names_it_gets_its_forward_and_the_named_backward_pass(
    name: str, backward: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_DISPATCHES", {})
    monkeypatch.setattr(dispatch, "gpu_of", lambda _: H200)
    for spec in (WgmmaSpec, WgmmaBothSpec, CudaRnnSpec):
        monkeypatch.setattr(spec, "refusal_on", lambda *_: "")
    wx: Any = SimpleNamespace(shape=(256, 4, 4, 1, 768), dtype=torch.bfloat16, device=torch.device("cuda"))
    decided = {
        direction: dispatch.decide_for("lstm", wx, name, direction, recompute=False)
        for direction in ("forward", "backward")
    }
    assert [decision.choice.kernel for decision in decided.values()] == ["lstm.wgmma", backward]
    assert [type(decision.backend).__name__ for decision in decided.values()] == ["WgmmaBackend", backend]


@pytest.mark.parametrize("only_h", [True, False])
def test_a_plan_of_its_backward_pass_has_the_arguments_of_its_source(only_h: bool) -> None:
    workload = workload_of("lstm", (BATCH, 1024, HEADS, DIM), "bf16", "backward")
    spec = next(each for each in SPECS if each.operation == workload.operation)
    choice = choose_for(spec, H200, workload, 0)
    every = zeros(2, BATCH, TIME, HEADS, DIM)
    grads = zeros(BATCH, TIME, HEADS, DIM), None if only_h else zeros(BATCH, TIME, HEADS, DIM)
    slots, initial = zeros(BATCH, TIME, 4, HEADS, DIM), torch.zeros(2, BATCH, HEADS, DIM)
    call = BackwardTensors(every, zeros(BATCH, TIME, 4, HEADS, DIM), grads, None, slots, initial)
    scratch = NotedScratch()
    given = replace(inputs(), b=None)
    _, loop = WgmmaBackend().plan_backward(given, call, choice, scratch, clip=0.5, only_h=only_h)
    text = re.sub(r"//[^\n]*", "", (SOURCE / "backward.cu").read_text(encoding="utf-8"))
    stated = text.partition("recurrent_backward(")[2].partition(") {")[0].split(",")
    assert len(loop.arguments) == len(stated)  # type: ignore[attr-defined]
    by_name = {one.split()[-1].lstrip("*"): got for one, got in zip(stated, loop.arguments, strict=True)}  # type: ignore[attr-defined]
    assert by_name["grad0"] is grads[0]
    assert by_name["grad1"] is grads[1]
    assert by_name["saved"] is call.gates
    assert by_name["grad_slots"] is slots
    assert by_name["grad_initial"] is initial
    assert (by_name["clip"], by_name["shift_free"], by_name["time"]) == (0.5, only_h, TIME)
