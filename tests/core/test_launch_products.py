"""Plans call the library for products: with wide sums, through the handle of the moment, and with what slots hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import MISSING, FakeTensor, libraries_of
from tests.support.launch_bench import FIRST_RESULT, SHAPE, STREAM, TableBench
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
HANDLE = 0xB1A5
#: Operations, sizes, types, strides and slots.
PRODUCT = ("product", (0, 1), (7, 5, 11), (2, 14, 0), (7, 6, 9), (1, 0, 2))


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> TableBench:
    return TableBench(libraries_of(shared_results), tmp_path)


def with_library(bench: TableBench, handle: Callable[[], Any] = lambda: HANDLE) -> None:
    bench.core.use_blas(*bench.fake.blas(), handle)


def learnt(bench: TableBench, *steps: Any) -> Any:
    """A table that knows the product of two tensors."""
    table = bench.table()
    plan = bench.core.plan(bench.handle, 3, list(steps) or [PRODUCT], [])
    assert bench.core.table_insert(table, None, (FakeTensor(0x1000), FakeTensor(0x2000)), plan, (SHAPE,), 1, 0) is True
    return table


def call(bench: TableBench, table: Any) -> Any:
    return bench.core.table_call(table, False, None, FakeTensor(0x1000), FakeTensor(0x2000))


def test_a_product_is_asked_for_as_it_was_stated(bench: TableBench) -> None:
    with_library(bench)
    assert call(bench, learnt(bench)) is bench.made[0]
    before, product, after = bench.fake.calls()
    # No sums in 16 bits, then what it was.
    assert before == {"call": "cublasSetMathMode", "handle": HANDLE, "mode": 16}
    assert after == {"call": "cublasSetMathMode", "handle": HANDLE, "mode": 0}
    assert product == {
        "call": "cublasGemmEx",
        "handle": HANDLE,
        "operations": [0, 1],
        "sizes": [7, 5, 11],
        "factors": [1, 0],
        "addresses": [0x2000, 0x1000, FIRST_RESULT],
        "types": [2, 14, 0],
        "strides": [7, 6, 9],
        "how": [68, 99],
    }


def test_each_call_asks_for_the_handle(bench: TableBench) -> None:
    handles = iter((0x10, 0x20))
    with_library(bench, lambda: next(handles))
    table = learnt(bench)
    call(bench, table)
    call(bench, table)
    assert [one["handle"] for one in bench.fake.called("cublasGemmEx")] == [0x10, 0x20]


def test_products_and_kernels_are_steps_of_one_plan(bench: TableBench) -> None:
    with_library(bench)
    call(bench, learnt(bench, ("fill", 2, 0, 4, 0), PRODUCT))
    calls = [one["call"] for one in bench.fake.calls()]
    assert calls == ["cuMemsetD32Async", "cublasSetMathMode", "cublasGemmEx", "cublasSetMathMode"]


@pytest.mark.parametrize("failing", ["cublasGemmEx", "cublasSetMathMode"])
def test_what_the_library_refuses_is_said(bench: TableBench, failing: str) -> None:
    with_library(bench)
    table = learnt(bench)
    bench.fake.fail(failing, 15)
    with pytest.raises(RuntimeError, match=f"{failing} failed with status 15"):
        call(bench, table)
    # Whatever happened, the handle is left as it was.
    assert bench.fake.calls()[-1]["mode"] == (0 if failing == "cublasGemmEx" else 16)
    bench.fake.fail("nothing")
    assert call(bench, table) is bench.made[-1]


@pytest.mark.parametrize("handle", [lambda: 0, lambda: None, lambda: 1 / 0])
def test_without_a_handle_nothing_is_asked_for(bench: TableBench, handle: Callable[[], Any]) -> None:
    with_library(bench, handle)
    with pytest.raises((TypeError, ZeroDivisionError)):
        call(bench, learnt(bench))
    assert bench.fake.calls() == []


def test_in_another_context_there_is_no_plan(bench: TableBench) -> None:
    with_library(bench)
    table = learnt(bench)
    bench.fake.context(0x2000)
    assert call(bench, table) is None
    assert bench.fake.calls() == []


def test_a_plan_with_a_product_takes_no_other_stream(bench: TableBench) -> None:
    with_library(bench)
    plan = bench.core.plan(bench.handle, 3, [PRODUCT], [])
    with pytest.raises(TypeError, match="runs on the current stream"):
        bench.core.launch(plan, STREAM, 1, 2, 3)


def test_without_a_library_there_is_no_product(bench: TableBench) -> None:
    with pytest.raises(RuntimeError, match="no library for products"):
        bench.core.plan(bench.handle, 3, [PRODUCT], [])


@pytest.mark.parametrize(
    "step",
    [
        ("product",),
        (*PRODUCT[:5],),
        ("product", (0, 2), *PRODUCT[2:]),
        ("product", (0, 1, 1), *PRODUCT[2:]),
        ("product", (0, 1), (7, 0, 11), *PRODUCT[3:]),
        ("product", (0, 1), (7, 2**31, 11), *PRODUCT[3:]),
        (*PRODUCT[:3], (2, 2, -1), *PRODUCT[4:]),
        (*PRODUCT[:3], (2, 2, 256), *PRODUCT[4:]),
        (*PRODUCT[:4], (7, 6, 2**40), PRODUCT[5]),
        (*PRODUCT[:4], "abc", PRODUCT[5]),
        (*PRODUCT[:5], (1, 0)),
        (*PRODUCT[:5], (1, 0, 3)),
        (*PRODUCT[:5], None),
    ],
)
def test_what_is_no_product_is_refused(bench: TableBench, step: Any) -> None:
    with_library(bench)
    with pytest.raises(TypeError):
        bench.core.plan(bench.handle, 3, [step], [])


@pytest.mark.parametrize("given", [(0, 1, int), (1, 0, int), (1, 1, None), ("1", 1, int), (1, 1)])
def test_what_is_no_library_is_refused(bench: TableBench, given: Any) -> None:
    with pytest.raises(TypeError):
        bench.core.use_blas(*given)
    with pytest.raises(RuntimeError, match="no library for products"):
        bench.core.plan(bench.handle, 3, [PRODUCT], [])
