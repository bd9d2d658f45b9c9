"""Calls of torch's own product: through the dispatch and through plans, on the CPU as if it were an H200."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import PATIENCE_S
from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import msgspec
import torch
from torch import Tensor

from constrint.choose import Program, decide
from constrint.errors import CompileError, UnknownNameError, UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call, matmul
from constrint.kernels.gemm.checks import stack
from constrint.kernels.gemm.first_call import End, plan_of_call
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.library import launch as library_launch
from constrint.kernels.gemm.library.fused import divided
from constrint.kernels.gemm.library.launch import LibraryLaunch, exact_sums, refusal_of_call
from constrint.kernels.gemm.library.planned import planned_function, planned_of
from constrint.kernels.gemm.library.spec import LIBRARY, library_refusal
from constrint.kernels.gemm.operands import product_of
from constrint.kernels.gemm.operator import PLAIN, PLANS, STEADY_END
from constrint.kernels.gemm.reference import gemm_reference
from constrint.kernels.gemm.spec import gemm_spec
from constrint.kernels.launch.plan.direct import PlainTable
from constrint.kernels.launch.plan.recipe import Recipe
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.tune.check import Case
from tests.support.gemm import gemm
from tests.support.library_table import forget_tables, use_tables_of, write_table

H200 = load_gpu("h200")


@pytest.fixture
def as_h200(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The CPU is an H200 whose library is as fast as its peak; gives the names of the kernels that are launched."""
    use_tables_of(tmp_path, monkeypatch)
    tables: dict[str, Any] = {"layouts": ("rr", "rc", "cr", "cc"), "ends": ("plain", "bias", "source")}
    write_table(tmp_path, H200, 1.0, dtypes=("fp16", "bf16"), batches=(1, 4), sides=(16, 64, 256), **tables)
    monkeypatch.setattr(first_call, "machine_of", lambda _: (H200, Machine.of(H200)))
    launched: list[str] = []
    launch = first_call.launch

    def noted(program: Program, call: GemmCall) -> None:
        launched.append(program.name)
        if program.name == LIBRARY:
            launch(program, call)

    monkeypatch.setattr(first_call, "launch", noted)
    yield launched
    monkeypatch.undo()
    forget_tables()


