"""`axpy` and `gemv`: spaces, kernels in the interpreter, compiled kernels, operators on the CPU, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

import constrint
from constrint import load_gpu
from constrint.choose import Request, decide
from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.kernels.axpy.launch import collapsed
from constrint.kernels.axpy.op import _is_apart
from constrint.kernels.gemv.launch import lies_by_columns, width_of
from constrint.kernels.registry import load_spec
from constrint.select.workload import Workload
from constrint.solve import enumerate_space

INF, NAN = float("inf"), float("nan")
#: The public functions; some tests give them what their types forbid.
AXPY: Any = constrint.axpy
GEMV: Any = constrint.gemv


def test_the_kernels_compute_ragged_sizes_splits_strides_and_batches() -> None:
    cases = {"gemv": {"kernel": "gemv", "seed": 1, "number": 40}, "axpy": {"kernel": "axpy", "seed": 2, "number": 20}}
    assert interpreted("tests.support.interpreted_vectors:misses", cases) == {"gemv": [], "axpy": []}


@pytest.mark.parametrize("name", ["h200", "mi300x"])
@pytest.mark.parametrize(
    ("kernel", "sizes", "dtype", "options"),
    [
        ("gemv.triton", {"m": 4096, "n": 4096}, "bf16", {}),
        ("gemv.triton", {"m": 64, "n": 100_001}, "fp32", {"transposed": 1, "beta": 1}),
        ("gemv.triton", {"m": 1000, "n": 1001}, "fp8", {"batch": 3}),
        ("axpy", {"n": 1_000_002}, "fp64", {}),
    ],
)
def test_the_best_configuration_keeps_its_rules_and_compiles(
    name: str, kernel: str, sizes: dict[str, int], dtype: str, options: dict[str, int]
) -> None:
    gpu, spec = load_gpu(name), load_spec(kernel)
    workload = Workload(spec.operation, sizes, dtype, options)
    request = Request(kernel, workload, gpu)
    config = decide(request).config
    element = {"bf16": 2, "fp32": 4, "fp8": 1, "fp64": 8}[dtype]
    contiguous = sizes["m"] if options.get("transposed") else sizes["n"]
    if kernel == "axpy":
        assert contiguous % config["vector"] == 0
    else:
        assert contiguous * element % (config["vector"] * element) == 0
        assert (config["splits"] - 1) * config["tile_n"] < sizes["n"]
    compiled = spec.compile(gpu, workload, config)
    assert compiled.spill_bytes == 0
    assert compiled.smem_bytes <= gpu.sm.max_smem_bytes_per_block


def test_rows_that_start_anywhere_are_read_element_by_element() -> None:
    spec, gpu = load_spec("gemv.triton"), load_gpu("h200")
    columns, _ = enumerate_space(spec.problem(gpu, Workload("gemv", {"m": 64, "n": 101}, "fp32", {}))).project(
        ["vector"]
    )
    assert set(columns["vector"].tolist()) == {1}
    aligned = Workload("gemv", {"m": 64, "n": 101}, "fp32", {"width": 16})
    columns, _ = enumerate_space(spec.problem(gpu, aligned)).project(["vector"])
    assert 4 in set(columns["vector"].tolist())
    with pytest.raises(UnsupportedError, match="power of two"):
        spec.check_dtype(gpu, Workload("gemv", {"m": 64, "n": 101}, "fp32", {"width": 3}))


def test_layout_and_alignment_are_read_off_strides() -> None:
    a = torch.empty(8, 100)
    assert (lies_by_columns(a), width_of(a)) == (False, 16)
    assert (lies_by_columns(a.T), width_of(a.T)) == (True, 16)
    assert width_of(a[:, :99]) == 16
    assert width_of(torch.empty(8, 99)) == 4
    assert width_of(a[:, 1:]) == 4
    assert width_of(a[:, ::2]) == 4
    assert collapsed((3, 4, 5), (40, 5, 1), (20, 5, 1)) == ([3, 20], [[40, 1], [20, 1]])
    assert collapsed((), (), ()) == ([1], [[1], [1]])


def test_gemv_is_torch_s_product_with_gradients() -> None:
    torch.manual_seed(0)
    a, x = torch.randn(3, 5, 7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    y, g = torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(GEMV(a, x, y=y, alpha=2, beta=0.5), 2 * a @ x + 0.5 * y)
    torch.testing.assert_close(GEMV(a, g, transposed=True), (a.mT @ g[..., None])[..., 0])
    leaves = [t.requires_grad_() for t in (a, x, y)]
    assert torch.autograd.gradcheck(lambda a, x, y: GEMV(a, x, y=y, alpha=1.5, beta=-0.5), leaves)
    assert torch.autograd.gradgradcheck(lambda a, x: GEMV(a, x), (a[0].detach().requires_grad_(), x))
    torch.library.opcheck(torch.ops.constrint.gemv.default, (a.detach(), x.detach(), None, 1.0, 0.0, False))


def test_gemv_of_nothing_and_of_infinities() -> None:
    y = torch.tensor([1.0, NAN])
    assert GEMV(torch.empty(0, 3), torch.ones(3)).shape == (0,)
    torch.testing.assert_close(GEMV(torch.empty(2, 0), torch.empty(0)), torch.zeros(2))
    zero_columns = GEMV(torch.empty(2, 0), torch.empty(0), y=y, beta=2.0)
    torch.testing.assert_close(zero_columns, 2 * y, equal_nan=True)
    # As in BLAS: what has a factor of zero is not read.
    torch.testing.assert_close(GEMV(torch.ones(2, 3), torch.ones(3), y=y), torch.full((2,), 3.0))
    torch.testing.assert_close(GEMV(torch.full((2, 3), INF), torch.ones(3), alpha=0.0), torch.zeros(2))
    infinite = GEMV(torch.tensor([[1.0, INF], [INF, -INF]]), torch.ones(2))
    assert infinite[0] == INF
    assert infinite[1].isnan()
    eight = torch.randn(4, 6).to(torch.float8_e4m3fn)
    x = torch.randn(6, dtype=torch.bfloat16)
    torch.testing.assert_close(GEMV(eight, x), (eight.float() @ x.float()).bfloat16())


def test_axpy_is_a_sum_with_gradients_in_place_or_not() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64).T
    torch.testing.assert_close(AXPY(2, x, y), 2 * x + y)
    before = y.clone()
    assert AXPY(3.0, x, y, inplace=True) is y
    torch.testing.assert_close(y, 3 * x + before)
    out = torch.empty(4, 6, dtype=torch.float64)
    assert AXPY(3.0, x, y, out=out) is out
    torch.testing.assert_close(out, 3 * x + y)
    torch.testing.assert_close(AXPY(1.0, x, x, out=x.clone()), 2 * x)
    alpha = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    leaves = [alpha, x.requires_grad_(), y.requires_grad_()]
    assert torch.autograd.gradcheck(AXPY, leaves)
    torch.library.opcheck(torch.ops.constrint.axpy.default, (2.0, None, x.detach(), y.detach()))


A, X, SQUARE = torch.ones(3, 4), torch.ones(4), torch.ones(3, 3)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: GEMV([1.0], X), TypeError, "a must be a tensor"),
        (lambda: GEMV(A, torch.ones(3)), RuntimeError, "has 4 columns, x has 3"),
        (lambda: GEMV(A, X, transposed=True), RuntimeError, r"a\^T has 3 columns"),
        (lambda: GEMV(A, X.double()), RuntimeError, "one dtype"),
        (lambda: GEMV(A.long(), X.long()), RuntimeError, "one dtype"),
        (lambda: GEMV(A, X, beta=1.0), UsageError, "needs y"),
        (lambda: GEMV(A, X, y=torch.ones(4), beta=1.0), RuntimeError, "3 rows"),
        (lambda: GEMV(A, X, alpha="1"), TypeError, "alpha must be a real number"),
        (lambda: GEMV(A, X, kernel="cublas"), UnknownNameError, "cublas"),
        (lambda: GEMV(A, X, config={"tile_m": 1}), UsageError, "config is for"),
        (
            lambda: GEMV(A, X, kernel="triton", config="tile_m=1"),
            UsageError,
            "whole numbers by parameter, got 'tile_m=1'",
        ),
        (lambda: AXPY(1, X, X, kernel="triton", config={"tile": 1.5}), UsageError, "by parameter, got tile=1.5"),
        (lambda: GEMV(A.expand(2, 3, 4), X.expand(5, 4)), RuntimeError, "do not broadcast"),
        (lambda: AXPY(1j, X, X), TypeError, "real number"),
        (lambda: AXPY(1, X, torch.ones(1)), RuntimeError, "one shape"),
        (lambda: AXPY(1, X, X.half()), RuntimeError, "dtype"),
        (lambda: AXPY(1, X.int(), X.int()), RuntimeError, "fp16, bf16"),
        (lambda: AXPY(torch.ones(2), X, X), RuntimeError, "one floating element"),
        (lambda: AXPY(1, X, X.clone(), out=X.clone(), inplace=True), UsageError, "not into both"),
        (lambda: AXPY(1, A, X.expand(3, 4), inplace=True), RuntimeError, "several elements in one place"),
        (lambda: AXPY(1, A.view(-1)[:8], A.view(-1)[4:], inplace=True), RuntimeError, "overlaps x"),
        (lambda: AXPY(1, SQUARE, SQUARE, out=SQUARE.T), RuntimeError, "overlaps x"),
        (lambda: AXPY(1, X.clone().requires_grad_(), X.clone(), inplace=True), RuntimeError, "no gradients"),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_a_compiled_function_sees_one_operator() -> None:
    def both(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = AXPY(2.0, GEMV(a, x), torch.ones(3))
        return total

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(A, X), both(A, X))


def test_the_library_and_the_kernel_compete() -> None:
    decision = GEMV.why(torch.empty(64, 64), torch.empty(64), gpu="h200")
    assert {program.name for program in decision.programs} == {"gemv.triton", "gemv.library"}
    named = GEMV.why(torch.empty(64, 64), torch.empty(64), kernel="library", gpu="h200")
    assert named.program.name == "gemv.library"
    eight = GEMV.why(torch.empty(64, 64).to(torch.float8_e4m3fn), torch.empty(64), gpu="h200")
    assert eight.program_of("gemv.library").refusal


def test_names_of_the_package_are_searched_for_once() -> None:
    found = constrint.axpy
    assert vars(constrint)["axpy"] is found


def test_vectors_that_share_an_element_are_not_apart() -> None:
    memory = torch.zeros(40)
    assert _is_apart(memory[:10], memory[10:20])
    assert _is_apart(memory[10:20], memory[:10])
    assert not _is_apart(memory[:10], memory[9:19])
    assert not _is_apart(memory[9:19], memory[:10])
    assert not _is_apart(memory[0:20:2], memory[1:21:2])
    assert _is_apart(memory[:10], memory[:10])
    assert not _is_apart(memory[:10], memory[0:20:2])
