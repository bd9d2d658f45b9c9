"""A user's epilogue in the CUDA GEMM and as a pass, run on the CPU: right results, and mistakes are seen."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.traced.launch import TracedCall, fused_launch, pass_launch
from constrint.kernels.gemm.traced.parse import parsed
from tests.support.cuda_gemm_on_cpu import built, run
from tests.support.traced_on_cpu import exact_and_bound, run_pass

H200 = load_gpu("h200")
USUAL = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_stages": 2, "consumers": 1, "by_columns": 1, "in_turns": 0}
USUAL |= {"cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 2}
SCALAR, ROW, COLUMN, FULL = "scalar", "row", "column", "full"


@dataclass(frozen=True)
class Case:
    """One epilogue.

    Args:
        text: It.
        operands: How each lies, and its type.
        shape: M, N and K.
        kind: The type of the result.
        config: What differs from `USUAL`.
        gap: Elements between rows of full operands.
    """

    text: str
    operands: dict[str, tuple[str, torch.dtype]]
    shape: tuple[int, int, int] = (100, 88, 72)
    kind: torch.dtype = torch.bfloat16
    config: dict[str, int] = field(default_factory=dict)
    gap: int = 0


B, S = torch.bfloat16, torch.float32
CASES = {
    "residual after a bias": Case("gelu(acc + bias) * r + r2", {"bias": (COLUMN, B), "r": (FULL, B), "r2": (FULL, B)}),
    "scales of rows and columns": Case(
        "acc * s * t", {"s": (ROW, S), "t": (COLUMN, S)}, config={"in_turns": 1, "consumers": 2}
    ),
    "turned": Case(
        "silu(acc + b) * s + r", {"b": (COLUMN, S), "s": (ROW, B), "r": (FULL, B)}, (40, 104, 72), config={"turned": 1}
    ),
    "results of 32 bits, ragged": Case(
        "max(acc, x) / (1 + exp(-(c * acc)))", {"x": (SCALAR, S), "c": (FULL, S)}, (70, 51, 40), S, gap=3
    ),
    "a matrix by odd rows": Case("tanh(acc) + erf(r)", {"r": (FULL, B)}, (66, 56, 64), gap=1),
    "no operand": Case("acc if abs(acc) < 1.5 else 0.5 * acc ** 2", {}),
}
#: A mistake by what it is: a case, a file, a text, and what stands there instead.
MISTAKES = {
    "a row's scale of the next row": (
        *("scales of rows and columns", "store.cuh", "TURNED ? at_column : at_row,", "at_row + 1,"),
    ),
    "two columns of one operand": (
        *("residual after a bias", "store.cuh", "min(column + i, s.columns - 1)", "min(column, s.columns - 1)"),
    ),
    "rows eight further": ("residual after a bias", "store.cuh", "own_row + i % 2 * 8,", "own_row,"),
    "turned, but not its operands": ("turned", "store.cuh", "TURNED ? at_row : at_column);", "at_column);"),
    "no bias": ("residual after a bias", "store.cuh", "bias[0] = added.bias[number / 2].x,", ""),
    "no source": ("residual after a bias", "store.cuh", "other[0] = two.x, other[1] = two.y;", ""),
}  # fmt: skip


def operands_of(case: Case) -> dict[str, Tensor]:
    m, n, _ = case.shape
    made = {}
    for name, (lies, dtype) in case.operands.items():
        shape = {SCALAR: (), ROW: (m, 1), COLUMN: (1, n), FULL: (m, n + case.gap)}[lies]
        made[name] = torch.randn(shape).to(dtype)
        made[name] = made[name][:, :n] if lies == FULL else made[name]
    return made


def call_of(case: Case) -> TracedCall:
    m, n, k = case.shape
    a, b = torch.randn(m, k).bfloat16(), torch.randn(n, k).div(k**0.5).bfloat16().T
    out = torch.full((m, n), torch.nan).to(case.kind)
    return TracedCall(a, b, out, parsed(case.text), operands_of(case))


def is_right(case: Case, call: TracedCall) -> bool:
    acc = call.a.double() @ call.b.double()
    error = case.shape[2] * 2.0**-24 * (call.a.double().abs() @ call.b.double().abs())
    exact, bound = exact_and_bound(call.expression, acc, call.operands, case.kind, error)
    return bool(((call.out.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("name", CASES)
def test_the_gemm_finishes_sums_with_the_epilogue(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    torch.manual_seed(5)
    call = call_of(case)
    launch = fused_launch(H200, call, USUAL | case.config)
    assert run(built(launch, tmp_path / "right"), launch, 2, 1) == 0
    assert is_right(case, call)
    for told, (of, *change) in MISTAKES.items():
        if of == name:
            call.out.fill_(torch.nan)
            run(built(launch, tmp_path / told, [tuple(change)]), launch, 2, 1)  # type: ignore[list-item]
            assert not is_right(case, call), told


@pytest.mark.parametrize("name", CASES)
def test_the_pass_finishes_a_product(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    torch.manual_seed(6)
    m, n, _ = case.shape
    expression, operands = parsed(case.text), operands_of(case)
    product, out = torch.randn(m, n).to(case.kind), torch.full((m, n), torch.nan).to(case.kind)
    launch = pass_launch(H200, product, out, expression, operands)
    assert launch is not None
    run_pass(launch, tmp_path)
    exact, bound = exact_and_bound(expression, product.double(), operands, case.kind, 0.0)
    assert bool(((out.double() - exact).abs() <= bound).all())
    if operands:
        out.fill_(torch.nan)
        run_pass(
            launch,
            tmp_path / "mistake",
            ("const long long row = item / per_row,", "const long long row = (item + 1) / per_row,"),
        )
        assert not bool(((out.double() - exact).abs() <= bound).all())


def test_the_pass_reads_as_many_elements_at_a_time_as_rows_allow() -> None:
    for columns, gap, vector in ((64, 0, 8), (60, 0, 4), (64, 4, 4), (51, 0, 1), (64, 1, 1)):
        case = Case("acc + r", {"r": (FULL, B)}, (16, columns, 8), gap=gap)
        product = torch.zeros(16, columns).bfloat16()
        launch = pass_launch(H200, product, product.clone(), parsed(case.text), operands_of(case))
        assert launch is not None
        assert launch.source.macros["VECTOR"] == vector
