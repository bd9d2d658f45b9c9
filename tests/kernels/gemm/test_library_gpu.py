"""torch's own product as `matmul` runs it, on the GPU of this machine: results, plans, graphs, gradients, accuracy."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import Tensor

from constrint.errors import UnsupportedError
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.first_call import End, inspect, plan_of_call
from constrint.kernels.gemm.library.fused import FusedLaunch, matmul_of
from constrint.kernels.gemm.library.spec import INT8_ROWS
from constrint.kernels.gemm.operator import PLAIN_END, PLANS
from constrint.kernels.gemm.reference import default_out_dtype
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.driver import has_blas
from constrint.kernels.launch.plan.matmul_library import algorithms, chosen, has_matmul
from constrint.kernels.launch.plan.recipe import MatmulStep
from constrint.kernels.launch.plan.table import clear_plans
from tests.kernels.gemm.test_matmul_gpu import PRODUCT_ERROR, ROUNDOFF, operands
from tests.support.library_table import forget_tables, use_tables_of, write_table

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]

LAYOUTS = ("rr", "rc", "cr", "cc")
#: (batch, M, N, K)
SHAPES = ((1, 256, 384, 512), (1, 333, 777, 1555), (3, 100, 96, 160), (1, 1, 4096, 512), (1, 64, 64, 65536))


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """What a test says about fp32 operands holds for it alone."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def fast_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """By its table the library is always faster than any kernel of ours."""
    gpu = gpu_of(torch.device("cuda"))
    if gpu is None:
        pytest.skip("this GPU has no hardware model")
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    use_tables_of(tmp_path, monkeypatch)
    kinds: dict[str, Any] = {"layouts": LAYOUTS, "ends": ("plain", "bias", "source", "wide"), "batches": (1, 4)}
    write_table(tmp_path, gpu, 3.0, dtypes=("bf16", "fp16"), sides=(64, 256, 1024, 4096), **kinds)
    clear_plans()
    yield
    monkeypatch.undo()
    forget_tables()
    clear_plans()


def check(made: Tensor, a: Tensor, b: Tensor, name: str, added: Any = 0.0) -> None:
    """Within what the rounding of the result and of sums of 32 bits explains."""
    z, sums = a.double() @ b.double() + added, a.double().abs() @ b.double().abs()
    k = a.shape[-1]
    error = 1.13 * sums * (PRODUCT_ERROR.get(name, 0.0) + k * 2.0**-24 * (name != "int8"))
    bound = 1.01 * error + ROUNDOFF[made.dtype] * (z.abs() + error) + (2.0**-24 if made.is_floating_point() else 0.0)
    excess = ((made.double() - z).abs() / bound.clamp(min=1e-300)).nan_to_num(float("inf"))
    assert float(excess.max()) <= 1.0 or not bool((made.double() != z).any())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["bf16", "fp16", "tf32", "fp8", "int8"])
def test_products_by_the_library_are_right_or_refused(name: str, layout: str, shape: tuple[int, int, int, int]) -> None:
    a, b = operands(name, layout, shape)
    try:
        made = matmul(a, b, kernel="library")
    except UnsupportedError:
        assert name in ("fp8", "int8"), "16 and 32 bits are computed in every order of axes"
        return
    assert made.dtype == default_out_dtype(a.dtype)
    check(made, a, b, name)
    again = matmul(a, b, kernel="library")
    check(again, a, b, name)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_ends_that_torch_has(name: str) -> None:
    (a, b), n = operands(name, "rc", (1, 200, 136, 264)), 136
    a, b = a[0], b[0]
    bias, c = torch.randn(n, device="cuda").to(a.dtype), torch.randn(200, n, device="cuda").to(a.dtype)
    check(matmul(a, b, bias, kernel="library"), a, b, name, bias.double())
    made = matmul(a, b, c=c, alpha=2.0, beta=0.5, kernel="library")
    check(made, 2.0 * a, b, name, 0.5 * c.double())
    wide = matmul(a, b, out_dtype=torch.float32, kernel="library")
    assert wide.dtype == torch.float32
    check(wide, a, b, name)


@pytest.mark.skipif(torch.version.hip is not None, reason="hipBLASLt goes through torch's operators")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", [(200, 136, 264), (16, 512, 4096), (1024, 1024, 128), (40, 64, 64)], ids=str)
@pytest.mark.parametrize("name", ["bf16", "fp16", "tf32"])
def test_whole_ends_are_one_launch(name: str, shape: tuple[int, int, int], batch: int) -> None:
    a, b = operands(name, "rc", (batch, *shape))
    bias = torch.randn(shape[1], device="cuda").to(a.dtype)
    c = torch.randn(batch, *shape[:2], device="cuda").to(a.dtype)
    added = bias.double() + 0.5 * c.double()
    check(matmul(a, b, bias, c=c, alpha=2.0, beta=0.5, kernel="library"), 2.0 * a, b, name, added)
    if name == "tf32":
        with pytest.raises(UnsupportedError, match="activation"):
            matmul(a, b, bias, activation="relu", kernel="library")
        return
    for _ in range(2):
        made = matmul(a, b, bias, c=c, beta=0.5, activation="relu", kernel="library")
        exact = (a.double() @ b.double() + added).relu()
        assert bool((made >= 0).all())
        assert float((made.double() - exact).abs().max()) <= 4.0 * 2.0**-4 * (shape[2] / 264) ** 0.5 + 2.0**-8 * float(
            exact.max()
        )
    a[:, 3, 4] = float("nan")
    assert bool(matmul(a, b, bias, activation="relu", kernel="library")[:, 3].isnan().all()), "as by torch's relu"


@pytest.mark.usefixtures("fast_library")
@pytest.mark.parametrize("shape", [((96, 160), (160, 128)), ((2, 48, 160), (160, 128)), ((4, 96, 160), (4, 160, 128))])
def test_a_repeated_call_goes_by_its_plan(shape: Any) -> None:
    a, b = (torch.randn(s, device="cuda").bfloat16() for s in shape)
    first, before = matmul(a, b), PLANS.state().hits
    again = matmul(a, b)
    assert PLANS.state().hits == before + 1
    assert torch.equal(first, again)
    assert torch.equal(again, torch.matmul(a, b)) or float((again - torch.matmul(a, b)).abs().max()) < 0.25
    check(again, a, b, "bf16")
    others = torch.randn_like(a), torch.randn_like(b)
    check(matmul(*others), *others, "bf16")


@pytest.mark.usefixtures("fast_library")
def test_the_library_is_called_and_ours_where_the_caller_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    mm = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *given, **more: asked.append("mm") or mm(*given, **more))  # type: ignore[func-returns-value]
    clear_plans()
    a, b = torch.randn(192, 320, device="cuda").bfloat16(), torch.randn(320, 256, device="cuda").bfloat16()
    matmul(a, b)
    assert asked
    asked.clear()
    check(matmul(a, b, kernel="kernels"), a, b, "bf16")
    assert asked == []
    with torch.autograd.profiler.profile():
        check(matmul(a, b), a, b, "bf16")  # observed: the operator's long way
    assert asked


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, when its compiler is imported
@pytest.mark.usefixtures("fast_library")
def test_gradients_graphs_and_compilation() -> None:
    x, w = torch.randn(96, 160, device="cuda"), torch.randn(160, 128, device="cuda")
    ours = [t.half().requires_grad_() for t in (x, w)]
    exact = [t.detach().double().requires_grad_() for t in ours]
    of_ours = torch.autograd.grad(matmul(*ours).float().square().sum(), ours)
    for mine, theirs in zip(of_ours, torch.autograd.grad((exact[0] @ exact[1]).square().sum(), exact), strict=True):
        assert float((mine.double() - theirs).norm() / theirs.norm()) < 4e-3
    a, b = x.half(), w.half()
    graph, expected = torch.cuda.CUDAGraph(), matmul(a, b)
    with torch.cuda.graph(graph):
        captured = matmul(a, b)
        new = matmul(a[:64], b)
    captured.zero_()
    a.copy_(torch.randn_like(a))
    graph.replay()
    assert not torch.equal(captured, expected)
    check(captured, a, b, "fp16")
    check(new, a[:64], b, "fp16")
    compiled = torch.compile(lambda s, t: matmul(s, t) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(a, b), matmul(a, b) + 1)


def test_8_bit_operands_are_captured_without_a_call_before() -> None:
    a, b = operands("fp8", "rc", (1, 208, 176, 304))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    matmul(a, b, kernel="kernels")
    with torch.cuda.graph(graph):
        made = matmul(a, b)
    graph.replay()
    check(made, a, b, "fp8")


def test_sums_of_deep_products_are_of_32_bits_and_the_switch_is_put_back() -> None:
    """Partial sums in bf16 would be off by far more than one rounding of the result."""
    settings: Any = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction
    a = torch.rand(64, 65536, device="cuda").bfloat16() + 0.5
    b = torch.rand(65536, 64, device="cuda").bfloat16() + 0.5
    for _ in range(2):
        check(matmul(a, b, kernel="library"), a, b, "bf16")
        assert settings.allow_bf16_reduced_precision_reduction == before


@pytest.mark.parametrize("shape", [(256, 384, 512), (333, 777, 1555), (1, 4096, 512), (512, 1, 300), (64, 64, 65536)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_plans_call_cublaslt_and_are_right(name: str, layout: str, shape: tuple[int, int, int]) -> None:
    a, b = (operand[0] for operand in operands(name, layout, (1, *shape)))
    end = (*PLAIN_END[:4], "library")
    if has_matmul():
        assert [type(step) for step in plan_of_call((a, b, None, None), end).recipe.steps] == [MatmulStep]
    for _ in range(2):
        check(matmul(a, b, kernel="library"), a, b, name)
    wide = matmul(a, b, out_dtype=torch.float32, kernel="library")
    check(wide, a, b, name)


@pytest.mark.parametrize("shape", [(1, 333, 96, 11008), (1, 16, 4096, 512), (3, 200, 208, 80)], ids=str)
@pytest.mark.parametrize("name", ["bf16", "fp16", "tf32", "fp8", "int8"])
def test_further_algorithms_are_right(name: str, shape: tuple[int, int, int, int]) -> None:
    if not has_matmul():
        pytest.skip("there is no cuBLASLt")
    if name in ("fp8", "int8") and shape[0] > 1:
        pytest.skip("the library multiplies one pair of 8-bit operands")
    if name == "int8" and shape[1] <= INT8_ROWS:
        pytest.skip(f"torch's product of integers takes more than {INT8_ROWS} rows")
    batch, m, n, _ = shape
    a, b = (each.view(batch, *each.shape[-2:]) for each in operands(name, "rc", shape))
    out = torch.empty(batch, m, n, dtype=default_out_dtype(a.dtype), device="cuda")
    inspected = inspect(a, b, None, None, End(out_dtype=out.dtype), out)
    assert inspected is not None
    matmul_step = matmul_of(inspected.call)
    assert matmul_step is not None
    found = algorithms(matmul_step, torch.cuda.current_device())
    assert found[0] == chosen(matmul_step, torch.cuda.current_device())
    for algorithm in found:
        out.fill_(float("nan") if out.is_floating_point() else -1)
        FusedLaunch(inspected.call, algorithm).run()
        check(out, a, b, name)


def test_the_device_has_cublas_for_plans() -> None:
    if torch.version.hip is not None:
        pytest.skip("hipBLASLt goes through torch")
    assert has_blas()
    assert has_matmul()


def test_each_stream_has_its_own_workspace() -> None:
    (a,), (b,) = operands("bf16", "rr", (1, 64, 64, 65536))
    expected = matmul(a, b, kernel="library")
    new_stream: Any = torch.cuda.Stream
    streams = [new_stream() for _ in range(4)]
    torch.cuda.synchronize()
    made: list[Tensor] = []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                made.append(matmul(a, b, kernel="library"))
    torch.cuda.synchronize()
    assert all(torch.equal(one, expected) for one in made)


def test_threads_call_it_at_once() -> None:
    settings: Any = torch.backends.cuda.matmul
    before = settings.allow_fp16_reduced_precision_reduction
    pairs = [operands("fp16", "rr", (1, 64 * i, 128, 256)) for i in range(1, 5)]
    failures: list[BaseException] = []

    def work(a: Tensor, b: Tensor) -> None:
        try:
            for _ in range(50):
                made = matmul(a[0], b[0], kernel="library")
            check(made, a[0], b[0], "fp16")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert settings.allow_fp16_reduced_precision_reduction == before


def test_another_device() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for index in (1, 0, 1):
        a, b = (torch.randn(64, 64, device=f"cuda:{index}").half() for _ in range(2))
        made = matmul(a, b, kernel="library")
        assert made.device.index == index
        check(made, a, b, "fp16")
