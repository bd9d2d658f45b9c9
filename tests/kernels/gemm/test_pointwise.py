"""The library's product, then a pointwise kernel: when it is chosen, its results, and how a plan records it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.choose import Decision, decide
from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.candidates import request_of, with_activation
from constrint.kernels.gemm.first_call import End
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.library.candidates import COMPOSED, pointwise_s, sums_of
from constrint.kernels.gemm.library.cost import library_s
from constrint.kernels.gemm.library.launch import LibraryLaunch
from constrint.kernels.gemm.pointwise.launch import pointwise_launch, pointwise_reference, sums_call
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.reference import gemm_reference
from tests.support.decisions import begin_anew
from tests.support.gemm import product
from tests.support.library_table import forget_tables, use_tables_of, write_table

H200 = load_gpu("h200")
#: Epilogues and sizes of the pointwise kernel.
CASES: dict[str, dict[str, Any]] = {
    "gelu": {"activation": "gelu"},
    "bias relu": {"bias": True, "activation": "relu"},
    "everything": {"bias": True, "source": True, "alpha": 0.5, "beta": 2.0, "activation": "silu"},
    "source by columns": {"source": True, "beta": -1.0, "by_columns": True},
    "cast alone": {},
    "one row": {"m": 1, "n": 77, "bias": True},
    "one column": {"m": 77, "n": 1, "activation": "relu"},
    "wide": {"m": 3, "n": 1500, "bias": True},
}


@pytest.fixture(scope="module")
def outcomes(shared_results: SharedResults) -> dict[str, bool]:
    function = "tests.support.interpreted_gemm:pointwise_is_right"
    return dict(shared_results.once(function, lambda: interpreted(function, CASES)))


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_rounds_once_what_the_reference_computes(name: str, outcomes: dict[str, bool]) -> None:
    assert outcomes[name]


def test_the_reference_is_that_of_the_whole_product() -> None:
    a, b, bias, source = (torch.randn(shape).half() for shape in ((1, 9, 16), (1, 16, 5), (5,), (1, 9, 5)))
    end = Epilogue(bias, source, 0.5, 2.0, "gelu")
    call = GemmCall(a, b, torch.empty(1, 9, 5).half(), Machine(4), end, "ieee")
    expected = gemm_reference(a, b, bias, source, 0.5, 2.0, "gelu")
    assert torch.equal(pointwise_reference(call, a.float() @ b.float()), expected)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for made-up tables of the library."""
    use_tables_of(tmp_path, monkeypatch)
    yield tmp_path
    monkeypatch.undo()
    forget_tables()


def decided(activation: str = "gelu", **options: int) -> Decision:
    request = request_of(H200, product(4096, 4096, 4096, **options))
    return decide(with_activation(request, activation))


def test_it_runs_where_it_is_clearly_faster_than_one_kernel(tables: Path) -> None:
    fused = decided()
    assert fused.program.name != COMPOSED
    assert COMPOSED not in [program.name for program in fused.passed_over], "without a table nothing is predicted"
    # A library three times as fast as it can be: the pointwise kernel does not matter.
    write_table(tables, H200, 3.0, ends=("plain", "wide"))
    forget_tables()
    composed = decided()
    assert [(step.role, step.kernel) for step in composed.program.steps] == [
        ("product", "gemm.library"),
        ("pointwise", "gemm.pointwise"),
    ]
    asked = composed.request.detail
    assert isinstance(asked, Product)
    seconds = library_s(H200, sums_of(asked))
    assert seconds is not None
    assert composed.seconds == pytest.approx(seconds + pointwise_s(H200, asked))
    assert composed.seconds < fused.seconds
    assert fused.program.name in [program.name for program in composed.passed_over]
    assert "clearly faster by prediction" in composed.program.why
    # At the fused kernel's own time it is passed over.
    share = 3.0 * seconds / (fused.seconds - pointwise_s(H200, asked))
    write_table(tables, H200, share, ends=("plain", "wide"))
    forget_tables()
    assert decided().program.name == fused.program.name


