"""`matmul` on the GPU of this machine: dtypes, layouts, shapes, epilogues, batches, gradients, graphs, streams.

Every result is compared, element by element, with the product in fp64 under a bound that follows from the dtype and K.
Run with several processes, since most of the time goes into compiling: `pytest -n 12 -m gpu tests/kernels`.
"""

from __future__ import annotations

import importlib.util
import itertools
from functools import partial
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

import torch

from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.reference import ACTIVATIONS, default_out_dtype

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
#: (batch, M, N, K)
SHAPES = (
    (1, 256, 384, 512),
    (1, 333, 777, 1555),
    (3, 100, 96, 160),
    (2, 70, 45, 33),
    (1, 1, 4096, 512),
    (1, 64, 1024, 8192),
    (1, 2048, 2048, 1024),
)
EPILOGUES = ("none", "bias relu", "all gelu")
#: Relative error of one product: none where it is exact in fp32, a rounded operand for tf32, what is left of three
#: passes for fp32; Hopper aligns 8-bit products and keeps 13 bits of them between promotions.
PRODUCT_ERROR = {"tf32": 2.0**-10, "fp32": 2.0**-20, "fp8": 2.0**-13}
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.int32: 0.0}


def operands(name: str, layout: str, shape: tuple[int, int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Random (batch, M, K) and (batch, K, N), by rows or by columns."""
    batch, m, n, k = shape
    generator = torch.Generator(device="cuda").manual_seed(hash(shape) % 2**31)

    def one(rows: int, columns: int, order: str) -> torch.Tensor:
        stored = (batch, rows, columns) if order == "r" else (batch, columns, rows)
        if name == "int8":
            t = torch.randint(-128, 128, stored, device="cuda", generator=generator, dtype=torch.int8)
        else:
            t = torch.randn(stored, device="cuda", generator=generator).to(DTYPES[name])
        return t if order == "r" else t.transpose(1, 2)

    return one(m, k, layout[0]), one(k, n, layout[1])


@pytest.fixture(autouse=True)
def precision() -> Any:
    """What a test says about fp32 operands holds for it alone."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["".join(pair) for pair in itertools.product("rc", "rc")])
@pytest.mark.parametrize("name", DTYPES)
def test_products(name: str, layout: str, shape: tuple[int, int, int, int], epilogue: str) -> None:
    batch, m, n, k = shape
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    a, b = operands(name, layout, shape)
    kind = default_out_dtype(a.dtype)
    options: dict[str, Any] = {"kernel": "kernels"}
    bias = None
    if epilogue != "none":
        kind = torch.float16 if name == "int8" else kind
        bias = torch.randn(n, device="cuda").to(kind)
        options |= {"activation": epilogue.split()[1], "out_dtype": kind}
    if epilogue.startswith("all"):
        options |= {"alpha": 2.0**-6, "beta": 2.0, "c": torch.randn(batch, m, n, device="cuda").to(kind)}
    if name == "int8" and bias is not None:
        options["alpha"] = 2.0**-12
    out = matmul(a, b, bias, **options)
    alpha = options.get("alpha", 1.0)
    z, sums = alpha * (a.double() @ b.double()), alpha * (a.double().abs() @ b.double().abs())
    if bias is not None:
        z = z + bias.double()
    if "c" in options:
        z = z + 2.0 * options["c"].double()
    terms = sums + (bias.double().abs() if bias is not None else 0.0) + 2.0 * options.get("c", out).double().abs()
    if "activation" in options:
        z = ACTIVATIONS[options["activation"]](z)
    # 1.13 is the steepest slope of gelu; fp32 arithmetic of the epilogue adds a few roundings.
    error = 1.13 * sums * (PRODUCT_ERROR.get(name, 0.0) + k * 2.0**-24 * (name != "int8")) + 2.0**-22 * terms
    least = 2.0**-24 if kind.is_floating_point else 0.0
    # Activations for bf16 may miss by a sixteenth of a unit before they are rounded (`test_activations.py`).
    rounding = ROUNDOFF[kind] * (1.125 if "activation" in options and kind == torch.bfloat16 else 1.0)
    bound = 1.01 * error * kind.is_floating_point + rounding * z.abs() + least
    excess = ((out.double() - z).abs() / bound.clamp(min=1e-300)).nan_to_num(float("inf"))
    assert int((excess > 1).sum()) == 0, f"beyond the bound, the worst by {excess.max().item():.2g}"


def test_gradients_are_those_of_torch_in_fp64() -> None:
    x, w = torch.randn(96, 64, device="cuda"), torch.randn(80, 64, device="cuda")
    bias = torch.randn(80, device="cuda")
    ours = [t.half().requires_grad_() for t in (x, w, bias)]
    exact = [t.detach().double().requires_grad_() for t in ours]
    of_ours = torch.autograd.grad(matmul(ours[0], ours[1].T, ours[2], activation="gelu").float().square().sum(), ours)
    z = torch.nn.functional.gelu(exact[0] @ exact[1].T + exact[2])
    for name, mine, theirs in zip(
        ("x", "w", "bias"), of_ours, torch.autograd.grad(z.square().sum(), exact), strict=True
    ):
        error = (mine.double() - theirs).norm() / theirs.norm()
        assert error < 4e-3, name


# torch's own compiler warns of parts of torch that it still uses.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32 tensor cores")
def test_torch_compile_takes_it_in_one_graph() -> None:
    x, w = torch.randn(96, 64, device="cuda").half(), torch.randn(64, 80, device="cuda").half()

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return matmul(x, w, activation="relu") * 2

    assert torch.equal(torch.compile(layer, fullgraph=True)(x, w), layer(x, w))


def test_split_products_on_several_streams_have_counters_of_their_own() -> None:
    """Captured and not, at once."""
    a, b = torch.randn(16, 16384, device="cuda").half(), torch.randn(16384, 256, device="cuda").half()
    ours = partial(matmul, kernel="kernels")
    expected = ours(a, b)
    torch.cuda.synchronize()
    graphs, outs = [], []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs.append([ours(a, b) for _ in range(20)])
        graphs.append(graph)
    cuda: Any = torch.cuda
    streams = [cuda.Stream() for _ in range(3)]
    for _ in range(10):
        for out in (t for group in outs for t in group):
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            direct = [ours(a, b) for _ in range(20)]
        torch.cuda.synchronize()
        assert all(torch.equal(t, expected) for t in (*outs[0], *outs[1], *direct))


HALF: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}


def test_sizes_of_zero() -> None:
    assert matmul(torch.empty(0, 8, **HALF), torch.empty(8, 4, **HALF)).shape == (0, 4)
    assert bool((matmul(torch.empty(3, 0, **HALF), torch.empty(0, 4, **HALF)) == 0).all())


def test_expanded_and_strided_operands() -> None:
    a, b = torch.randn(40, 64, **HALF), torch.randn(64, 48, **HALF)
    pairs = [
        (a[:1].expand(40, 64), b),
        (a.expand(3, 40, 64), torch.randn(3, 64, 48, **HALF)),
        (a[::2, ::2], b[::2]),
        (torch.randn(40, 65, **HALF)[:, 1:], b),
        (torch.randn(200, **HALF).as_strided((40, 64), (1, 2)), b),
        (torch.randn(2, 40, 3, 64, **HALF)[:, :, 1], torch.randn(2, 64, 48, **HALF)),
    ]
    for x, y in pairs:
        assert torch.allclose(matmul(x, y).double(), x.double() @ y.double(), rtol=1e-3, atol=1e-2), x.stride()


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_spread_as_in_torch(value: float, activation: str | None) -> None:
    x, y = torch.randn(40, 64, **HALF), torch.randn(64, 48, **HALF)
    x[1, 2], y[5, 6] = value, value
    z = (x.float() @ y.float()).half()
    z = ACTIVATIONS[activation](z.float()).half() if activation else z
    actual = matmul(x, y, activation=activation)
    assert torch.allclose(actual.float(), z.float(), rtol=2e-3, atol=2e-2, equal_nan=True)


def test_offsets_beyond_32_bits() -> None:
    tall = torch.randn(70000, 32768, **HALF)
    rows = torch.tensor([0, 35000, 65535, 69999], device="cuda")
    actual, exact = matmul(tall, tall[:64].T)[rows], tall[rows].double() @ tall[:64].T.double()
    assert torch.allclose(actual.double(), exact, rtol=2e-3, atol=0.5)


@pytest.mark.parametrize("kernel", ["auto", "pointer", "descriptor", "cuda"])
def test_a_bias_whose_elements_do_not_follow_each_other(kernel: str) -> None:
    if kernel in ("descriptor", "cuda") and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")
    torch.manual_seed(4)
    a, b = torch.randn(96, 64, device="cuda").bfloat16(), torch.randn(128, 64, device="cuda").bfloat16().T
    wide = torch.full((128, 3), float("nan"), device="cuda", dtype=torch.bfloat16)
    wide[:, 0] = torch.randn(128, device="cuda").bfloat16()
    exact = a.double() @ b.double() + wide[:, 0].double()
    for _ in range(2):
        out = matmul(a, b, wide[:, 0], kernel=kernel)
        assert (out.double() - exact).abs().max() <= 2.0**-6 * exact.abs().max()
