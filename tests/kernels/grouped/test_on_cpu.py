"""Grouped products run on the CPU thread by thread: ragged and empty experts, offsets that make no sense, mistakes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.grouped.launch import GroupedCall, grouped_launch
from constrint.kernels.grouped.reference import grouped_reference
from tests.support.cuda_gemm_on_cpu import built, run
from tests.support.wgmma_on_cpu import Mistake

H200 = load_gpu("h200")
USUAL = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_stages": 2, "consumers": 1, "by_columns": 1, "in_turns": 0}
USUAL |= {"cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 2}


@dataclass(frozen=True)
class Case:
    """Products of one launch.

    Args:
        rows, n, k: Sizes.
        ends: Where each expert's rows end, as the caller says.
        b_along_k: Whether weights lie along K.
        bias: Rows of the bias: 0 for none, 1 for one of all experts, or one of each.
        blocks: Blocks of the grid.
        in_boxes: Whether C has 16 bits an element, in rows that the TMA unit stores.
        config: What differs from `USUAL`.
    """

    rows: int
    n: int
    k: int
    ends: tuple[int, ...]
    b_along_k: bool = False
    bias: int = 0
    blocks: int = 3
    in_boxes: bool = False
    config: dict[str, int] = field(default_factory=dict)


TURNED = {"tile_m": 24, "tile_n": 64, "turned": 1}
CASES = {
    "ragged, empty ones first, amid and last": Case(210, 72, 70, (0, 70, 70, 71, 199, 210, 210), config={"tile_n": 72}),
    "turned, few rows each": Case(60, 136, 70, (3, 3, 30, 55, 60), b_along_k=True, bias=5, config=TURNED),
    "in turns, a bias for all": Case(
        150, 40, 130, (100, 150), bias=1, config={"consumers": 2, "in_turns": 1, "tile_n": 40}
    ),
    "more experts than a warp has threads": Case(40, 24, 64, tuple(range(1, 41)), blocks=2, config=TURNED),
    "ends that go back, lie behind the last row, or before the first": Case(
        130, 24, 64, (-5, 70, 20, 500, 90), blocks=1, config={"tile_n": 24}
    ),
    "rows of no expert": Case(130, 24, 64, (10, 75), bias=2, config={"tile_n": 24}),
    "boxes, and rows where an expert ends": Case(
        230, 72, 70, (0, 64, 100, 229, 230), bias=5, in_boxes=True, config={"tile_n": 72}
    ),
    "boxes, turned": Case(90, 136, 70, (24, 50, 74, 90), b_along_k=True, in_boxes=True, config=TURNED),
    "boxes, consumers that share a tile": Case(
        190, 64, 70, (100, 190), in_boxes=True, config={"tile_m": 128, "consumers": 2}
    ),
    "three rows, odd columns": Case(3, 21, 64, (1, 3), config={"tile_n": 24}),
}

#: A mistake by what it is: a case, a file, a text and what is run instead.
MISTAKES: dict[str, tuple[str, str, str, str]] = {
    "rows of the next expert are stored": (
        *("ragged, empty ones first, amid and last", "kernel_on_cpu.cu"),
        *("s.limit = walk.end;", "s.limit = walk.end + 1;"),
    ),
    "weights are those of the first expert": (
        *("turned, few rows each", "groups.cuh", "u.batch = walk.product;", "u.batch = 0;"),
    ),
    "ends that go back are taken as they are": (
        *("ends that go back, lie behind the last row, or before the first", "groups.cuh"),
        *("end = max(end, other);", "end = end;"),
    ),
    "rows of no expert stay as they were": (
        *("rows of no expert", "groups.cuh", "s.out[row * s.stride + column] = 0;", ";"),
    ),
    "a box reaches into rows of the next expert": (
        *("boxes, and rows where an expert ends", "kernel_on_cpu.cu", "!is_whole", "false"),
    ),
    "threads store where boxes are still read": (
        *("boxes, and rows where an expert ends", "kernel_on_cpu.cu"),
        *("if (threadIdx.x % kWarpgroup == 0) wait_stored<0>();\n      named_sync(1 + consumer, kWarpgroup);", ";"),
    ),
    "experts beyond those of a warp start anew": (
        *("more experts than a warp has threads", "groups.cuh", "units += __shfl_sync(~0u, own, 31);", "units = 0;"),
    ),
}


def call_of(case: Case, seed: int) -> tuple[GroupedCall, torch.Tensor]:
    """A call on small numbers, sums of which are exact, and the memory of its results with what surrounds them."""
    draw = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randint(-9, 9, shape, generator=draw).to(torch.bfloat16)

    pitch = -(-case.k // 8) * 8
    a = torch.full((case.rows + 1, pitch), torch.nan, dtype=torch.bfloat16)
    a[: case.rows, : case.k] = numbers(case.rows, case.k)
    experts, wide = len(case.ends), -(-(case.k if case.b_along_k else case.n) // 8) * 8
    length = case.n if case.b_along_k else case.k
    b = torch.full((experts, length + 1, wide), torch.nan, dtype=torch.bfloat16)
    b = b[:, :length, : case.k if case.b_along_k else case.n]
    b.copy_(numbers(*b.shape))
    bias = numbers(case.n) if case.bias == 1 else numbers(experts, case.n) if case.bias else None
    kind = torch.bfloat16 if case.in_boxes else torch.float32
    whole = torch.full((case.rows + 2, case.n + 8), torch.nan, dtype=kind)
    out = whole[1 : case.rows + 1, : case.n]
    offsets = torch.tensor(case.ends, dtype=torch.int32)
    weights = b.transpose(1, 2) if case.b_along_k else b
    return GroupedCall(a[: case.rows, : case.k], weights, offsets, out, bias), whole


@pytest.mark.parametrize("name", CASES)
def test_results_are_exact_nothing_else_is_written_and_every_mistake_is_seen(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    own = {number: made for number, made in enumerate(MISTAKES.values(), 1) if made[0] == name}
    changes = [
        (file, text, Mistake(file, text, instead).switched(number, text))
        for number, (_, file, text, instead) in own.items()
    ]
    config = USUAL | case.config
    launch = grouped_launch(H200, call_of(case, 1)[0], config)
    assert bool(launch.source.macros["STORES_BOXES"]) == case.in_boxes
    library = built(launch, tmp_path, changes)
    for mistake in (0, *own):
        call, whole = call_of(case, 1)
        status = run(library, grouped_launch(H200, call, config), case.blocks, 1, mistake)
        wide = (call.a.double(), call.b.double(), call.offsets, None if call.bias is None else call.bias.double())
        is_exact = torch.equal(call.out, grouped_reference(*wide).to(call.out.dtype))
        call.out.fill_(torch.nan)
        is_right = status == 0 and is_exact and bool(whole.isnan().all())
        assert is_right == (mistake == 0), mistake
