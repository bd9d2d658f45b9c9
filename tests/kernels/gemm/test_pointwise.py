"""The library's product and a pointwise kernel on it: when they are chosen, their results, and their plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import msgspec
import torch

from constrint.choose import Decision, decide
from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.candidates import request_of, with_activation
from constrint.kernels.gemm.first_call import End
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.library.candidates import COMPOSED, begun, pointwise_s
from constrint.kernels.gemm.library.cost import library_s
from constrint.kernels.gemm.library.fused import divided, matmul_of
from constrint.kernels.gemm.library.launch import LibraryLaunch
from constrint.kernels.gemm.library.spec import ALGORITHM
from constrint.kernels.gemm.pointwise.launch import pointwise_launch, pointwise_reference
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.reference import gemm_reference
from constrint.kernels.launch.plan import matmul_library
from constrint.kernels.launch.plan.matmul_library import Algorithm, Matmul
from constrint.kernels.launch.plan.shape import NotPlannedError
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
    "a batch": {"batch": 3, "bias": True, "source": True, "beta": 0.5, "activation": "gelu"},
    "a repeated matrix": {"batch": 2, "source": True, "beta": 0.5, "repeated": True},
    "rows with gaps": {"gap": True, "activation": "gelu"},
    "fp32": {"dtype": "float32", "activation": "silu"},
    "fp32 with a bias": {"dtype": "float32", "bias": True, "activation": "gelu"},
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
    a, b, bias, source = (torch.randn(shape).double() for shape in ((1, 9, 16), (1, 16, 5), (5,), (1, 9, 5)))
    rest = Epilogue(bias, source, 0.5, 2.0, "gelu")
    expected = gemm_reference(a, b, bias, source, 0.5, 2.0, "gelu")
    torch.testing.assert_close(pointwise_reference(a @ b, rest), expected)


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


def test_it_runs_where_predictions_do_not_tell_that_one_kernel_is_faster(tables: Path) -> None:
    fused = decided()
    assert fused.program.name != COMPOSED
    assert COMPOSED not in [program.name for program in fused.passed_over], "without a table nothing is predicted"
    # A library three times as fast as it can be: the pointwise kernel does not matter.
    write_table(tables, H200, 3.0)
    forget_tables()
    composed = decided()
    assert [(step.role, step.kernel) for step in composed.program.steps] == [
        ("product", "gemm.library"),
        ("pointwise", "gemm.pointwise"),
    ]
    asked = composed.request.detail
    assert isinstance(asked, Product)
    seconds = library_s(H200, begun(asked))
    assert seconds is not None
    assert composed.seconds == pytest.approx(seconds + pointwise_s(H200, asked))
    assert composed.seconds < fused.seconds
    assert fused.program.name in [program.name for program in composed.passed_over]
    assert "do not tell it from" in composed.program.why
    # Where one kernel is predicted to take two thirds of its time, that one runs.
    share = 3.0 * seconds / (1.5 * fused.seconds - pointwise_s(H200, asked))
    write_table(tables, H200, share)
    forget_tables()
    assert decided().program.name == fused.program.name


def test_it_is_no_candidate_where_the_library_takes_the_whole_product_or_none(tables: Path) -> None:
    write_table(tables, H200, 3.0, dtypes=("bf16", "tf32"), batches=(1, 4))
    for asked in (product(4096, 4096, 4096), product(1024, 1024, 1024, bias=1, source=1)):
        decision = decide(request_of(H200, asked))
        assert COMPOSED not in [program.name for program in decision.programs]
    assert decided("relu").kernel == "gemm.library"
    assert COMPOSED in [program.name for program in decided(batch=4).programs]
    with pytest.raises(UnsupportedError, match="16-bit and 32-bit operands alone"):
        decide(with_activation(request_of(H200, product(64, 64, 64, "int8"), kernel="library+pointwise"), "gelu"))
    with pytest.raises(UnsupportedError, match="its whole epilogue"):
        decide(with_activation(request_of(H200, product(64, 64, 64), kernel="library+pointwise"), "relu"))


def call_of(dtype: torch.dtype = torch.bfloat16, batch: int = 1, **options: Any) -> GemmCall:
    """A call with a bias and a source matrix."""
    a, b = torch.randn(batch, 64, 32).to(dtype), torch.randn(batch, 32, 48).to(dtype)
    ends: dict[str, Any] = {"bias": torch.randn(48).to(dtype), "source": torch.randn(batch, 64, 48).to(dtype)}
    end = Epilogue(**(ends | {"alpha": 0.5, "beta": 2.0} | options))
    return GemmCall(a, b, torch.empty(batch, 64, 48).to(dtype), Machine(4), end, "ieee")


def test_the_library_takes_what_it_can_of_an_epilogue() -> None:
    whole = call_of(activation="relu")
    assert divided(whole) == (whole, None)
    call = call_of(activation="gelu")
    inside, rest = divided(call)
    assert inside.epilogue == replace(call.epilogue, activation=None)
    assert rest == Epilogue(activation="gelu")
    # A matrix by columns is left to the kernel, and so is what comes after it.
    by_columns = torch.randn(1, 48, 64).bfloat16().mT
    call = call_of(source=by_columns, activation="relu")
    inside, rest = divided(call)
    assert inside.epilogue == replace(call.epilogue, source=None, beta=0.0, activation=None)
    assert rest == Epilogue(None, by_columns, 1.0, 2.0, "relu")
    call = call_of(bias=torch.randn(48))
    _, rest = divided(call)
    assert rest == Epilogue(call.epilogue.bias)


def multiplied(matmul: Matmul, operands: list[torch.Tensor], bias: torch.Tensor | None) -> torch.Tensor:
    """As cublasLtMatmul would: matrices by columns; gives D' in fp64."""
    m, n, k = matmul.sizes
    turned = [operation == 1 for operation in matmul.operations]
    shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n)]
    seen = []
    for (rows, columns), tensor, stride, step in zip(
        shapes, operands, matmul.strides, matmul.batch_strides, strict=False
    ):
        assert stride >= rows, "a library refuses columns that overlap"
        assert tensor.storage_offset() == 0
        seen.append(tensor.as_strided((matmul.batch, rows, columns), (step, 1, stride)).double())
    a, b = (each.mT if is_turned else each for each, is_turned in zip(seen, turned, strict=False))
    alpha, beta = matmul.factors
    d = alpha * (a @ b) + (beta * seen[2] if beta else 0.0)
    d = d if bias is None else d + bias.double()[:, None]
    return d.relu() if matmul.epilogue & matmul_library.RELU else d


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("end", [{}, {"source": None}, {"bias": None}, {"activation": "relu"}])
def test_what_cublaslt_is_asked_for_is_the_product(batch: int, layout: str, end: dict[str, Any]) -> None:
    call = call_of(torch.float16, batch, **end)
    a, b = (t if order == "r" else t.mT.contiguous().mT for t, order in zip((call.a, call.b), layout, strict=True))
    call = replace(call, a=a, b=b)
    matmul = matmul_of(call)
    assert matmul is not None
    matmul = msgspec.msgpack.decode(msgspec.msgpack.encode(matmul), type=Matmul)
    e = call.epilogue
    source = call.out if e.source is None else e.source
    found = multiplied(matmul, [call.b, call.a, source], e.bias).mT
    bias, added = (None if t is None else t.double() for t in (e.bias, e.source))
    beta = e.beta if e.source is not None else 0.0
    expected = gemm_reference(a.double(), b.double(), bias, added, e.alpha, beta, e.activation)
    torch.testing.assert_close(found, expected)
    assert matmul.has_bias is (e.bias is not None)


