"""When torch's product runs, a trial begins, a copy is made, or is given up: on stand-ins of a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.spmv import copies, products
from constrint.kernels.spmv.products import Products
from constrint.kernels.spmv.structure import Known, Structure, known
from constrint.select.workload import Workload

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
#: What the structure says, so that a copy pays: uniform random columns.
LARGE = Workload(
    "spmv", {"rows": 1_000_000, "cols": 1_000_000, "nnz": 32_000_000}, "fp32", {"longest": 32, "scattered": 98}
)


class Trial:
    """Stands in for a trial: the second product ends it with the candidate that `best` names."""

    best = 0

    def __init__(self, runs: Sequence[Any], rounds: int, settle: Callable[..., None], standards: Sequence[int]) -> None:
        self.runs, self.settle, self.is_begun = runs, settle, False

    def __call__(self, *operands: Any) -> Any:
        place = self.best % len(self.runs)
        if self.is_begun:
            self.settle(operands, [2.5e-4] * len(self.runs), place)
        self.is_begun = True
        return self.runs[place](*operands)


class NoEvent:
    """An event that has passed."""

    def record(self) -> None:
        """Nothing."""

    def query(self) -> bool:
        """True."""
        return True


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that run, in order."""
    names: list[str] = []
    gpu, zeros = load_gpu("h200"), torch.zeros

    def planned(found: Known, kernel: str, config: Any, *, is_checked: bool = True) -> Any:
        if kernel in products.COPYING and is_checked:
            found.copies["guard"] = (zeros(1), zeros(1, dtype=torch.int32))
        text = f"{kernel}, compared" if kernel in products.COPYING and is_checked else kernel
        return lambda *operands: names.append(text)

    monkeypatch.setattr(products, "machine_of", lambda device: (gpu, None))
    monkeypatch.setattr(products, "_why_not", lambda kernel, found, width: "no" if kernel == "ell" else "")
    monkeypatch.setattr(products, "planned", planned)
    monkeypatch.setattr(copies, "planned", planned)
    monkeypatch.setattr(copies, "_is_captured", lambda: False)
    monkeypatch.setattr(products, "compile_side_by_side", lambda *operands: None)
    monkeypatch.setattr(products, "library_product", lambda *operands: names.append("library"))
    monkeypatch.setattr(products, "trials_are_on", lambda: True)
    monkeypatch.setattr(products, "CallTrial", Trial)
    monkeypatch.setattr(products, "_SETTLED", {})
    monkeypatch.setattr(Structure, "workload", lambda self, dtype, width: LARGE)
    monkeypatch.setattr(torch, "zeros", lambda *shape, pin_memory=False, **rest: zeros(*shape, **rest))
    monkeypatch.setattr(torch.cuda, "Event", NoEvent)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 << 30, 100 << 30))
    return names


def run(
    ran: list[str], number: int, reuse: int = 0, frozen: bool | None = None, kernel: str = "auto"
) -> tuple[Products, Known, Tensor]:
    """So many products of a matrix."""
    m = torch.eye(64).to_sparse_csr()
    found = known(m)
    one = Products(found, weakref.ref(m), 0, False, kernel, None, reuse, frozen)
    for _ in range(number):
        found.calls += 1
        one(torch.ones(64), None, 1.0, 0.0)
    return one, found, m


def test_the_first_product_is_torchs_and_a_copy_is_made_once_it_pays(ran: list[str]) -> None:
    Trial.best = 0
    one, found, _ = run(ran, 3)
    assert ran[0] == "library"
    assert ran[1] in products.OWN
    assert ran[1:] == [ran[1]] * 2
    assert 10 < one.left < 200  # products until a copy would have paid
    assert found.copies == {}
    Trial.best = 1  # what is tried against the one that runs
    for _ in range(one.left + 2):
        one(torch.ones(64), None, 1.0, 0.0)
    assert ran[-2:] == ["panels", "panels"]
    assert ran.count("panels") <= 4
    assert one.describe().startswith("spmv.panels panel_kib=")