def test_it_is_no_candidate_where_the_library_takes_the_whole_product_or_no_plan_can_call_it(tables: Path) -> None:
    write_table(tables, H200, 3.0, ends=("plain", "wide"), dtypes=("bf16", "tf32"), batches=(1, 4))
    for asked in (product(4096, 4096, 4096), product(1024, 1024, 1024, "tf32", bias=1, source=1)):
        decision = decide(request_of(H200, asked))
        assert COMPOSED not in [program.name for program in decision.programs]
    assert COMPOSED not in [program.name for program in decided(batch=4).programs]
    with pytest.raises(UnsupportedError, match="single products of 16-bit operands alone"):
        decide(request_of(H200, product(64, 64, 64, "tf32"), kernel="library+pointwise"))


def test_its_plan_is_cublas_and_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slots: a, b, bias, c, the result, the sums. Recorded here without a device."""
    from constrint.kernels.gemm.library import planned
    from constrint.kernels.launch.plan.recipe import FillStep, Recipe, RecordedCall

    launched: list[Any] = []

    def recorded(launches: Any, tensors: Any, results: Any, scratch: Any, note: str, **_: Any) -> RecordedCall:
        launched.extend(launches)
        assert [piece.shape for piece in scratch.fresh] == [(1, 64, 48)]
        outputs = [([64, 48], [48, 1], "bfloat16"), ([64 * 48 * 4], [1], "uint8")]
        return RecordedCall(Recipe([FillStep(0, 0, 0)], outputs, 1, 0, note), [])

    monkeypatch.setattr(planned, "recipe_of", recorded)
    monkeypatch.setattr(planned, "has_blas", lambda: True)
    monkeypatch.setattr(LibraryLaunch, "run", lambda _: None)
    monkeypatch.setattr(first_call, "machine_of", lambda _: (H200, Machine.of(H200)))
    begin_anew(monkeypatch)
    a, b = torch.randn(64, 32).bfloat16(), torch.randn(32, 48).bfloat16()
    bias = torch.randn(48).bfloat16()
    end = (1.0, 0.0, "gelu", None, "library+pointwise", "")
    made = first_call.plan_of_call((a, b, bias, None), end)
    step, _ = made.recipe.steps
    assert step.slots == (1, 0, 5)  # type: ignore[union-attr]
    assert step.types == (14, 14, 0)  # type: ignore[union-attr]
    assert made.recipe.note == COMPOSED
    (launch,) = launched
    assert launch.arguments["activation"] == "gelu"
    assert launch.arguments["bias_ptr"] is bias


def test_without_a_plan_both_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operator runs them; the pointwise kernel's reference stands in for its launch on the CPU."""
    a, b, bias = torch.randn(1, 16, 32).half(), torch.randn(1, 32, 24).half(), torch.randn(24).half()
    call = GemmCall(a, b, torch.empty(1, 16, 24).half(), Machine(4), Epilogue(bias, activation="relu"), "ieee")
    program = decide(
        with_activation(request_of(H200, product(16, 24, 32, "fp16"), kernel="library+pointwise"), "relu")
    ).program
    monkeypatch.setattr(
        LibraryLaunch, "run", lambda each: each.call.out.copy_(each.call.a.float() @ each.call.b.float())
    )
    product_launch, pointwise = first_call.launches_of(program, call)
    product_launch.run()
    sums = pointwise.arguments["sums_ptr"]  # type: ignore[attr-defined]
    assert torch.equal(pointwise_reference(call, sums), gemm_reference(a, b, bias, activation="relu"))


def test_the_kernel_compiles_for_hopper_without_spills() -> None:
    shapes = (1, 4096, 512), (1, 512, 4096), (1, 4096, 4096), (4096,)
    a, b, out, bias = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    call = GemmCall(a, b, out, Machine.of(H200), Epilogue(bias, out, 2.0, 0.5, "gelu"), "ieee")
    compiled = pointwise_launch(call, sums_call(call).out).compile(H200)
    assert compiled.spill_bytes == 0


def test_an_end_is_a_plain_tuple_for_plans() -> None:
    assert End() == (1.0, 0.0, None, None, "auto", "")