def test_what_cublaslt_does_not_take_has_no_step() -> None:
    for call in (
        call_of(torch.float64),
        call_of(activation="gelu"),
        call_of(source=torch.randn(1, 48, 64).bfloat16().mT),
        replace(call_of(), a=torch.randn(1, 64, 64).bfloat16()[:, :, ::2]),
    ):
        assert matmul_of(call) is None
    tf32 = matmul_of(replace(call_of(torch.float32), precision="tf32"))
    exact = matmul_of(replace(call_of(torch.float32), precision="tf32x3"))
    assert tf32 is not None
    assert exact is not None
    assert (tf32.compute, exact.compute) == (matmul_library.IN_TF32, matmul_library.IN_FP32)


def test_8_bit_operands_are_multiplied_as_the_library_takes_them() -> None:
    a, b = torch.randn(1, 32, 64).to(torch.float8_e4m3fn), torch.randn(1, 48, 64).to(torch.float8_e4m3fn).mT
    out = torch.empty(1, 32, 48).bfloat16()
    matmul = matmul_of(GemmCall(a, b, out, Machine.of(H200), Epilogue(), "ieee"))
    assert matmul is not None
    assert matmul.types == (matmul_library.E4M3, matmul_library.E4M3, matmul_library.BF16, matmul_library.BF16)
    assert matmul.operations == (1, 0), "both along K, the only order of axes that it has"
    found = multiplied(matmul, [b, a, out], None).mT
    torch.testing.assert_close(found, a.double() @ b.double())
    assert matmul_of(GemmCall(a, b, out, Machine.of(H200), Epilogue(torch.randn(48).bfloat16()), "ieee")) is None