def test_expected_products_pay_at_once_and_outcomes_are_remembered(ran: list[str]) -> None:
    Trial.best = -1  # the library, then the copy
    run(ran, 5, reuse=10_000)
    assert "library" in ran
    assert ran[-1] == "panels"
    ran.clear()
    run(ran, 2)
    assert ran == ["library", "library"]  # the trial was another matrix's; no copy pays for two products


def test_a_copy_that_loses_is_freed_and_one_that_is_stale_is_given_up(ran: list[str]) -> None:
    Trial.best = 0
    _, found, _ = run(ran, 6, reuse=10_000)
    assert found.copies == {}
    assert ran[-1] in products.OWN
    Trial.best = -1
    one, found, _ = run(ran, 6, reuse=10_000, frozen=False)
    assert ran[-1] == "panels, compared"
    found.copies["guard"][1][0] = 1  # the device has found that values changed
    for _ in range(3 * copies.LOOK_EVERY):
        one(torch.ones(64), None, 1.0, 0.0)
    assert ran[-1] in products.OWN
    assert found.copies == {}


def test_values_are_compared_as_long_as_something_else_holds_them(ran: list[str]) -> None:
    x = torch.ones(64), None, 1.0, 0.0
    one, found, m = run(ran, 1, kernel="panels")
    one(*x)
    assert ran[-1] == "panels"
    alias = m.values().data  # what is written by this name is not counted
    one(*x)
    assert ran[-1] == "panels, compared"
    del alias
    for _ in range(copies.LOOK_EVERY):
        one(*x)
        assert ran[-1] == "panels, compared"
    for _ in range(copies.LOOK_EVERY):
        one(*x)
    assert ran[-1] == "panels"  # a comparison since then found no difference
    ran.clear()
    one, found, _ = run(ran, 1, kernel="panels", frozen=True)
    alias = found.values.data
    one(*x)
    assert ran == ["panels", "panels"]  # a promise
    del alias
    # A copy that was made for products of another kind may be older than a write: it is compared first.
    other = Products(found, weakref.ref(m), 0, True, "panels", None, 0, None)
    other(*x)
    assert ran[-1] == "panels, compared"


def test_copies_that_are_about_as_fast_are_tried_beside_each_other(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_why_not", lambda kernel, found, width: "")
    monkeypatch.setattr(products, "COPY_REACH", 10.0)
    Trial.best = -1
    _, found, _ = run(ran, 5, reuse=10_000)
    tried = {name for name in ran if name in products.COPYING}
    assert tried  # without comparisons: both are of the same call
    assert not any("compared" in name for name in ran)
    found.copies[("panels", 1)] = found.copies[("ell", 1)] = 0
    found.drop_copies_but("ell")
    assert [key for key in found.copies if isinstance(key, tuple)] == [("ell", 1)]


def test_a_copy_is_hoped_to_be_faster_than_predicted_by_as_much_as_predictions_err(ran: list[str]) -> None:
    one, _, _ = run(ran, 1)
    seconds = one._candidate("panels").seconds

    def offered(share: float, bias: float = 1.0) -> bool:
        one.best = products.PricedKernel("library", {}, share * seconds, bias)
        return [each.kernel for each in one._copies()] == ["panels"]

    assert offered(1.05)
    assert offered(0.95)  # a trial decides
    left = one.left
    assert offered(0.91)
    assert one.left > 2 * left  # the less is saved, the later
    assert not offered(0.85)
    # What runs takes less than predicted, with a part of the matrix in the L2: so would a copy.
    assert offered(0.7, bias=0.75)
    assert not offered(0.7, bias=0.85)


def test_a_counted_write_ends_a_copy(ran: list[str]) -> None:
    x = torch.ones(64), None, 1.0, 0.0
    Trial.best = -1
    values = torch.ones(64)
    m = torch.sparse_csr_tensor(torch.arange(65), torch.arange(64), values, (64, 64), check_invariants=False)
    one = Products(known(m), weakref.ref(m), 0, False, "auto", None, 10_000, None)
    for _ in range(6):
        one(*x)
    assert ran[-1] == "panels"
    values[3:5].add_(1)  # by the name that the matrix does not count
    one(*x)
    assert ran[-1] not in ("panels", "panels, compared")
    assert known(m).copies == {}
