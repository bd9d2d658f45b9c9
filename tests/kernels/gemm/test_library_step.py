"""What plans ask cuBLAS for is the product of the caller's tensors, however they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import msgspec
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.first_call import plan_of_call
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.library import planned
from constrint.kernels.gemm.library import planned as library_step
from constrint.kernels.gemm.library.fused import Matrix, matrix_of
from constrint.kernels.gemm.library.launch import LibraryLaunch
from constrint.kernels.gemm.library.planned import step_of
from constrint.kernels.launch.plan import driver
from constrint.kernels.launch.plan.recipe import ProductStep, Recipe
from constrint.kernels.launch.plan.shape import NotPlannedError

H200 = load_gpu("h200")
MACHINE = Machine.of(H200)
TYPES = {2: torch.float16, 14: torch.bfloat16, 0: torch.float32}


def memory_of(tensor: Tensor) -> Tensor:
    """All that lies from a tensor's first element on, to the end of its memory."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((size,), (1,))


def multiply(step: ProductStep, slots: Sequence[Tensor | None]) -> None:
    """As cublasGemmEx would: matrices by columns, each element at row + column * stride."""
    m, n, k = step.sizes
    shapes = [(m, k), (k, n), (m, n)]
    seen = []
    for at, ((rows, columns), slot, stride, kind) in enumerate(
        zip(shapes, step.slots, step.strides, step.types, strict=True)
    ):
        tensor = slots[slot]
        assert tensor is not None
        assert tensor.dtype == TYPES[kind]
        is_turned = at < 2 and step.operations[at] == 1
        by_columns = (columns, rows) if is_turned else (rows, columns)
        assert stride >= by_columns[0], "a library refuses columns that overlap"
        view = memory_of(tensor).as_strided(by_columns, (1, stride))
        seen.append(view.t() if is_turned else view)
    a, b, c = seen
    c.copy_((a.double() @ b.double()).to(c.dtype))


def laid(rows: int, columns: int, is_by_rows: bool, gap: int, offset: int, seed: int) -> Tensor:
    """Random numbers in a matrix whose rows or columns have a gap behind them."""
    fast, slow = (columns, rows) if is_by_rows else (rows, columns)
    memory = torch.randn(offset + slow * (fast + gap), generator=torch.Generator().manual_seed(seed)).half()
    matrix = memory.as_strided((slow, fast), (fast + gap, 1), offset)
    return matrix if is_by_rows else matrix.t()


def call_of(a: Tensor, b: Tensor, out: Tensor, epilogue: Epilogue | None = None) -> GemmCall:
    return GemmCall(a[None], b[None], out[None], MACHINE, epilogue or Epilogue(), "ieee")


layouts = st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 3))
sizes = st.one_of(st.integers(1, 4), st.integers(1, 70))


@given(sizes, sizes, sizes, st.tuples(layouts, layouts), st.booleans())
def test_the_step_is_the_product(
    m: int, n: int, k: int, lies: tuple[tuple[bool, int, int], tuple[bool, int, int]], is_wide: bool
) -> None:
    a, b = laid(m, k, *lies[0], seed=1), laid(k, n, *lies[1], seed=2)
    out = torch.full((m, n), float("nan"), dtype=torch.float32 if is_wide else torch.float16)
    step = step_of(call_of(a, b, out), 0, 1, 4)
    assert step is not None
    multiply(step, (a, b, None, None, out))
    assert torch.equal(out, (a.double() @ b.double()).to(out.dtype))


def test_rows_come_first_where_a_matrix_lies_both_ways() -> None:
    # As torch asks, so that the same kernel is chosen.
    assert matrix_of(torch.empty(5, 7)) == Matrix(True, 7)
    assert matrix_of(torch.empty(7, 5).t()) == Matrix(False, 5)
    assert matrix_of(torch.empty(1, 7)) == matrix_of(torch.empty(7, 1).t()) == Matrix(True, 7)
    assert matrix_of(torch.empty(7, 1)) == matrix_of(torch.empty(1, 7).t()) == Matrix(True, 1)
    assert matrix_of(torch.empty(7, 8)[:, :1]) == Matrix(True, 8)
    assert matrix_of(torch.empty(7, 8)[:1, :3]) == Matrix(True, 3)


