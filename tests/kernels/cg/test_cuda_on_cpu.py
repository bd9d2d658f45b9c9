"""The CUDA kernel's source on a grid of fibers: iterates of the textbook, whatever stays on the chip."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch") or shutil.which("g++") is None:
    pytest.skip("needs torch and g++", allow_module_level=True)

import torch

from constrint.kernels.cg.launch import SolveMemory, Span, memory_of
from constrint.kernels.cg.loop import CONVERGED, MOST, NOT_FINITE, NOT_POSITIVE, RUNNING
from constrint.kernels.cg.reference import apply_star, plain_iterations
from constrint.kernels.cg.star import Poisson, StarMatrix
from tests.support.cg_on_cpu import CpuGrid

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
PLAIN = {"threads": 64, "blocks_per_sm": 1, "kept_rows": 0, "kept_x": 0, "unroll": 2, "vector": 1, "lanes": 1}
MOST_HISTORY = 300


def draw(rows: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn((rows,), dtype=torch.float64, generator=torch.Generator().manual_seed(rows)).to(dtype)


def poisoned(b: torch.Tensor, matrix: object, blocks: int, inverse: torch.Tensor | None = None) -> SolveMemory:
    """Memory of a solve in which everything that the kernel has to write is NaN."""
    memory = memory_of(b, torch.full_like(b, math.nan), matrix, MOST_HISTORY, blocks, inverse)  # type: ignore[arg-type]
    for tensor in (memory.r, memory.p, memory.q, memory.state, memory.history):
        if tensor is not None:
            tensor.fill_(math.nan)
    return memory


@pytest.mark.parametrize(
    ("shape", "blocks", "dtype", "changes", "scale"),
    [
        ((9, 7), 2, torch.float64, {}, 1.0),
        ((5, 6, 8), 3, torch.float64, {"kept_rows": 64, "kept_x": 32, "vector": 2}, 0.25),
        ((20, 16), 2, torch.float32, {"kept_rows": 160, "kept_x": 160, "unroll": 1, "vector": 4}, 1.0),
    ],
)
def test_stars_in_two_launches(
    tmp_path: Path, shape: tuple[int, ...], blocks: int, dtype: torch.dtype, changes: dict[str, int], scale: float
) -> None:
    star = Poisson(shape)
    b = draw(star.num_rows, dtype)
    memory = poisoned(b, star, blocks)
    grid = CpuGrid(memory, {**PLAIN, **changes}, blocks, tmp_path)
    grid.run(Span(1e-6, 0.0, 0, 5, 200, has_guess=False, scale=scale))
    assert memory.state[6] == RUNNING
    grid.run(Span(1e-6, 0.0, 5, 200, 200, has_guess=False, is_resumed=True, scale=scale), seed=2)
    iterations, status = int(memory.state[5]), int(memory.state[6])
    assert status == CONVERGED
    exact = torch.double
    expected, square = plain_iterations(lambda v: apply_star(star, v), b.to(exact), None, iterations)
    eps = torch.finfo(dtype).eps
    assert float((memory.x - expected).abs().max()) <= 100 * eps * float(expected.abs().max())
    left = float((b.double() - apply_star(star, memory.x.double())).square().sum())
    assert float(memory.state[3]) == pytest.approx(left, rel=1e-9)
    assert float(memory.history[iterations - 5]) == pytest.approx(float(square), rel=1e-3 if eps > 1e-10 else 1e-9)
    before = memory.x.clone()
    # From the solution: no iteration, and the same x. Of b = 0: x = 0.
    grid.run(Span(1e-5, 0.0, 0, 9, 9, has_guess=True))
    assert (int(memory.state[5]), int(memory.state[6])) == (0, CONVERGED)
    assert torch.equal(memory.x, before)
    b.zero_()
    grid.run(Span(1e-6, 0.0, 0, 9, 9, has_guess=True))
    assert int(memory.state[6]) == CONVERGED
    assert not memory.x.any()
    b.fill_(math.nan)
    grid.run(Span(1e-6, 0.0, 0, 9, 9, has_guess=False))
    assert int(memory.state[6]) == NOT_FINITE


@pytest.mark.parametrize(
    ("index", "changes", "jacobi"),
    [(torch.int32, {"kept_rows": 64, "kept_x": 32}, False), (torch.int64, {"lanes": 8}, True)],
)
def test_matrices_in_csr(tmp_path: Path, index: torch.dtype, changes: dict[str, int], jacobi: bool) -> None:
    """Empty rows beside full ones; columns that stand twice add up."""
    rows = 150
    draws = torch.Generator().manual_seed(1)
    filled = (torch.rand((rows, rows), generator=draws) < 0.03).double() * torch.rand((rows, rows), generator=draws)
    whole = filled + filled.T + torch.diag((filled + filled.T).sum(1) + 1.0 + torch.arange(rows) % 5)
    sparse = whole.to_sparse_csr()
    starts, columns = sparse.crow_indices().to(index), sparse.col_indices().to(index)
    # Every element as two halves.
    twice = (2 * starts, columns.repeat_interleave(2), sparse.values().repeat_interleave(2) / 2)
    b = draw(rows)
    inverse = 1 / whole.diagonal() if jacobi else None
    memory = poisoned(b, twice, 2, inverse)
    grid = CpuGrid(memory, {**PLAIN, **changes}, 2, tmp_path)
    grid.run(Span(0.0, 0.0, 0, 10, 10, has_guess=False))
    assert (int(memory.state[5]), int(memory.state[6])) == (10, MOST)
    expected, _ = plain_iterations(lambda v: whole @ v, b, inverse, 10)
    assert float((memory.x - expected).abs().max()) <= 1e-13 * float(expected.abs().max())
    twice[2].neg_()
    grid.run(Span(0.0, 0.0, 0, 10, 10, has_guess=False))
    assert int(memory.state[6]) in (NOT_POSITIVE, 5)
    assert not memory.x.any()


def test_a_grid_whose_blocks_have_few_rows_gives_the_same_bits_for_every_order(tmp_path: Path) -> None:
    star = StarMatrix((70,), {(0,): 2.5, (1,): -1.0, (-1,): -1.0, (2,): 0.25, (-2,): 0.25})
    b = draw(70)
    memory = poisoned(b, star, 3)
    grid = CpuGrid(memory, PLAIN, 3, tmp_path)
    seen = []
    for seed in range(3):
        grid.run(Span(0.0, 0.0, 0, 12, 12, has_guess=False), seed=seed)
        seen.append((memory.x.clone(), memory.state.clone()))
    assert all(torch.equal(x, seen[0][0]) and torch.equal(state, seen[0][1]) for x, state in seen)