def test_integers_have_sums_and_factors_of_integers() -> None:
    a, b = (torch.randint(-128, 128, (1, rows, 64), dtype=torch.int8) for rows in (32, 48))
    out = torch.empty(1, 32, 48, dtype=torch.int32)
    call = GemmCall(a, b.mT, out, Machine.of(H200), Epilogue(), "ieee")
    matmul = matmul_of(call)
    assert matmul is not None
    matmul = msgspec.msgpack.decode(msgspec.msgpack.encode(matmul), type=Matmul)
    assert (matmul.types, matmul.compute) == ((3, 3, 10, 10), matmul_library.IN_INT32)
    assert [type(factor) for factor in matmul.scales] == [int, int]
    torch.testing.assert_close(multiplied(matmul, [b.mT, a, out], None).mT, a.double() @ b.mT.double())
    assert matmul_of(replace(call, out=out.bfloat16())) is None
    assert matmul_of(replace(call, a=a.bfloat16())) is None


def test_a_plan_has_the_algorithm_that_its_program_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from constrint.kernels.gemm.library import fused, planned
    from constrint.kernels.launch.plan.recipe import MatmulStep

    found = tuple(Algorithm(bytes([place] * 64), 1000 * place, 7) for place in range(2))
    ran: list[Any] = []
    monkeypatch.setattr(matmul_library, "has_matmul", lambda: True)
    monkeypatch.setattr(matmul_library, "algorithms", lambda *_: found)
    monkeypatch.setattr(fused, "_device_of", lambda _: 0)
    monkeypatch.setattr(LibraryLaunch, "run", lambda _: ran.append("torch"))
    monkeypatch.setattr(fused.FusedLaunch, "run", lambda self: ran.append(self.algorithm))
    a, b, out = torch.randn(64, 32).half(), torch.randn(32, 48).half(), torch.empty(64, 48).half()
    call = GemmCall(a[None], b[None], out[None], Machine.of(H200), Epilogue(), "ieee")
    for config, algorithm, called in (({}, found[0], "torch"), ({ALGORITHM: 1}, found[1], found[1])):
        ran.clear()
        recipe = planned.library_plan(call, (a, b, None, None), out, "a note", config).recipe
        (step,) = recipe.steps
        assert isinstance(step, MatmulStep)
        assert step.algorithm == algorithm
        assert (ran, recipe.note) == ([called], "a note"), "it is called once while it is recorded"
        assert len(recipe.outputs) == 1 + bool(algorithm.workspace_bytes)
    with pytest.raises(NotPlannedError, match="no further algorithm"):
        planned.library_plan(call, (a, b, None, None), out, "a note", {ALGORITHM: 2})


