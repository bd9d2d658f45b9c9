"""`constrint.kernels.gemm.matmul` on CPU tensors: torch.matmul's shapes and errors, epilogues, gradients, compilation.

The kernels behind it are in `test_interpreted.py`; what is the same on a GPU is in `test_matmul_gpu.py`.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.reference import ACTIVATIONS

SHAPES = [
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((3, 1, 2, 4), (5, 4, 6)),
    ((7, 3, 4), (1, 4, 5)),
    ((0, 4), (4, 3)),
    ((3, 0), (0, 4)),
    ((2, 3, 0), (2, 0, 5)),
    ((0, 3, 4), (4, 5)),
    ((0, 3, 4), (0, 4, 5)),
]


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_shapes_are_those_of_torch(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = randn(*a), randn(*b, seed=1)
    torch.testing.assert_close(matmul(left, right), torch.matmul(left, right))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 3), max_size=3), st.lists(st.integers(1, 3), max_size=3), st.data())
def test_any_shapes_do_what_torch_does(batch_a: list[int], batch_b: list[int], data: Any) -> None:
    m, k, n = (data.draw(st.integers(0, 4)) for _ in range(3))
    inner = k if data.draw(st.booleans()) else data.draw(st.integers(0, 4))
    a, b = randn(*batch_a, m, k), randn(*batch_b, inner, n, seed=1)
    try:
        expected = torch.matmul(a, b)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="matmul: "):
            matmul(a, b)
    else:
        torch.testing.assert_close(matmul(a, b), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_sums_are_wide_and_rounded_once(dtype: torch.dtype) -> None:
    a, b = randn(33, 300, dtype=dtype), randn(300, 17, dtype=dtype, seed=1)
    exact = a.double() @ b.double()
    step = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}[dtype]
    bound = 300 * 2.0**-24 * (a.double().abs() @ b.double().abs()) + step * exact.abs()
    assert bool(((matmul(a, b).double() - exact).abs() <= 1.01 * bound).all())
    assert matmul(a, b).dtype == dtype
    assert matmul(a, b, out_dtype=torch.float32).dtype == torch.float32


def test_integers_are_exact_and_wrap_like_32_bits() -> None:
    a = torch.full((2, 200000), 127, dtype=torch.int8)
    out = matmul(a, a.T)
    assert out.dtype == torch.int32
    assert out[0, 0] == (200000 * 127 * 127) - 2**32 * round(200000 * 127 * 127 / 2**32)
    scaled = matmul(a, a.T, alpha=2.0**-20, out_dtype=torch.float32)
    assert scaled.dtype == torch.float32


def test_fp8_gives_bf16() -> None:
    a, b = randn(8, 64).to(torch.float8_e4m3fn), randn(64, 8, seed=1).to(torch.float8_e4m3fn)
    out = matmul(a, b)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), a.float() @ b.float(), rtol=2.0**-8, atol=1e-5)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_epilogue_is_what_it_says(activation: str | None) -> None:
    a, b, bias, c = randn(2, 3, 4), randn(2, 4, 5, seed=1), randn(5), randn(3, 5, seed=2)
    expected = 0.5 * (a @ b) + bias - 2.0 * c
    if activation:
        expected = ACTIVATIONS[activation](expected)
    found = matmul(a, b, bias, alpha=0.5, beta=-2.0, c=c, activation=activation)
    torch.testing.assert_close(found, expected)


def test_c_is_not_read_where_beta_is_zero() -> None:
    a, b = randn(3, 4), randn(4, 5)
    c = torch.full((3, 5), float("nan"), dtype=torch.float64)
    assert bool(matmul(a, b, c=c).isfinite().all())
    assert bool(matmul(a, b, c=c, beta=1.0).isnan().all())


def test_no_depth_leaves_the_epilogue() -> None:
    a, b = torch.empty(3, 0), torch.empty(0, 5)
    bias = torch.arange(5.0)
    torch.testing.assert_close(matmul(a, b, bias), bias.expand(3, 5))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_non_finite_values_spread_as_in_torch(value: float, activation: str | None) -> None:
    a, b = randn(4, 6, dtype=torch.float32), randn(6, 5, dtype=torch.float32, seed=1)
    a[1, 2] = value
    b[3, 4] = value
    expected = a @ b
    if activation:
        expected = ACTIVATIONS[activation](expected)
    torch.testing.assert_close(matmul(a, b, activation=activation), expected, equal_nan=True)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.T.contiguous().T,
        lambda t: t.repeat(1, 2)[:, : t.shape[1]],
        lambda t: t.repeat_interleave(2, 0)[::2],
        lambda t: t[:1].expand(t.shape),
    ],
    ids=["columns", "padded rows", "every second row", "expanded"],
)
def test_any_strides(view: Any) -> None:
    a, b = view(randn(6, 8)), view(randn(8, 5, seed=1))
    torch.testing.assert_close(matmul(a, b), a.contiguous() @ b.contiguous())


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((randn(3, 4), randn(5, 6)), {}, RuntimeError, r"a's last size and b's second to last .* 4 and 5"),
        ((randn(2, 3, 4), randn(3, 4, 5)), {}, RuntimeError, r"batches of a and b .*\(2,\) and \(3,\)"),
        ((randn(3, 4), randn(4, 5).float()), {}, RuntimeError, r"same dtype, got torch.float64 and torch.float32"),
        ((randn(3, 4), torch.empty(4, 5, device="meta")), {}, RuntimeError, r"a is on cpu and b on meta"),
        ((randn(3, 4), randn(4, 5), randn(4)), {}, RuntimeError, r"bias must have shape \(5,\).*got \(4,\)"),
        ((randn(3, 4), randn(4, 5)), {"c": randn(4, 5), "beta": 1.0}, RuntimeError, r"c of shape \(4, 5\) cannot"),
        ((torch.tensor(1.0), randn(4, 5)), {}, RuntimeError, r"a must have at least one dimension|same dtype"),
        (([1.0], randn(4, 5)), {}, TypeError, r"a must be a tensor, got list"),
        ((randn(3, 4), randn(4, 5)), {"c": 1.0}, TypeError, r"c must be a tensor, got float"),
        ((randn(3, 4).long(), randn(4, 5).long()), {}, TypeError, r"a is torch.int64; supported are float16"),
        ((randn(3, 4), randn(4, 5)), {"activation": "swish"}, ValueError, r"unknown activation 'swish'. "),
        ((randn(3, 4), randn(4, 5)), {"out_dtype": torch.int32}, TypeError, r"out_dtype torch.int32 of torch.float64"),
        ((randn(3, 4), randn(4, 5)), {"out_dtype": "fp16"}, TypeError, r"out_dtype must be a torch.dtype, got str"),
        ((randn(3, 4).char(), randn(4, 5).char()), {"alpha": 0.5}, TypeError, r"need a floating out_dtype"),
    ],
)
def test_bad_input_is_named(arguments: Any, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        matmul(*arguments, **options)


def test_sizes_beyond_32_bits_are_refused() -> None:
    long = torch.empty(1, dtype=torch.float16).expand(1, 2**31)
    with pytest.raises(RuntimeError, match=r"sizes go up to 2147483647, but a is \(1, 2147483648\)"):
        matmul(long, long.T)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_gradients(activation: str | None) -> None:
    tensors = [randn(2, 3, 4), randn(2, 4, 5, seed=1), randn(5), randn(3, 5, seed=2)]
    tensors = [t.requires_grad_() for t in tensors]

    def call(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return matmul(a, b, bias, alpha=0.5, beta=2.0, c=c, activation=activation)

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


def test_gradients_are_only_computed_where_they_are_needed() -> None:
    a, b = randn(3, 4).requires_grad_(), randn(4, 5, seed=1)
    torch.autograd.backward(matmul(a, b, activation="relu").sum())
    assert a.grad is not None
    assert b.grad is None


# torch looks at the gradients of its own copies, and hides its warning where warnings are no errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_operator_passes_opcheck(activation: str | None) -> None:
    a, b, bias, c = randn(2, 3, 4), randn(2, 4, 5, seed=1), randn(5), randn(2, 3, 5, seed=2)
    for t in (a, b, bias, c):
        t.requires_grad_()
    arguments = (a, b, bias, c, 0.5, 2.0, activation, torch.float64)
    found = torch.library.opcheck(torch.ops.constrint.gemm.default, arguments)
    assert set(found.values()) == {"SUCCESS"}


def test_compiles_into_one_graph_with_one_node() -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def layer(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return matmul(x, w.T, bias, activation="gelu") * 2.0

    x, w, bias = randn(2, 6, 4), randn(5, 4, seed=1), randn(5)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x, w, bias), layer(x, w, bias))
    assert len(graphs) == 1
    assert len(re.findall(r"constrint\.gemm", graphs[0].code)) == 1


def test_compiles_with_gradients_and_dynamic_shapes() -> None:
    compiled = torch.compile(
        lambda a, b: matmul(a, b, activation="relu"), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for m in (3, 5, 8):
        a, b = randn(m, 4).requires_grad_(), randn(4, 5, seed=1).requires_grad_()
        torch.autograd.backward(compiled(a, b).sum())
        expected = (a.detach() @ b.detach() > 0).double() @ b.detach().T
        torch.testing.assert_close(a.grad, expected)


def test_a_compiled_product_with_gradients_stores_its_sum_and_multiplies_three_times() -> None:
    """The activation and its gradient are torch's own operations there, which its compiler fuses."""
    graphs: list[str] = []

    def noted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph.code)
        return make_boxed_func(graph.forward)

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return matmul(x, w.T, activation="gelu")

    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    x, w = randn(6, 4).requires_grad_(), randn(5, 4, seed=1).requires_grad_()
    backend: Any = aot_autograd(fw_compiler=noted, bw_compiler=noted)
    compiled: Any = torch.compile(layer, fullgraph=True, backend=backend)
    found = torch.autograd.grad(compiled(x, w).sum(), (x, w))
    expected = torch.autograd.grad(torch.nn.functional.gelu(x @ w.T).sum(), (x, w))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    forward, backward = graphs
    assert (forward.count("constrint.gemm"), backward.count("constrint.gemm")) == (1, 2)