def randn(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def close(made: Tensor, a: Tensor, b: Tensor, bias: Any = None, c: Any = None, beta: float = 0.0) -> None:
    exact = gemm_reference(a.double(), b.double(), bias, c, beta=beta, out_dtype=torch.float64)
    torch.testing.assert_close(made.double(), exact, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("end", ["plain", "bias", "source"])
def test_a_product_goes_to_the_library_where_it_is_faster(
    layout: str, batch: int, end: str, as_h200: list[str]
) -> None:
    a = randn(batch, 32, 64) if layout[0] == "r" else randn(batch, 64, 32).mT
    b = randn(batch, 64, 48) if layout[1] == "r" else randn(batch, 48, 64).mT
    bias = randn(48) if end == "bias" else None
    c, beta = (randn(batch, 32, 48, seed=3), 0.5) if end == "source" else (None, 0.0)
    made = first_call.run(a, b, bias, c, End(1.0, beta, None, torch.float16))
    is_possible = not (end == "bias" and batch > 1)  # without cuBLASLt
    assert (as_h200 == [LIBRARY]) is is_possible
    if is_possible:
        close(made, a, b, bias, c, beta)


def test_what_torch_does_not_compute_goes_to_our_kernels(as_h200: list[str]) -> None:
    a, b = randn(1, 64, 64), randn(1, 64, 64)
    cases: list[tuple[float, str | None, Tensor | None, torch.dtype]] = [
        (1.0, "gelu", None, torch.float16),
        (2.0, None, None, torch.float16),
        (1.0, None, randn(64).float(), torch.float16),
        (1.0, None, None, torch.bfloat16),
    ]
    for alpha, activation, bias, out_dtype in cases:
        first_call.run(a, b, bias, None, End(alpha, 0.0, activation, out_dtype))
    assert LIBRARY not in as_h200
    assert len(as_h200) == 4


def test_a_caller_chooses_between_ours_and_the_library(as_h200: list[str]) -> None:
    a, b = randn(1, 64, 64), randn(1, 64, 64)
    end = (1.0, 0.0, None, torch.float16)
    first_call.run(a, b, None, None, End(*end, "kernels"))
    assert as_h200.pop() != LIBRARY
    first_call.run(a, b, None, None, End(*end, "auto"))
    assert as_h200.pop() == LIBRARY
    odd_a, odd_b = randn(1, 7, 64), randn(1, 64, 5)
    close(first_call.run(odd_a, odd_b, None, None, End(*end, "library")), odd_a, odd_b)
    assert as_h200.pop() == LIBRARY, "measured or not"
    activated = first_call.run(a, b, None, None, End(1.0, 0.0, "relu", torch.float16, "library"))
    assert as_h200.pop() == LIBRARY
    torch.testing.assert_close(activated, (a @ b).relu())
    with pytest.raises(UnsupportedError, match=r"kernel='library'.*activation"):
        first_call.run(a, b, None, None, End(1.0, 0.0, "gelu", torch.float16, "library"))


def test_deterministic_algorithms_are_ours(as_h200: list[str]) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        first_call.run(randn(1, 64, 64), randn(1, 64, 64), None, None, End(1.0, 0.0, None, torch.float16))
    finally:
        torch.use_deterministic_algorithms(False)
    assert as_h200
    assert LIBRARY not in as_h200


def test_what_the_library_refuses_after_all_is_computed_by_a_kernel(
    as_h200: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nand more")

    monkeypatch.setattr(library_launch, "function_of", lambda *_: fails)
    end = (1.0, 0.0, None, torch.float16)
    a, b = randn(1, 64, 256), randn(1, 256, 64)
    with pytest.warns(RuntimeWarning, match="CUBLAS_STATUS_NOT_SUPPORTED"):
        first_call.run(a, b, None, None, End(*end))
    assert [kernel == LIBRARY for kernel in as_h200] == [True, False]
    with pytest.raises(CompileError, match=r"CUBLAS_STATUS_NOT_SUPPORTED$"):
        first_call.run(a, b, None, None, End(*end, "library"))


#: Tensors as a user gives them: a, b, bias, c, and whether a plan is for them.
GIVEN: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int] | None, Sequence[int] | None]] = {
    "two axes": ((6, 8), (8, 5), None, None),
    "one B for all": ((2, 3, 8), (8, 5), None, None),
    "a batch": ((3, 6, 8), (3, 8, 5), None, None),
    "batches of two axes": ((2, 3, 6, 8), (2, 3, 8, 5), None, None),
    "vectors": ((8,), (8, 5), None, None),
    "bias": ((6, 8), (8, 5), (5,), None),
    "bias, one B for all": ((2, 3, 8), (8, 5), (5,), None),
    "a matrix": ((6, 8), (8, 5), None, (6, 5)),
    "a row as a matrix": ((6, 8), (8, 5), None, (5,)),
    "a matrix, a batch": ((3, 6, 8), (3, 8, 5), None, (6, 5)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_plan_calls_torch_with_the_users_tensors(name: str) -> None:
    shapes = GIVEN[name]
    tensors = [None if shape is None else randn(*shape, seed=at) for at, shape in enumerate(shapes)]
    a, b, bias, c = tensors
    assert a is not None
    assert b is not None
    beta = 0.5 if c is not None else 0.0
    given = stack(a, b, bias, c, 1.0, beta, None, None)
    out = torch.empty(given.result_shape, dtype=given.kind)
    by_products = out.view(given.a.shape[0], given.a.shape[1], given.b.shape[2])
    call = GemmCall(given.a, given.b, by_products, Machine(1), Epilogue(bias, given.c, 1.0, beta), "ieee")
    recipe = Recipe([], [], 1, 0, LIBRARY, planned_of(call, tensors, out.shape))
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(recipe), type=Recipe)
    assert kept.function is not None
    function = planned_function(kept.function)
    for seed in (10, 20):
        others = [None if t is None else torch.randn(t.shape).to(t.dtype) + seed for t in tensors]
        made = function(*others)
        assert made.shape == torch.matmul(a, b).shape
        close(made, others[0], others[1], others[2], others[3], beta)  # type: ignore[arg-type]


def test_copies_of_a_users_tensors_are_not_planned() -> None:
    a, b = randn(2, 6, 8).mT, randn(6, 5)
    given = stack(a, b, None, None, 1.0, 0.0, None, None)
    out = torch.empty(1, 16, 5, dtype=torch.float16)
    with pytest.raises(NotPlannedError):
        planned_of(GemmCall(given.a, given.b, out, Machine(1), Epilogue(), "ieee"), (a, b, None, None), (2, 8, 5))


def test_a_plan_of_the_library_is_built_and_tried(as_h200: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Tensor] = []
    run = LibraryLaunch.run

    def noted(launch: LibraryLaunch) -> None:
        run(launch)
        tried.append(launch.call.out)

    monkeypatch.setattr(LibraryLaunch, "run", noted)
    tensors = randn(64, 64), randn(64, 64, seed=1), None, None
    made = plan_of_call(tensors, PLAIN)
    assert made.recipe.function is not None
    assert (made.recipe.steps, made.recipe.outputs, made.direct) == ([], [], [])
    (out,) = tried
    close(out[0], *tensors[:2])
    assert PLANS.function_of is not None
    close(PLANS.function_of(made.recipe.function)(*tensors), *tensors[:2])
    assert PLANS._plan(made.recipe, 4)(*tensors).shape == (64, 64)


def test_kernels_for_any_number_of_rows_are_ours(as_h200: list[str]) -> None:
    given = stack(randn(64, 64), randn(64, 64), None, None, 1.0, 0.0, None, None)
    out = torch.empty(1, 64, 64, dtype=torch.float16)
    inspected = first_call.inspect(given.a, given.b, None, None, End(*STEADY_END), out)
    assert inspected is not None
    assert gemm_spec(decide(inspected.request).kernel).serves_any_rows


def test_tables_without_the_core_call_functions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from constrint.kernels.launch.plan.direct import PlanEntry

    table = PlainTable(4, (), lambda: "high")
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: True))
    a = randn(4, 4)
    table.insert(None, (a, None), PlanEntry([], (), 0, 0, 0, lambda *given: ("made", len(given))))
    assert table.call(True, None, a, None) == ("made", 2)
    assert table.call(True, "another", a, None) is False


