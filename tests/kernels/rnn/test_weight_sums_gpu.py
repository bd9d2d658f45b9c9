"""The sums for the gradients of r and b on the GPU of this machine: right, the same each time, and part of a call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from tests.support.needs import gpu_capability, missing_packages, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch
from torch import Tensor

from constrint.flashrnn import rnn
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.rnn import plans
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.weights.launch import is_one_product
from tests.support.weight_gradients import by_kernel, judge, make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif((gpu_capability() or (0, 0)) < (8, 0), reason="needs a GPU with asynchronous copies"),
]

#: (B, T, N, D): usual ones, parts that are not full, units that fill no tile, one step, and large heads.
SIZES = ((16, 1024, 12, 64), (7, 333, 5, 40), (300, 1, 2, 16), (5, 257, 3, 128), (1, 37, 24, 32), (3, 100, 2, 640))
REPEATS = 50


@pytest.fixture
def gpu() -> GpuModel:
    found = gpu_of(torch.device("cuda"))
    assert found is not None
    return found


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm", "elman"])
def test_the_sums_are_those_of_double_precision_rounded(
    cell: str, dtype: str, sizes: tuple[int, int, int, int], gpu: GpuModel
) -> None:
    for initial, bias in product((False, True), (None, dtype, "float32")):
        case = {"cell": cell, "sizes": sizes, "dtype": dtype, "bias": bias, "initial": initial, "tiles": None}
        over_bound, is_exact, is_repeatable = judge(case | {"seed": len(cell)}, gpu, "cuda")
        assert over_bound <= 1.0, (initial, bias)
        assert is_exact, (initial, bias)
        assert is_repeatable, (initial, bias)


def test_the_results_are_the_same_bit_by_bit_however_often(gpu: GpuModel) -> None:
    problem = make_problem("lstm", SIZES[0], torch.bfloat16, 1, initial=True, whole=False, device="cuda")
    first = by_kernel(problem, gpu, None, torch.bfloat16)
    for _ in range(REPEATS):
        again = by_kernel(problem, gpu, None, torch.bfloat16)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def operands(cell: str, sizes: tuple[int, int, int, int], dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    """Random operands of a layer, on the GPU."""
    kind, (batch, time, heads, dim) = CELLS[cell], sizes
    generator = torch.Generator("cuda").manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda")

    states = 0.5 * draw(kind.num_states, batch, heads, dim)
    if cell == "slstm":
        states[2] = states[2].abs() + 1.0
    return {
        "wx": draw(batch, time, kind.num_gates, heads, dim).to(dtype),
        "r": (draw(kind.num_gates, heads, dim, dim) / dim**0.5).to(dtype),
        "b": 0.3 * draw(kind.num_gates, heads, dim).to(dtype),
        "states": states,
    }


def gradients(cell: str, given: dict[str, Tensor], of: Sequence[str], backend: str = "auto") -> dict[str, Tensor]:
    """Gradients of some operands, by the public call."""
    leaves: dict[str, Any] = {name: x.detach().requires_grad_(name in of) for name, x in given.items()}
    h, last = rnn(**leaves, cell=cell, backend=backend, hidden_only=True)
    loss = h.float().square().mean() + last[0].float().sum()
    found = torch.autograd.grad(loss, [leaves[name] for name in of])
    return dict(zip(of, found, strict=True))


@pytest.mark.parametrize("backend", ["triton", pytest.param("cuda", marks=needs_nvrtc)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("cell", "sizes"), [("lstm", (9, 130, 3, 64)), ("gru", (16, 57, 2, 128))])
def test_a_call_gives_what_products_after_it_give(
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: torch.dtype,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    gpu: GpuModel,
) -> None:
    assert is_one_product(sizes[2], sizes[3], 2, gpu)
    for left_out in ((), ("b",), ("states",), ("b", "states")):
        given = {name: x for name, x in operands(cell, sizes, dtype).items() if name not in left_out}
        found = gradients(cell, given, list(given), backend)
        with monkeypatch.context() as patched:
            patched.setattr(plans, "_are_summed", lambda *_: False)
            products = gradients(cell, given, list(given), backend)
        for name, other in products.items():
            if name in ("wx", "states"):
                assert torch.equal(found[name], other), name
            else:
                error = (found[name].double() - other.double()).norm()
                assert error <= (2.0**-7 if dtype == torch.bfloat16 else 2.0**-10) * other.double().norm(), name


def test_a_gradient_that_is_not_wanted_changes_no_other() -> None:
    given = operands("lstm", (5, 33, 4, 32), torch.bfloat16)
    whole = gradients("lstm", given, list(given))
    for of in (["wx"], ["r"], ["b"], ["wx", "b"], ["r", "states"], ["wx", "r"]):
        some = gradients("lstm", given, of)
        for name in of:
            close = 2.0**-7 * whole[name].double().norm() if name == "b" else 0.0
            assert (some[name].double() - whole[name].double()).norm() <= close, (of, name)


def test_a_captured_call_on_another_stream_gives_what_it_gives_outside() -> None:
    given = operands("lstm", (6, 40, 3, 64), torch.bfloat16)
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        gradients("lstm", given, ["r", "b"])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradients("lstm", given, ["r", "b"])
    for seed in range(3):
        for name, x in operands("lstm", (6, 40, 3, 64), torch.bfloat16, seed).items():
            given[name].copy_(x)
        graph.replay()
        expected = gradients("lstm", given, ["r", "b"])
        torch.cuda.synchronize()
        assert all(torch.equal(captured[name], expected[name]) for name in expected), seed


# torch's inductor imports what torch deprecates, and advises a lower precision than this test is about.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32 tensor cores")
def test_a_compiled_program_gives_the_same() -> None:
    given = operands("gru", (6, 40, 3, 64), torch.bfloat16)
    leaves = [given[name].requires_grad_() for name in ("wx", "r", "b")]

    def loss(wx: Tensor, r: Tensor, b: Tensor) -> Tensor:
        return rnn(wx, r, b, cell="gru", hidden_only=True)[0].float().square().sum()

    compiled: Any = torch.compile(loss, fullgraph=True)
    found, expected = (torch.autograd.grad(call(*leaves), leaves) for call in (compiled, loss))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_batch_sizes_and_lengths_never_seen_compile_nothing() -> None:
    from constrint.kernels.rnn.weights.kernel import parts_kernel, sum_kernel

    def variants() -> list[int]:
        return [
            sum(len(caches[0]) for caches in kernel.device_caches.values()) for kernel in (parts_kernel, sum_kernel)
        ]

    gradients("lstm", operands("lstm", (16, 20, 2, 72), torch.bfloat16), ["r", "b"])
    number = variants()
    assert min(number) > 0, "the kernels are part of the call"
    for batch, time in ((12, 20), (16, 33), (9, 7), (11, 64), (10, 1), (64, 1024)):
        gradients("lstm", operands("lstm", (batch, time, 2, 72), torch.bfloat16), ["r", "b"])
        assert variants() == number, (batch, time)
