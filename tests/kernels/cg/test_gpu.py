"""`cg` on a GPU: every kernel beside fp64, ragged systems, many launches, streams, and memory of NaN."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from constrint import Poisson, StarMatrix, cg
from constrint.kernels.cg import fused
from constrint.kernels.cg.reference import apply_star, plain_iterations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
    pytest.mark.filterwarnings("ignore:Sparse"),
]
STAR = StarMatrix((31, 17, 8), {(0, 0, 0): 9.0, (1, 0, 0): -1.0, (-1, 0, 0): -1.0, (0, 1, 2): 0.5, (0, -1, -2): 0.5})


def dense(star: StarMatrix) -> torch.Tensor:
    return torch.stack([apply_star(star, row) for row in torch.eye(star.num_rows, dtype=torch.float64)]).cuda()


def draw(rows: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    torch.full((1 << 22,), float("nan"), dtype=torch.float64, device="cuda")  # what torch hands out next
    return torch.randn((rows,), dtype=torch.float64, generator=torch.Generator().manual_seed(rows)).to("cuda", dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("star", [STAR, Poisson((67, 45)), Poisson((999,))], ids=str)
def test_every_kernel_and_matrix_gives_the_same_iterates(star: StarMatrix, dtype: torch.dtype) -> None:
    b, whole = draw(star.num_rows, dtype), dense(star)
    number = 15
    exact, _ = plain_iterations(lambda v: whole @ v, b.double(), None, number)
    typed = whole.to(dtype)
    matrices: dict[str, list[Any]] = {
        "cuda": [star, typed.to_sparse_csr()],
        "triton": [star, typed, lambda v: typed @ v],
        "torch": [star],
    }
    for kernel, some in matrices.items():
        for matrix in some:
            for preconditioner in (None, "jacobi", lambda r: 0.25 * r):
                if kernel == "cuda" and callable(preconditioner):
                    continue
                if callable(matrix) and preconditioner == "jacobi":
                    continue
                found = cg(matrix, b, rtol=0.0, maxiter=number, preconditioner=preconditioner, kernel=kernel)
                assert (found.kernel, found.iterations, found.status) == (kernel, number, "maxiter")
                error = float((found.x - exact).abs().max())
                assert error <= 500 * torch.finfo(dtype).eps * float(exact.abs().max()), (kernel, error)
                left = float((b.double() - whole @ found.x.double()).norm())
                assert found.residual == pytest.approx(left, rel=1e-3, abs=1e-6 if dtype == torch.float32 else 1e-13)


def test_a_solve_of_many_launches_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    star = Poisson((130, 90))
    b = draw(star.num_rows)
    one = cg(star, b, rtol=1e-9)
    monkeypatch.setattr(fused, "ITERATIONS_OF_LAUNCH", 7)
    many = cg(star, b, rtol=1e-9)
    assert one.status == many.status == "converged"
    # A launch that resumes adds in another order than one that goes on: the iterates agree within rounding.
    assert abs(one.iterations - many.iterations) <= 1
    torch.testing.assert_close(one.x, many.x, rtol=1e-7, atol=1e-9)
    steps = min(len(one.history), len(many.history)) // 2
    torch.testing.assert_close(one.history[:steps], many.history[:steps], rtol=1e-6, atol=0.0)


def test_what_cannot_be_solved_is_said() -> None:
    whole, b = dense(Poisson((20, 20))), draw(400)
    negative: list[Any] = [-whole, -whole.to_sparse_csr(), lambda v: -(whole @ v)]
    for matrix in negative:
        assert "not positive definite" in cg(matrix, b).status
    positive: list[Any] = [Poisson((20, 20)), whole.to_sparse_csr(), whole]
    for matrix in positive:
        assert "not finite" in cg(matrix, b * float("nan")).status
        assert "rounding" in cg(matrix, b, rtol=1e-18).status
        none = cg(matrix, torch.zeros_like(b), x0=b)
        assert none.status == "converged"
        assert not none.x.any()
        assert cg(matrix, b, x0=torch.linalg.solve(whole, b)).iterations == 0


def test_functions_that_read_the_device_run_without_a_graph() -> None:
    whole, b = dense(Poisson((30, 30))), draw(900)

    def product(v: torch.Tensor) -> torch.Tensor:
        return whole @ v if float(v[0]) == float(v[0]) else v

    found = cg(product, b, rtol=1e-10)
    assert (found.status, found.kernel) == ("converged", "triton")
    assert cg(whole, b, rtol=1e-10).iterations == found.iterations


def test_solves_on_streams_do_not_meet() -> None:
    star = Poisson((256, 200))
    rights = [draw(star.num_rows) * (i + 1) for i in range(4)]
    alone = [cg(star, b, rtol=1e-8).x for b in rights]
    torch.cuda.synchronize()
    for b, x in zip(rights, alone, strict=True):
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            assert torch.equal(cg(star, b, rtol=1e-8).x, x)
    b = rights[0].clone().requires_grad_()
    (cg(star, b, rtol=1e-12).x * rights[1]).sum().backward()
    torch.testing.assert_close(b.grad, cg(star, rights[1], rtol=1e-12).x)