class FakeSwitch:
    """Stands for torch's switch of narrow sums, with a second figure as newer versions have."""

    def __init__(self) -> None:
        self.now: tuple[bool, bool] = (True, False)
        self.seen: list[tuple[bool, bool]] = []

    def set(self, first: bool, second: bool = True) -> None:
        self.now = first, second
        self.seen.append(self.now)


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> FakeSwitch:
    fake = FakeSwitch()
    real = library_launch.NarrowSums(())
    real._switches = [(lambda: fake.now, fake.set)]
    monkeypatch.setitem(library_launch.NARROW_SUMS, torch.bfloat16, real)
    return fake


def test_sums_are_of_32_bits_inside_and_the_users_choice_outside(switch: FakeSwitch) -> None:
    with exact_sums(torch.bfloat16):
        assert switch.now == (False, False)
        with exact_sums(torch.bfloat16):
            assert switch.now == (False, False)
        assert switch.now == (False, False)
    assert switch.now == (True, False)
    with pytest.raises(ValueError, match="inside"), exact_sums(torch.bfloat16):
        raise ValueError("inside")
    assert switch.now == (True, False)
    switch.now, switch.seen[:] = (False, True), []
    with exact_sums(torch.bfloat16):
        pass
    assert switch.seen == [], "what is off already stays off"


