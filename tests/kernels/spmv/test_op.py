"""`spmv` on the CPU: torch's semantics, gradients, what is kept of a matrix, what is refused."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.kernels.spmv import operator, spmv
from constrint.kernels.spmv.structure import _KNOWN, known, structure_of

#: torch warns once that its CSR layout is young and that it is not checked.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
DRAW = torch.Generator().manual_seed(3)


def drawn(rows: int = 30, width: int = 20, dtype: torch.dtype = torch.float64) -> Tensor:
    """A matrix with empty rows, unsorted columns, and places that occur twice."""
    lengths = torch.randint(0, 6, (rows,), generator=DRAW)
    lengths[3:7] = 0
    crow = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    columns = torch.randint(0, width, (int(crow[-1]),), generator=DRAW)
    values = torch.randn(columns.shape, generator=DRAW, dtype=torch.float64).to(dtype)
    return torch.sparse_csr_tensor(crow, columns, values, (rows, width), check_invariants=False)


def dense(m: Tensor) -> Tensor:
    rows = torch.repeat_interleave(torch.arange(m.shape[0]), (m.crow_indices()[1:] - m.crow_indices()[:-1]))
    out = torch.zeros(m.shape, dtype=torch.float64)
    return out.index_put_((rows, m.col_indices()), m.values().double(), accumulate=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_products_are_those_of_the_dense_matrix(dtype: torch.dtype) -> None:
    m, x, y = drawn(dtype=dtype), torch.randn(20, 3).to(dtype), torch.randn(30, 3).to(dtype)
    close: Any = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    exact = dense(m) @ x.double()
    torch.testing.assert_close(spmv(m, x).double(), exact, **close)
    torch.testing.assert_close(spmv(m, x[:, 0]).double(), exact[:, 0], **close)
    out = spmv(m, x[:, 1], alpha=-1.5, beta=0.5, y=y[:, 1])
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), -1.5 * exact[:, 1] + 0.5 * y[:, 1].double(), **close)
    # With a factor of 0 what is added is not read.
    torch.testing.assert_close(spmv(m, x, beta=0.0, y=torch.full_like(y, float("nan"))).double(), exact, **close)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (4, 6)])
def test_matrices_without_entries_give_zeros(shape: tuple[int, int]) -> None:
    m = torch.sparse_csr_tensor(torch.zeros(shape[0] + 1, dtype=torch.int32), [], torch.empty(0), shape)
    x, y = torch.full((shape[1],), float("nan")), torch.ones(shape[0])
    assert torch.equal(spmv(m, x), torch.zeros(shape[0]))
    assert torch.equal(spmv(m, x, beta=2.0, y=y), 2 * y)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_gradients_of_values_x_and_y() -> None:
    # torch adds entries of one place before it hands their gradients on; the operator below takes them as they are.
    once = (dense(drawn())).to_sparse_csr()
    x, y = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (20, 30))

    def of_matrix(values: Tensor, x: Tensor, y: Tensor) -> Tensor:
        places = once.crow_indices(), once.col_indices()
        whole = torch.sparse_csr_tensor(*places, values, once.shape, check_invariants=False)
        out: Tensor = spmv(whole, x, alpha=1.5, beta=0.3, y=y)
        return out

    assert torch.autograd.gradcheck(of_matrix, (once.values().clone().requires_grad_(), x, y))
    m = drawn()
    values = m.values().clone().requires_grad_()
    arrays = m.crow_indices(), m.col_indices()
    assert torch.autograd.gradcheck(
        lambda values, x, y: torch.ops.constrint.spmv(*arrays, values, x, y, 20, 1.5, 0.3), (values, x, y)
    )
    leaf = drawn().requires_grad_()
    spmv(leaf, x.detach()).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.layout is torch.sparse_csr  # its own places alone
    seen = torch.library.opcheck(torch.ops.constrint.spmv.default, (*arrays, values, x, y, 20, 1.5, 0.3))
    assert set(seen.values()) == {"SUCCESS"}
    assert operator.matrix_of(*arrays, values, 20) is operator.matrix_of(*arrays, values, 20)


def test_what_is_kept_goes_with_the_matrix_and_with_its_version() -> None:
    gc.collect()
    m, before = drawn(), len(_KNOWN)
    first = known(m)
    assert known(m) is first
    assert first.tiles(64) is first.tiles(64)
    first.ell(8, 0)
    assert first.num_copied_bytes > 0
    m.values().mul_(2)
    second = known(m)
    assert second is not first
    assert first.num_copied_bytes == 0
    assert len(_KNOWN) == before + 1
    del m, first, second
    gc.collect()
    assert len(_KNOWN) == before


def test_facts_of_rows_and_columns() -> None:
    crow, columns = torch.tensor([0, 2, 2, 8]), torch.arange(8) * 8
    facts = structure_of(crow, columns, (3, 64), 4).facts
    assert (facts.longest, facts.spread, facts.scattered) == (6, 94, 100)
    assert structure_of(crow, torch.arange(8), (3, 64), 4).facts.scattered == 12
    with pytest.raises(UsageError, match="crow_indices rise from 0 to the 8 entries"):
        structure_of(torch.tensor([0, 5, 2, 8]), columns, (3, 64), 4)
    with pytest.raises(UsageError, match="columns are from 0 to 55; here they reach from 0 to 56"):
        structure_of(crow, columns, (3, 56), 4)
    bad = torch.sparse_csr_tensor(crow, columns, torch.ones(8), (3, 56), check_invariants=False)
    with pytest.raises(UsageError, match="columns are from 0 to 55"):
        spmv(bad, torch.ones(56), check=True)


def test_arguments_that_do_not_go_together_are_refused() -> None:
    m, x = drawn(), torch.randn(20, dtype=torch.float64)
    with pytest.raises(TypeError, match="x is a tensor, got list"):
        spmv(m, [1.0])
    with pytest.raises(RuntimeError, match="a CSR tensor"):
        spmv(dense(m), x)
    with pytest.raises(RuntimeError, match=r"x is \(20,\)"):
        spmv(m, x[:3])
    with pytest.raises(RuntimeError, match="one dtype"):
        spmv(m, x.float())
    with pytest.raises(RuntimeError, match="y is of the result's shape"):
        spmv(m, x, beta=1.0, y=x)
    with pytest.raises(UnknownNameError, match="unknown kernel 'fast'"):
        spmv(m, x, kernel="fast")
    with pytest.raises(UsageError, match="needs the kernel"):
        spmv(m, x, config={"items": 4})
    with pytest.raises(UnsupportedError, match="it runs on a GPU"):
        spmv(m, x, kernel="merge")
    assert torch.equal(spmv(m, x, kernel="library"), spmv(m, x))
