"""The quantised GEMM thread by thread on the CPU: uneven shares, rows of any length, and no read beyond operands."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from constrint.kernels.gemm.quantised import launch as module
from constrint.kernels.gemm.quantised.shape import tiles_of
from constrint.kernels.gemm.quantised.stream import launch as stream
from constrint.kernels.gemm.quantised.weights import random_weight
from constrint.model import const
from tests.support.quantised_on_cpu import built, launch_of, run_on_cpu

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.mark.parametrize("seed", range(16))
def test_results_are_those_of_fp64_and_no_load_is_stray(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    bits, dtype = draw.choice((4, 4, 8)), draw.choice((torch.bfloat16, torch.float16))
    group = draw.choice((64, 128))
    m, n = draw.choice((1, 3, 8, 16)), draw.choice((130, 200, 250))
    step = 1024 if bits == 4 else 512
    k = draw.choice((step, 2 * step, 2 * step - 24, 700))
    rows = draw.choice((1, 2, 3, 4, 5))
    config = {"rows": rows, "tiles": draw.choice((1, 2)), "warps": 4, "resident": 1, "split_k": 1}
    config["stages"] = draw.choice((0, 2, 3))
    config["x_turns"], config["of_sums"] = int(config["stages"] > 0 and seed % 2), int(bits == 4 and seed % 3 == 1)
    if seed >= 12:  # X in turns, and sums of X, of both types and of groups within a turn and beyond
        m, k, bits = 16, 2 * step, 4
        config |= {"stages": 2 + seed % 2, "x_turns": 1, "of_sums": 1, "tiles": 1 + seed // 14}
    # A block has `rows` tiles or more, but for one: the rule `rows_in_share`.
    tiles = tiles_of(n)
    blocks = draw.choice([each for each in range(1, 6) if rows == 1 or rows <= -(-tiles // each)])
    monkeypatch.setattr(module, "KNOWS_ROWS", seed >= 12 or draw.random() < 0.7)
    weight = random_weight(n, k, bits, group, dtype, device="cpu")
    x = torch.randn(m, k).to(dtype)
    out = torch.full((m, n), float("nan"), dtype=dtype)
    launch = launch_of(x, weight, out, config)
    assert launch.source.macros["READS"] == (launch.arguments[9] if module.KNOWS_ROWS else 0)
    assert run_on_cpu(built(launch, tmp_path / "kernel"), launch, blocks, seed) == 0
    wide = weight.dense(torch.float64)
    exact, terms = x.double() @ wide.T, x.double().abs() @ wide.abs().T
    half = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    bound = 1.01 * terms * (2.0**-22 + k * 2.0**-24) + half * exact.abs() + 2.0**-24
    assert ((out.double() - exact).abs() <= bound).all(), (config, blocks)


@pytest.mark.parametrize("seed", range(16))
def test_the_streaming_kernel_gives_what_fp64_does(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    bits, dtype = draw.choice((4, 4, 8)), draw.choice((torch.bfloat16, torch.float16))
    group = draw.choice((64, 128, 2048))
    m, n = draw.choice((1, 2, 3, 7, 9, 16)), draw.choice((130, 200, 250))
    step = 1024 if bits == 4 else 512
    k, offset = draw.choice((step, 2 * step, 2 * step - 24, 700, 333)), draw.choice((0, 0, 1, 8))
    config = {"rows": draw.choice((1, 2, 3)), "row_warps": draw.choice((2, 3, 4)), "k_warps": draw.choice((1, 2))}
    config |= {"tiles": draw.choice((2, 4, 8)), "stages": draw.choice((2, 3, 4)), "split_k": 1}
    # A block takes all of its tiles at a time, or some of them.
    taken = config["rows"] * config["row_warps"]
    blocks = draw.choice((1, 2, 5, 7))
    monkeypatch.setattr(stream, "slots_of", lambda gpu, split: const(blocks))
    weight = random_weight(n, k, bits, group, dtype, device="cpu")
    x = torch.randn(m, k + offset).to(dtype)[:, offset:]
    out = torch.full((m, n), float("nan"), dtype=dtype)
    launch = launch_of(x, weight, out, config)
    assert launch.grid == (blocks,)
    assert launch.source.macros["ONE_PASS"] == (taken >= -(-tiles_of(n) // blocks))
    assert run_on_cpu(built(launch, tmp_path / "kernel"), launch, blocks, seed) == 0
    wide = weight.dense(torch.float64)
    exact, terms = x.double() @ wide.T, x.double().abs() @ wide.abs().T
    half = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    bound = 1.01 * terms * (2.0**-22 + k * 2.0**-24) + half * exact.abs() + 2.0**-24
    assert ((out.double() - exact).abs() <= bound).all(), (config, blocks)


def test_a_row_of_whole_vectors_is_told_to_the_kernel() -> None:
    config = {"rows": 1, "tiles": 1, "warps": 4, "resident": 1, "split_k": 1, "stages": 0, "x_turns": 0}
    config["of_sums"] = 0
    told = []
    for k, offset in ((1024, 0), (1000, 0), (1024, 1)):
        weight = random_weight(128, k, 4, 128, torch.float16, device="cpu")
        x = torch.empty(k + 8, dtype=torch.float16)[offset : offset + k][None]
        macros = launch_of(x, weight, torch.empty(1, 128, dtype=torch.float16), config).source.macros
        told.append((macros["READS"], macros["GROUPS"], macros["IS_WHOLE"]))
    assert told == [(16, 8, 1), (16, 8, 0), (16, 8, 0)]
