"""Gated pairs by the CUDA GEMM's kernel, run on the CPU thread by thread: right results, and mistakes that are seen."""

from __future__ import annotations

import shutil
from ctypes import CDLL
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.gated.launch import GatedCall, gated_launch
from constrint.kernels.gemm.gated.reference import gated_reference
from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.cuda_gemm_on_cpu import built, run
from tests.support.wgmma_on_cpu import Mistake

H200 = load_gpu("h200")
USUAL = {"tile_m": 64, "tile_n": 128, "tile_k": 64, "num_stages": 2, "consumers": 1, "by_columns": 1, "in_turns": 0}
USUAL |= {"cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 2}


@dataclass(frozen=True)
class Case:
    """One pair.

    Args:
        shape: M, N and K.
        along_k: Whether both factors lie along K.
        stacked: Whether they are parts of one tensor.
        bias: The type of both biases; None for none.
        activation: Its name.
        blocks: Blocks of the grid.
        config: What differs from `USUAL`.
    """

    shape: tuple[int, int, int]
    along_k: bool = True
    stacked: bool = False
    bias: torch.dtype | None = None
    activation: str = "silu"
    blocks: int = 2
    config: dict[str, int] = field(default_factory=dict)


CASES = {
    "silu, edges on all sides": Case((130, 88, 136)),
    "across K, stacked": Case((70, 152, 72), along_k=False, stacked=True, bias=torch.bfloat16, activation="gelu"),
    "narrow halves, in turns": Case(
        (200, 80, 72), bias=torch.float32, activation="relu", config={"tile_n": 48, "in_turns": 1, "consumers": 2}
    ),
    "K in parts": Case((64, 64, 520), stacked=True, blocks=4, config={"split_k": 3}),
}
#: A mistake by what it is: a case, a file, a place in it with `@` for what stands there, this, and what is run instead.
MISTAKES: dict[str, tuple[str, str, str, str, str]] = {
    "both halves of the same factor": (
        *(
            "silu, edges on all sides",
            "kernel_on_cpu.cu",
            "          @, shared.columns_of(place.stage) + kColumnsBytes",
        ),
        *("others_map", "columns_map"),
    ),
    "factors the other way round": (
        *("silu, edges on all sides", "store.cuh", "@;", "x *= other, y *= next", "x = activate(other) * x, y *= next"),
    ),
    "results where the factors' columns are": (
        *(
            "silu, edges on all sides",
            "kernel_on_cpu.cu",
            "staging, u.row + first_row, (u.column + first_column) / @);",
            "kHalves",
            "1",
        ),
    ),
    "one bias for both": (
        *("narrow halves, in turns", "store.cuh", "load_two<BIAS>(@, at);\n#endif", "s.end.source", "s.end.bias"),
    ),
}


def call_of(case: Case) -> GatedCall:
    m, n, k = case.shape
    both = torch.randn(2 * n, k).div(k**0.5 / 2).bfloat16() if case.along_k else torch.randn(k, 2 * n).div(4).bfloat16()
    gate, up = (both[:n].T, both[n:].T) if case.along_k else (both[:, :n], both[:, n:])
    if not case.stacked:
        gate, up = (w.T.contiguous().T if case.along_k else w.contiguous() for w in (gate, up))
    first, second = (None if case.bias is None else torch.randn(n).to(case.bias) for _ in range(2))
    out = torch.full((m, n + 8), torch.nan).bfloat16()[:, :n]
    return GatedCall(torch.randn(m, k).bfloat16(), gate, up, out, first, second, case.activation)


def launch_of(case: Case, call: GatedCall) -> CudaLaunch:
    return gated_launch(H200, call, USUAL | case.config)


def bound_of(call: GatedCall) -> tuple[Tensor, Tensor]:
    """The exact result, and what rounding may change: once to bf16, sums in fp32, the activation in fp32."""
    first, second = (None if bias is None else bias.double() for bias in (call.bias_gate, call.bias_up))
    exact = gated_reference(call.a.double(), call.gate.double(), call.up.double(), first, second, call.activation)
    return exact, exact.abs() * (2.0**-8 + 2.0**-11) + 1e-4


def outcome(library: CDLL, case: Case, mistake: int = 0) -> tuple[int, bool]:
    """How a run ended, and whether all results are right and nothing beside them was written."""
    torch.manual_seed(3)
    call = call_of(case)
    status = run(library, launch_of(case, call), case.blocks, 1, mistake)
    exact, bound = bound_of(call)
    is_right = bool(((call.out.double() - exact).abs() <= bound).all())
    call.out.fill_(torch.nan)
    assert call.out._base is not None
    return status, is_right and bool(call.out._base.isnan().all())


@pytest.mark.parametrize("name", CASES)
def test_pairs_are_right_and_every_mistake_is_seen(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    own = {number: mistake for number, mistake in enumerate(MISTAKES.values(), 1) if mistake[0] == name}
    changes = [
        (file, place.replace("@", text), place.replace("@", Mistake(file, text, instead).switched(number, text)))
        for number, (_, file, place, text, instead) in own.items()
    ]
    library = built(launch_of(case, call_of(case)), tmp_path, changes)
    assert outcome(library, case) == (0, True)
    for number, told in enumerate(MISTAKES, 1):
        assert number not in own or outcome(library, case, number) != (0, True), told