def test_threads_inside_at_the_same_time_leave_the_users_choice(switch: FakeSwitch) -> None:
    inside, may_leave, left = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with exact_sums(torch.bfloat16):
            inside.set()
            may_leave.wait(PATIENCE_S)
        left.set()

    thread = threading.Thread(target=other)
    with exact_sums(torch.bfloat16):
        thread.start()
        assert inside.wait(PATIENCE_S)
    assert switch.now == (False, False), "the other thread is still inside"
    may_leave.set()
    thread.join(PATIENCE_S)
    assert left.is_set()
    assert switch.now == (True, False)


def test_real_switches_of_this_torch_are_put_back() -> None:
    matmul_settings: Any = torch.backends.cuda.matmul
    for dtype, names in library_launch.SWITCHES.items():
        assert len(library_launch.NARROW_SUMS[dtype]._switches) == len(names)
        before = [getattr(matmul_settings, f"allow_{name}") for name in names]
        with exact_sums(dtype):
            assert not any(getattr(matmul_settings, f"allow_{name}") for name in names)
        assert [getattr(matmul_settings, f"allow_{name}") for name in names] == before


def test_strides_that_torch_copies_are_refused() -> None:
    a, b = randn(1, 8, 16)[:, :, ::2], randn(1, 8, 8)
    assert "contiguous along no axis" in refusal_of_call(a, b)
    assert refusal_of_call(b, b) == ""
    assert refusal_of_call(b, b, b.dtype) == ""
    assert "type of result" in refusal_of_call(b, b, torch.float64)


@pytest.mark.parametrize("options", [{}, {"source": 1}, {"batch": 2}, {"bias": 1, "transpose_b": 1}])
def test_the_tuner_checks_it_like_any_kernel(options: dict[str, int]) -> None:
    from constrint.kernels.registry import load_spec

    case = Case(load_spec(LIBRARY), H200, gemm(48, 40, 32, "bf16", **options), device="cpu")
    assert case.check(case.launches({})) <= 1.0
    assert case.changed_inputs() == []


def test_on_the_cpu_every_implementation_is_the_reference() -> None:
    a, b = randn(4, 8), randn(8, 5)
    for name in ("auto", "kernels", "library"):
        torch.testing.assert_close(matmul(a, b, kernel=name), matmul(a, b))
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'cublas'.*library"):
        matmul(a, b, kernel="cublas")


def test_gradients_and_compilation_take_the_callers_implementation() -> None:
    a, b = randn(4, 8, dtype=torch.float32).requires_grad_(), randn(8, 5, dtype=torch.float32).requires_grad_()

    def product(x: Tensor, y: Tensor) -> Tensor:
        return matmul(x, y, alpha=2.0, kernel="kernels")

    expected = torch.autograd.grad((2.0 * a @ b).sum(), (a, b))
    for call in (product, torch.compile(product, fullgraph=True, backend="aot_eager")):
        for one, other in zip(torch.autograd.grad(call(a, b).sum(), (a, b)), expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("n", "takes_it"), [(64, True), (51, False)])
def test_the_library_ends_in_relu_where_rows_are_aligned(n: int, takes_it: bool) -> None:
    """Elsewhere it makes 0 of NaN, and the pointwise kernel does as torch."""
    a, b, out = (torch.zeros(1, *shape, dtype=torch.float16) for shape in ((115, 64), (64, n), (115, n)))
    inside, rest = divided(GemmCall(a, b, out, Machine.of(load_gpu("h200")), Epilogue(activation="relu"), "ieee"))
    assert (inside.epilogue.activation, rest is None) == (("relu", True) if takes_it else (None, False))
    product = product_of(a, b, None, None, torch.float16, is_three_pass=False, activation="relu")
    assert bool(library_refusal(load_gpu("h200"), product)) is not takes_it