@pytest.mark.parametrize(
    "matrix", [torch.empty(5, 14)[:, ::2], torch.empty(7).expand(5, 7), torch.empty(9).as_strided((5, 5), (1, 1))]
)
def test_what_no_blas_takes_has_no_step(matrix: Tensor) -> None:
    assert matrix_of(matrix) is None
    size = matrix.shape[1]
    strided = torch.empty(100).half().as_strided(matrix.shape, matrix.stride())
    square = torch.empty(size, size).half()
    assert step_of(call_of(strided, square, square), 0, 1, 4) is None


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "epilogue"),
    [
        (torch.float32, torch.float32, Epilogue()),
        (torch.int8, torch.int32, Epilogue()),
        (torch.float8_e4m3fn, torch.bfloat16, Epilogue()),
        (torch.float16, torch.float16, Epilogue(alpha=2.0)),
        (torch.float16, torch.float16, Epilogue(bias=torch.zeros(8).half())),
        (torch.float16, torch.float16, Epilogue(source=torch.zeros(1, 8, 8).half(), beta=1.0)),
        (torch.float16, torch.float16, Epilogue(activation="relu")),
    ],
)
def test_what_torch_calls_another_function_for_has_no_step(
    dtype: torch.dtype, out_dtype: torch.dtype, epilogue: Epilogue
) -> None:
    operand, out = torch.zeros(8, 8).to(dtype), torch.zeros(8, 8).to(out_dtype)
    assert step_of(call_of(operand, operand, out, epilogue), 0, 1, 4) is None


def test_batches_and_what_is_too_large_have_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, square = torch.zeros(2, 8, 8).half(), torch.zeros(8, 8).half()
    assert step_of(GemmCall(batch, batch, batch, MACHINE, Epilogue(), "ieee"), 0, 1, 4) is None
    assert step_of(call_of(square, square, square), 0, 1, 4) is not None
    monkeypatch.setattr(library_step, "MOST", 7)
    assert step_of(call_of(square, square, square), 0, 1, 4) is None


@pytest.mark.parametrize("shapes", [((6, 8), (8, 5)), ((2, 3, 8), (8, 5)), ((8,), (8, 5)), ((1, 6, 8), (1, 8, 5))])
def test_a_plan_multiplies_the_users_tensors(monkeypatch: pytest.MonkeyPatch, shapes: Sequence[Sequence[int]]) -> None:
    monkeypatch.setattr(first_call, "machine_of", lambda _: (H200, MACHINE))
    monkeypatch.setattr(planned, "has_blas", lambda: True)
    monkeypatch.setattr(LibraryLaunch, "run", lambda _: None)
    a, b = (torch.randn(shape).half() for shape in shapes)
    made = plan_of_call((a, b, None, None), (1.0, 0.0, None, torch.float32, "library", ""))
    recipe = msgspec.msgpack.decode(msgspec.msgpack.encode(made.recipe), type=Recipe)
    (step,) = recipe.steps
    ((shape, strides, name),) = recipe.outputs
    out = torch.empty_strided(shape, strides, dtype=getattr(torch, name))
    others = torch.randn_like(a), torch.randn_like(b)
    assert isinstance(step, ProductStep)
    multiply(step, (*others, None, None, out))
    assert torch.equal(out, torch.matmul(*(other.double() for other in others)).float())
    assert recipe.function is None


def test_where_torch_calls_something_else_plans_do_not_call_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ProductStep((0, 1), (7, 5, 11), (2, 14, 0), (7, 6, 9), (1, 0, 2))
    is_tunable = False
    monkeypatch.setattr(driver, "_finds_cublas", lambda: True)
    monkeypatch.setattr(torch.cuda.tunable, "is_enabled", lambda: is_tunable)
    assert step.for_core()[0] == "product"
    backend = torch._C._BlasBackend.Cublaslt
    monkeypatch.setattr(torch._C, "_get_blas_preferred_backend", lambda: backend)
    with pytest.raises(NotPlannedError, match="no BLAS library"):
        step.for_core()
    backend = torch._C._BlasBackend.Cublas
    assert step.for_core()[0] == "product"
    is_tunable = True
    with pytest.raises(NotPlannedError, match="no BLAS library"):
        step.for_core()
