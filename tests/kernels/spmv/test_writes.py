"""Which writes to a matrix's values torch's counters tell of, and when they do not."""

from __future__ import annotations

import gc

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

from constrint.kernels.spmv import writes
from constrint.kernels.spmv.writes import Writes, version_of

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
PLACES = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])


def made(values: Tensor) -> Tensor:
    """A matrix of these values."""
    return torch.sparse_csr_tensor(*PLACES, values, (2, 2), check_invariants=False)


def test_writes_by_every_name_are_counted() -> None:
    values = torch.ones(3)
    m = made(values)
    kept, before = m.values().detach(), version_of(m)
    seen = Writes(m, kept)
    assert seen.are_counted()
    values[1:].mul_(2)
    assert (seen.number, version_of(m)) == (1, before)
    m.values().add_(1)
    assert (seen.number, version_of(m)) == (1, before + 1)
    with torch.no_grad():
        torch._foreach_add_([values], 1.0)
    assert seen.number == 2
    torch.autograd.graph.increment_version(m)
    assert version_of(m) == before + 2
    del values
    gc.collect()
    assert seen.are_counted()


@pytest.mark.parametrize("make", [
    lambda m: m.values().data,
    lambda m: m.values().numpy(),
    lambda m: m.values().__dlpack__(),
    lambda m: made(m.values()),
    lambda m: m.data,
])  # fmt: skip
def test_what_else_holds_the_memory_is_seen(make: object) -> None:
    m = made(torch.ones(3))
    kept = m.values().detach()
    seen = Writes(m, kept)
    assert seen.are_counted()
    other = make(m)  # type: ignore[operator]
    assert not seen.are_counted()
    del other
    gc.collect()
    assert seen.are_counted()
    assert m.values().tolist() == kept.tolist()


def test_two_matrices_of_one_tensor() -> None:
    values = torch.ones(3)
    m, other = made(values), made(values)
    kept = m.values().detach()
    assert not Writes(m, kept).are_counted()
    del other
    gc.collect()
    assert Writes(m, kept).are_counted()


def test_matrices_made_by_torch_and_of_parameters() -> None:
    for m in (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csr().double().requires_grad_()):
        kept = m.values().detach()
        assert Writes(m, kept).are_counted()
    out = (m @ torch.ones(3, dtype=torch.float64)).sum()
    assert Writes(m, kept).are_counted()
    out.backward()  # type: ignore[no-untyped-call]
    weight = torch.nn.Parameter(torch.ones(3))
    m = made(weight)  # its gradient's graph holds the parameter, and may hand it on
    assert not Writes(m, m.values().detach()).are_counted()
    with torch.no_grad():
        m = made(weight.detach())
        kept = m.values().detach()
        assert Writes(m, kept).number == 0


def test_nothing_is_proven_where_torch_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        m = made(torch.ones(3))
        assert version_of(m) == 0
        assert not Writes(m, m.values()).are_counted()
    m = made(torch.ones(3))
    monkeypatch.setattr(writes, "_given_values", lambda matrix: None)
    assert not Writes(m, m.values().detach()).are_counted()
