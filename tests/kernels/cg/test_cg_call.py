"""`constrint.cg` on the CPU beside SciPy, and what it says of systems that it cannot solve."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs torch", allow_module_level=True)

import torch

from constrint import Poisson, StarMatrix, cg
from constrint.errors import UnknownNameError, UnsupportedError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
SHAPE = (15, 11)
ROWS = 165


def dense(star: StarMatrix) -> torch.Tensor:
    """The matrix, entry by entry from its definition."""
    made = torch.zeros((star.num_rows, star.num_rows), dtype=torch.float64)
    for row, place in enumerate(np.ndindex(star.shape)):
        for offset, value in star.offsets.items():
            to = tuple(i + step for i, step in zip(place, offset, strict=True))
            if all(0 <= i < size for i, size in zip(to, star.shape, strict=True)):
                made[row, int(np.ravel_multi_index(to, star.shape))] = value
    return made


def right_side(rows: int = ROWS, seed: int = 0) -> torch.Tensor:
    return torch.randn((rows,), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["star", "csr", "dense", "operator"])
@pytest.mark.parametrize("with_guess", [False, True])
def test_iterations_and_solution_are_those_of_scipy(kind: str, with_guess: bool) -> None:
    linalg = pytest.importorskip("scipy.sparse.linalg")
    star = Poisson(SHAPE)
    whole = dense(star)
    b = right_side()
    guess = right_side(seed=1) if with_guess else None
    matrix = {"star": star, "csr": whole.to_sparse_csr(), "dense": whole, "operator": lambda v: whole @ v}[kind]
    steps: list[np.ndarray] = []
    linalg.cg(
        whole.numpy(),
        b.numpy(),
        x0=None if guess is None else guess.numpy(),
        rtol=1e-9,
        callback=lambda x: steps.append(x.copy()),
    )
    found = cg(matrix, b, x0=guess, rtol=1e-9)
    assert found.status == "converged"
    assert abs(found.iterations - len(steps)) <= 1
    assert found.history.shape == (found.iterations + 1,)
    # The same iterate, as the same number of iterations leaves it.
    number = 25
    same = cg(matrix, b, x0=guess, rtol=0.0, maxiter=number)
    assert same.status == "maxiter"
    np.testing.assert_allclose(same.x.numpy(), steps[number - 1], rtol=0, atol=1e-11 * np.abs(steps[number - 1]).max())
    left = float(torch.linalg.vector_norm(b - whole @ found.x))
    assert found.residual == pytest.approx(left, rel=1e-6)
    assert found.residual <= 1e-9 * float(b.norm())


def test_stars_of_three_axes_and_grids_keep_the_shape_of_b() -> None:
    star = StarMatrix((4, 5, 6), {(0, 0, 0): 9.0, (1, 0, 0): -1.0, (-1, 0, 0): -1.0, (0, 1, 2): 0.5, (0, -1, -2): 0.5})
    b = right_side(120).reshape(4, 5, 6)
    found = cg(star, b, rtol=1e-12)
    assert found.x.shape == b.shape
    exact = torch.linalg.solve(dense(star), b.reshape(-1))
    torch.testing.assert_close(found.x.reshape(-1), exact, rtol=1e-10, atol=1e-11)


def test_preconditioners_take_fewer_iterations_where_the_diagonal_varies() -> None:
    scale = torch.logspace(0, 3, ROWS, dtype=torch.float64).sqrt()
    matrix = scale[:, None] * dense(Poisson(SHAPE)) * scale
    b = right_side()
    plain, jacobi = cg(matrix, b), cg(matrix.to_sparse_csr(), b, preconditioner="jacobi")
    named = cg(matrix, b, preconditioner=lambda r: r / matrix.diagonal())
    assert plain.status == jacobi.status == named.status == "converged"
    assert jacobi.iterations == named.iterations < plain.iterations // 2


def test_edges() -> None:
    star, b = Poisson(SHAPE), right_side()
    exact = torch.linalg.solve(dense(star), b)
    nothing = cg(star, torch.zeros_like(b), x0=b)
    assert nothing.status == "converged"
    assert not nothing.x.any()
    assert cg(star, b, x0=exact).iterations == 0
    none = cg(star, b, maxiter=0)
    assert (none.status, none.iterations) == ("maxiter", 0)
    assert none.residual == pytest.approx(float(b.norm()))
    assert cg(torch.zeros((0, 0)), torch.zeros(0)).status == "converged"
    kept = b.clone()
    guess = exact.clone()
    cg(star, b, x0=guess, maxiter=3, rtol=0.0)
    assert torch.equal(guess, exact)
    assert torch.equal(b, kept)


def test_what_cannot_be_solved_is_said() -> None:
    star, b = Poisson(SHAPE), right_side()
    whole = dense(star)
    indefinite = whole - 3.0 * torch.eye(ROWS, dtype=torch.float64)
    assert "not positive definite" in cg(indefinite, b).status
    assert "not positive definite" in cg(-whole, b).status
    assert "not finite" in cg(star, b * float("nan")).status
    assert "not finite" in cg(lambda v: v * float("nan"), b).status
    assert "preconditioner" in cg(star, b, preconditioner=lambda r: -r).status
    rounded = cg(star, b, rtol=0.0)
    assert "rounding" in rounded.status
    assert rounded.residual == pytest.approx(float((b - whole @ rounded.x).norm()), rel=1e-6)
    singular = whole.clone()
    singular[0] = singular[:, 0] = 0.0
    stuck = cg(singular, torch.eye(ROWS, dtype=torch.float64)[0])
    assert stuck.status.startswith("breakdown")
    # Whatever an unsymmetric matrix does, "converged" is said of a solution alone.
    skewed = whole + torch.triu(torch.rand((ROWS, ROWS), dtype=torch.float64), 1)
    found = cg(skewed, b, maxiter=400)
    left = float((b - skewed @ found.x).norm())
    assert found.residual == pytest.approx(left, rel=1e-6)
    assert (found.status == "converged") == (left <= 1e-6 * float(b.norm()))


def test_gradients_reach_b_by_another_solve() -> None:
    matrix = torch.eye(6, dtype=torch.float64) * 3 + 1
    b = right_side(6).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: cg(matrix, v, rtol=1e-13).x, b)
    with pytest.raises(UnsupportedError, match="detach"):
        cg(matrix.requires_grad_(), b)


def test_arguments_that_cannot_be() -> None:
    star, b = Poisson(SHAPE), right_side()
    for error, arguments, named in (
        (UnknownNameError, (star, b), {"kernel": "cusparse"}),
        (UnknownNameError, (star, b), {"preconditioner": "ilu"}),
        (UnsupportedError, (star, b), {"kernel": "cuda"}),
        (UsageError, (star, b), {"rtol": -1.0}),
        (UsageError, (star, b), {"atol": float("nan")}),
        (UsageError, (star, b), {"maxiter": 1.5}),
        (UsageError, (star, b), {"config": {"threads": 512}}),
        (UsageError, (lambda v: v[1:], b), {}),
        (UsageError, (lambda v: v, b), {"preconditioner": "jacobi"}),
        (UsageError, (dense(star).to_sparse(), b), {}),
        (RuntimeError, (star, b[1:]), {}),
        (RuntimeError, (star, b.half()), {}),
        (RuntimeError, (dense(star).float(), b), {}),
        (RuntimeError, (star, b), {"x0": b.float()}),
        (TypeError, ("poisson", b), {}),
        (TypeError, (star, [1.0]), {}),
    ):
        with pytest.raises(error):
            cg(*arguments, **named)
    wrong: tuple[tuple[tuple[int, ...], dict[tuple[int, ...], float]], ...] = (
        ((3, 3), {(0, 0): 4.0, (0, 1): -1.0}),
        ((3,), {(0,): float("inf")}),
        ((3,), {(3,): 1.0, (-3,): 1.0}),
        ((0, 3), {(0, 0): 1.0}),
        ((3, 3), {(0,): 1.0}),
    )
    for shape, offsets in wrong:
        with pytest.raises(UsageError):
            StarMatrix(shape, offsets)
