"""The kernels of `spmv` in CUDA C++ on the CPU, thread by thread, on matrices of hostile structure."""

from __future__ import annotations

import shutil

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.spmv.formats import panels_of, patterns_of, tiles_of
from constrint.kernels.spmv.launch import SpmvCall, merge_launches, panel_launches, patterns_launch
from constrint.kernels.spmv.reference import spmv_reference
from tests.support.cuda_spmv_on_cpu import SpmvOnCpu

H200 = load_gpu("h200")
#: Lengths of rows: short ones, rows of several tiles (of 256 items) side by side, empty ones at both ends.
LENGTHS = {
    "short": [i * 7 % 5 for i in range(150)],
    "long": [0, 0, 3, 700, 0, 2, 300, 256, 255, 1, 0, 40, *[2] * 50, 900, 0, 0],
}


def drawn(lengths: list[int], columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(len(lengths))
    crow = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    entries = int(crow[-1])
    places = torch.randint(0, columns, (entries,), generator=draw, dtype=torch.int32)
    return crow, places, torch.randn(entries, generator=draw), torch.randn(columns, generator=draw)


def test_every_kernel_adds_the_rows_of_every_matrix(tmp_path_factory: pytest.TempPathFactory) -> None:
    # One test, so that each of the kernels is built once.
    cpu = SpmvOnCpu(tmp_path_factory.mktemp("spmv"))
    config = {"num_warps": 2, "items": 4, "resident": 1, "num_stages": 3, "by_rows": 0, "steps": 8}
    for name, lengths in LENGTHS.items():
        crow, columns, values, x = drawn(lengths, 500)
        source = torch.randn(len(lengths)) if name == "long" else None
        y = torch.full((len(lengths),), float("nan"))
        call = SpmvCall(crow, columns, values, x, y, source, 2.0, -0.5)
        exact = spmv_reference(crow, columns, values, x, source, 2.0, -0.5)
        by_rows = {**config, "by_rows": int(name == "short"), "num_stages": 2 if name == "short" else 3}
        main, *rest = merge_launches(H200, call, tiles_of(crow, 256), by_rows)
        cpu.run(main, blocks=3)
        for launch in rest:
            cpu.run(launch)
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=2e-4)
        if name == "long":
            continue
        y.fill_(float("nan"))
        panels = panels_of(crow, columns, values, 500, 200, 8)
        tiles = tiles_of(panels.crow, 2048)
        main, *rest = panel_launches(H200, call, panels, tiles, {"num_warps": 2, "entries_per_lane": 8})
        cpu.run(main, blocks=2)
        for launch in rest:
            cpu.run(launch)
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=2e-4)


def patterned(kind: str, draw: torch.Generator) -> tuple[Tensor, Tensor, int]:
    """(crow, columns, columns of the matrix) of rows of few patterns."""
    rows: list[list[int]] = []
    if kind == "stencil":
        rows = [[r + d for d in (-16, -1, 0, 1, 16) if 0 <= r + d < 150] for r in range(150)]
    elif kind == "band":  # 16 entries a row: gaps in shared memory
        rows = [[r + d for d in range(16) if r + d < 150] for r in range(150)]
    elif kind == "blocks":  # no two rows of a group have one pattern
        rows = [[r // 32 * 32 + i for i in range(32)] for r in range(96)]
    elif kind == "hostile":  # empty rows, unsorted columns, one place twice, no row at the end of a group
        rows = [[], [1, 0, 1], [3, 2], [], []] * 7
        rows = [[min(r + d, 40) if r > 33 else r + d for d in row] for r, row in enumerate(rows)]
    lengths = torch.tensor([len(row) for row in rows])
    crow = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
    return crow, torch.tensor([column for row in rows for column in row], dtype=torch.int32), 150


@pytest.mark.parametrize("kind", ["stencil", "band", "blocks", "hostile"])
def test_rows_of_few_patterns_are_added_from_their_values_alone(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cpu, draw = SpmvOnCpu(tmp_path_factory.mktemp("patterns")), torch.Generator().manual_seed(3)
    crow, columns, width = patterned(kind, draw)
    rows, entries = crow.shape[0] - 1, columns.shape[0]
    dtype = torch.float64 if kind == "blocks" else torch.float32
    values, x = (torch.randn(size, generator=draw, dtype=dtype) for size in (entries, width))
    source = torch.randn(rows, generator=draw, dtype=dtype) if kind == "hostile" else None
    y = torch.full((rows,), float("nan"), dtype=dtype)
    patterns = patterns_of(crow, columns, int((crow[1:] - crow[:-1]).max()))
    assert patterns is not None
    call = SpmvCall(crow, columns, values, x, y, source, 2.0, -0.5)
    exact = spmv_reference(crow, columns, values, x, source, 2.0, -0.5)
    config = {"num_warps": 2, "num_stages": 1 if kind == "hostile" else 2, "resident": 1}
    launch = patterns_launch(H200, call, patterns, config)
    for blocks in (1, 2):
        y.fill_(float("nan"))
        cpu.run(launch, blocks=blocks)
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)
