"""The GPU back-ends against the fp64 reference on the GPU of this machine, and what only a GPU has: capture, streams.

Run with several processes, since most of the time goes into compiling: `pytest -n 12 -m gpu tests/flashrnn`.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from constrint.flashrnn import GRU, LSTM, SLSTM, plan, rnn
from constrint.kernels.rnn.cells import BUILT_IN
from tests.support import rnn_cases as cases
from tests.support.needs import needs_hopper, needs_nvrtc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]

BACKENDS = (pytest.param("cuda", marks=needs_nvrtc), "triton", "alternating")
#: Those that take operands of 16 bits.
IN_16_BITS = (*BACKENDS, pytest.param("wgmma", marks=[needs_nvrtc, needs_hopper]))
SIZES = {"small": (3, 9, 2, 16), "heads": (17, 130, 3, 48), "wide": (33, 40, 1, 320), "padded": (4, 20, 2, 50)}


@pytest.mark.parametrize("optional", ["", "bslr"], ids=["plain", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("cell", BUILT_IN)
@pytest.mark.parametrize("backend", IN_16_BITS)
def test_right_for_every_cell_and_dtype(backend: str, cell: str, dtype: torch.dtype, optional: str) -> None:
    if backend == "wgmma" and dtype == torch.float32:
        pytest.skip("takes operands of 16 bits")
    case = cases.make_case(cell, SIZES["small"], dtype, 1, optional, device="cuda")
    cases.check(case, dtype, backend=backend, rounded_operands=True)


@pytest.mark.parametrize("size", ["heads", "wide", "padded"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm"])
@pytest.mark.parametrize("backend", IN_16_BITS)
def test_right_on_other_shapes(backend: str, cell: str, size: str) -> None:
    case = cases.make_case(cell, SIZES[size], torch.bfloat16, 2, "bsl", device="cuda")
    cases.check(case, torch.bfloat16, backend=backend, rounded_operands=True)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("backend", IN_16_BITS)
def test_right_on_wide_heads_of_many_steps(backend: str, cell: str) -> None:
    case = cases.make_case(cell, (16, 300, 1, 768), torch.bfloat16, 3, "b", device="cuda")
    cases.check(case, torch.bfloat16, backend=backend, rounded_operands=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clip_recompute_and_determinism(backend: str) -> None:
    case = cases.make_case("lstm", SIZES["heads"], torch.float32, 4, "bslr", device="cuda")
    options: dict[str, Any] = {"gradient_recurrent_clip": 0.05}
    exact = case.run(torch.float64, backend="reference", **options)[1]
    first = case.run(backend=backend, **options)
    again = case.run(backend=backend, **options)
    assert all(torch.equal(a, b) for a, b in zip(first[0] + first[1], again[0] + again[1], strict=True))
    recomputed = case.run(backend=backend, recompute=True, **options)[1]
    for name, gradient, other, right in zip(case.tensors, first[1], recomputed, exact, strict=True):
        cases.assert_within(gradient, right, 1e-4, name)
        cases.assert_within(other, right, 1e-4, f"{name}, recomputed")


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_padding_is_harmless(backend: str) -> None:
    case = cases.make_case("gru", (3, 6, 1, 16), torch.float32, 5, "bs", device="cuda")
    case.lengths = torch.tensor([6, 2, 0])
    case.tensors["wx"][1, 2:] = case.tensors["wx"][2] = float("nan")
    results, gradients = case.run(backend=backend)
    assert all(x.isfinite().all() for x in (*results, *gradients))
    assert not gradients[0][1, 2:].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_sizes_and_lengths_of_time_in_a_row(backend: str) -> None:
    for seed, (batch, time) in enumerate(((5, 40), (1, 200), (16, 40), (5, 129), (2, 1), (5, 40))):
        case = cases.make_case("lstm", (batch, time, 2, 32), torch.float32, seed, "l", device="cuda")
        cases.check(case, torch.float32, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("ours", "theirs"), [(LSTM, nn.LSTM), (GRU, nn.GRU)], ids=["lstm", "gru"])
def test_modules_equal_torch_nn(ours: Any, theirs: Any, backend: str) -> None:
    """Against torch's own on the CPU, where fp32 is fp32."""
    torch.manual_seed(1)
    right = theirs(24, 64, num_layers=2, bidirectional=True)
    module = ours(24, 64, num_layers=2, bidirectional=True, backend=backend)
    module.load_state_dict(right.state_dict())
    x = torch.randn(30, 5, 24)
    expected = right(x)[0]
    found = module.cuda()(x.cuda())[0]
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
    expected.square().sum().backward()
    found.square().sum().backward()
    for name, parameter in right.named_parameters():
        gradient = getattr(module, name).grad.cpu()
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5 * scale, msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_can_be_captured_in_a_cuda_graph(backend: str) -> None:
    module = SLSTM(32, 64, num_heads=2, batch_first=True, backend=backend).cuda()
    x = torch.randn(4, 50, 32, device="cuda")

    def step() -> list[torch.Tensor]:
        loss = module(x)[0].square().sum()
        return [loss.detach(), *torch.autograd.grad(loss, list(module.parameters()))]

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(captured, step(), rtol=1e-4, atol=1e-4)