def test_its_plan_is_cublas_and_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slots: a, b, bias, c, the result, the library's workspace. Recorded here without a device."""
    from constrint.kernels.gemm.library import fused, launch, planned
    from constrint.kernels.launch.plan.recipe import FillStep, MatmulStep, Recipe, RecordedCall

    launched: list[Any] = []

    def recorded(launches: Any, tensors: Any, results: Any, scratch: Any, note: str, **_: Any) -> RecordedCall:
        launched.extend(launches)
        return RecordedCall(Recipe([FillStep(0, 0, 0)], [([64, 48], [48, 1], "bfloat16")], 1, 0, note), [])

    monkeypatch.setattr(planned, "recipe_of", recorded)
    for module in (matmul_library, launch):
        monkeypatch.setattr(module, "has_matmul", lambda: True)
    monkeypatch.setattr(matmul_library, "algorithms", lambda *_: (Algorithm(bytes(64), 1000, 7),))
    monkeypatch.setattr(fused, "_device_of", lambda _: 0)
    monkeypatch.setattr(LibraryLaunch, "run", lambda _: None)
    monkeypatch.setattr(first_call, "machine_of", lambda _: (H200, Machine.of(H200)))
    begin_anew(monkeypatch)
    a, b = torch.randn(64, 32).bfloat16(), torch.randn(32, 48).bfloat16()
    bias = torch.randn(48).bfloat16()
    end = (1.0, 0.0, "gelu", None, "library+pointwise", "")
    made = first_call.plan_of_call((a, b, bias, None), end)
    assert made.recipe.outputs == [([64, 48], [48, 1], "bfloat16"), ([1000], [1], "uint8")]
    assert made.recipe.note == COMPOSED
    (launch_of_end,) = launched
    assert launch_of_end.arguments["activation"] == "gelu"
    assert "bias_ptr" not in launch_of_end.arguments
    recipe = msgspec.msgpack.decode(msgspec.msgpack.encode(made.recipe), type=Recipe)
    step, _ = recipe.steps
    assert isinstance(step, MatmulStep)
    assert step.slots == (1, 0, 4, 4, 2, 5)
    assert step.matmul.epilogue == matmul_library.BIAS
    relu = first_call.plan_of_call((a, b, bias, None), (1.0, 0.0, "relu", None, "library", ""))
    (whole,) = relu.recipe.steps
    assert isinstance(whole, MatmulStep)
    assert whole.matmul.epilogue == matmul_library.BIAS | matmul_library.RELU


def test_without_a_plan_both_are_launched() -> None:
    """As the operator runs them; the pointwise kernel's reference stands in for its launch on the CPU."""
    a, b, bias = torch.randn(1, 16, 32).half(), torch.randn(1, 32, 24).half(), torch.randn(24).half()
    end = Epilogue(bias, activation="silu")
    call = GemmCall(a, b, torch.full((1, 16, 24), float("nan")).half(), Machine(4), end, "ieee")
    program = decide(
        with_activation(request_of(H200, product(16, 24, 32, "fp16"), kernel="library+pointwise"), "silu")
    ).program
    product_launch, pointwise = first_call.launches_of(program, call)
    product_launch.run()
    assert pointwise.arguments["bias_ptr"] is bias, "without cuBLASLt the library computes the plain product"  # type: ignore[attr-defined]
    found = pointwise_reference(call.out.float(), end)
    torch.testing.assert_close(
        found, gemm_reference(a.float(), b.float(), bias, activation="silu"), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_kernels_compile_for_hopper_without_spills(is_whole: bool) -> None:
    shapes = (1, 4096, 512), (1, 512, 4096), (1, 4096, 4096), (4096,)
    a, b, out, bias = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    rest = Epilogue(bias, out, 2.0, 0.5, "gelu") if is_whole else Epilogue(activation="gelu")
    compiled = pointwise_launch(GemmCall(a, b, out, Machine.of(H200), rest, "ieee"), rest).compile(H200)
    assert compiled.spill_bytes == 0


def test_an_end_is_a_plain_tuple_for_plans() -> None:
    assert End() == (1.0, 0.0, None, None, "auto", "")
