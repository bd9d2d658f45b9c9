"""The kernels for many sequences on a Hopper GPU: their results, the same bits each time, and gradients."""

from __future__ import annotations

import pytest

from tests.support.needs import needs_hopper, needs_nvrtc

pytest.importorskip("torch", reason="needs the extra [torch]")

import torch

from constrint.flashrnn import rnn
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.rnn.dispatch import decide_for
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.wgmma.spec import SPECS
from constrint.kernels.rnn.wgmma_partial.spec import SPECS as PARTIAL
from constrint.tune.check import Case
from tests.support.decisions import choose_kernel

pytestmark = [pytest.mark.gpu, needs_hopper, needs_nvrtc]
BY_CELL = {spec.operation: spec for spec in SPECS}
#: Cell, sequences, steps, heads, units of each: shared depths, several rounds of the ring, groups that are not full.
LAYERS = (("lstm", 256, 40, 1, 768), ("lstm", 100, 3, 2, 256), ("gru", 64, 35, 1, 512), ("elman", 70, 13, 1, 192))
REPEATS = 20


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("layer", LAYERS)
def test_results_are_right_and_the_same_each_time(layer: tuple[str, int, int, int, int], dtype: str) -> None:
    cell, *sizes = layer
    gpu = gpu_of(torch.device("cuda"))
    assert gpu is not None
    spec, workload = BY_CELL[cell], workload_of(cell, tuple(sizes), dtype)  # type: ignore[arg-type]
    case = Case(spec, gpu, workload, device="cuda")
    for fixed in ({}, {"probe": 0}, {"depth_groups": 1}):
        config = choose_kernel(spec, gpu, spec.planned(workload), fixed={"recompute": 0, **fixed}).config
        launches = case.launches(config)
        assert case.check(launches) <= 1
        first = {name: output.clone() for name, output in case.outputs.items()}
        for _ in range(REPEATS):
            assert case.check(launches) <= 1
            assert all(torch.equal(first[name], output) for name, output in case.outputs.items())


def test_another_implementation_computes_the_gradients() -> None:
    draw = torch.Generator(device="cuda").manual_seed(1)
    shapes = (128, 20, 4, 1, 512), (4, 1, 512, 512), (4, 1, 512)
    scales = 1.0, 512**-0.5, 0.3
    drawn = [s * torch.randn(shape, generator=draw, device="cuda") for s, shape in zip(scales, shapes, strict=True)]
    found = []
    for backend in ("cuda", "wgmma", "wgmma_both", "wgmma_partial"):
        leaves = [x.to(torch.bfloat16).requires_grad_() for x in drawn]
        states = rnn(*leaves, cell="lstm", backend=backend)[0]
        states[0].float().square().mean().backward()  # type: ignore[no-untyped-call]
        found.append([states.detach(), *(leaf.grad for leaf in leaves)])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert one is not None
            assert other is not None
            assert (one.float() - other.float()).norm() <= 0.02 * one.float().norm()


@pytest.mark.parametrize("layer", [("lstm", 256, 32, 1, 768), ("lstm", 100, 35, 2, 256), ("gru", 64, 13, 1, 256)])
def test_the_backward_loop_is_right_and_the_same_each_time(layer: tuple[str, int, int, int, int]) -> None:
    cell, *sizes = layer
    gpu = gpu_of(torch.device("cuda"))
    assert gpu is not None
    workload = workload_of(cell, tuple(sizes), "bf16", "backward")  # type: ignore[arg-type]
    spec = BY_CELL[workload.operation]
    case = Case(spec, gpu, workload, device="cuda")
    for fixed in ({}, {"probe": 0}, {"tile_batch": 32}, {"units": 16, "tile_batch": 64, "window": 16, "chunk": 8}):
        config = choose_kernel(spec, gpu, spec.planned(workload), fixed={"recompute": 0, **fixed}).config
        launches = case.launches(config)
        assert case.check(launches) <= 1
        first = {name: output.clone() for name, output in case.outputs.items()}
        for _ in range(REPEATS):
            assert case.check(launches) <= 1
            assert all(torch.equal(first[name], output) for name, output in case.outputs.items())


@pytest.mark.parametrize("layer", [("lstm", 256, 32, 1, 768), ("lstm", 100, 35, 2, 256), ("gru", 64, 13, 1, 256)])
def test_the_loop_by_partial_sums_is_right_and_the_same_each_time(layer: tuple[str, int, int, int, int]) -> None:
    cell, *sizes = layer
    gpu = gpu_of(torch.device("cuda"))
    assert gpu is not None
    workload = workload_of(cell, tuple(sizes), "bf16", "backward")  # type: ignore[arg-type]
    spec = next(spec for spec in PARTIAL if spec.operation == workload.operation)
    case = Case(spec, gpu, workload, device="cuda")
    for fixed in ({}, {"first": 0}, {"depth_groups": 2}, {"tile_batch": 32}):
        config = choose_kernel(spec, gpu, spec.planned(workload), fixed={"recompute": 0, **fixed}).config
        launches = case.launches(config)
        assert case.check(launches) <= 1
        first = {name: output.clone() for name, output in case.outputs.items()}
        for _ in range(REPEATS):
            assert case.check(launches) <= 1
            assert all(torch.equal(first[name], output) for name, output in case.outputs.items())


def test_a_layer_is_left_to_it_and_can_be_captured_in_a_graph() -> None:
    draw = torch.Generator(device="cuda").manual_seed(1)
    shapes = (256, 12, 4, 1, 768), (4, 1, 768, 768)
    wx, r = (torch.randn(shape, generator=draw, device="cuda").to(torch.bfloat16) for shape in shapes)
    r *= 768**-0.5
    assert decide_for("lstm", wx, "auto", "forward", recompute=True).choice.kernel == "lstm.wgmma"
    with torch.no_grad():
        expected = rnn(wx, r, cell="lstm")[0]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            rnn(wx, r, cell="lstm")
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = rnn(wx, r, cell="lstm")[0]
        for _ in range(REPEATS):
            captured.zero_()
            graph.replay()
            assert torch.equal(captured, expected)