# torch's inductor imports what torch deprecates, and advises a lower precision than this test is about.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_as_one_graph(backend: str) -> None:
    module = LSTM(32, 64, batch_first=True, backend=backend).cuda()
    x = torch.randn(4, 20, 32, device="cuda")
    compiled = torch.compile(module, fullgraph=True)
    found, expected = compiled(x)[0], module(x)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(y.sum(), list(module.parameters())) for y in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


def test_autocast_and_streams() -> None:
    module = LSTM(32, 64, batch_first=True).cuda()
    x = torch.randn(4, 20, 32, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        here, _ = module(x)
    assert here.dtype == torch.bfloat16
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.autocast("cuda", dtype=torch.bfloat16):
        there, _ = module(x)
    torch.cuda.synchronize()
    assert torch.equal(here, there)


def test_double_precision_and_auto() -> None:
    case = cases.make_case("lstm", SIZES["heads"], torch.float64, 6, "b", device="cuda")
    cases.check(case, torch.float64)
    case = cases.make_case("lstm", (16, 64, 12, 64), torch.bfloat16, 7, "", device="cuda")
    cases.check(case, torch.bfloat16, rounded_operands=True)
    found = plan("lstm", batch=16, time=1024, heads=12, head_dim=64)
    print(found)
    assert found.program.name in ("cuda", "triton")
    assert plan("lstm", batch=16, time=1024, heads=12, head_dim=64, dtype="fp64").program.name == "alternating"


def test_lengths_on_the_gpu() -> None:
    case = cases.make_case("lstm", (3, 6, 1, 16), torch.float32, 8, device="cuda")
    states, _ = rnn(**case.tensors, lengths=torch.tensor([6, 2, 0], device="cuda"))
    assert not states[:, 1, 2:].any()
    with pytest.raises(ValueError, match=r"lengths must be within 0..T = 0..6, got 7"):
        rnn(**case.tensors, lengths=torch.tensor([6, 2, 7], device="cuda"))


@pytest.mark.parametrize("seed", range(28))
def test_right_on_random_ragged_shapes(seed: int) -> None:
    """B 1..33, T 1..130, N 1..12, D 16..1024; the fused kernels where they take the head, else one GEMM per step."""
    draw = random.Random(seed)
    cell = draw.choice(["lstm", "gru", "slstm", "elman"])
    dtype = draw.choice([torch.float32, torch.bfloat16, torch.float16])
    head_dim = 16 * draw.choice([draw.randint(1, 16), draw.randint(1, 64)])
    heads = draw.randint(1, 12 if head_dim <= 128 else 2)
    size = (draw.randint(1, 33), draw.randint(1, 130), heads, head_dim)
    optional = "".join(letter for letter in "bslr" if draw.random() < 0.5)
    named = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    sizes: dict[str, Any] = {"batch": size[0], "time": size[1], "heads": heads, "head_dim": head_dim}
    backend = plan(cell, **sizes, dtype=named, projected=True).program.name
    print(cell, named, size, optional, backend)
    case = cases.make_case(cell, size, dtype, seed, optional, device="cuda")
    cases.check(case, dtype, backend=backend, rounded_operands=True)


@pytest.mark.parametrize(
    ("cell", "dtype", "size", "optional"),
    [
        ("elman", torch.float16, (33, 122, 1, 240), "lr"),
        ("elman", torch.bfloat16, (9, 50, 1, 400), "s"),
        ("elman", torch.float32, (5, 40, 2, 112), "bslr"),
    ],
    ids=["resets beside 16 bits", "split head with initial states", "fp32 in one program"],
)
def test_what_once_took_more_shared_memory_than_predicted(
    cell: str, dtype: torch.dtype, size: tuple[int, int, int, int], optional: str
) -> None:
    case = cases.make_case(cell, size, dtype, 9, optional, device="cuda")
    cases.check(case, dtype, backend="triton", rounded_operands=True)
