"""Plans call cuBLASLt as they state it; tables drop calls whose plan another one replaces."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import MISSING, FakeTensor, libraries_of
from tests.support.launch_bench import FIRST_RESULT, SHAPE, TableBench
from tests.support.shared import SharedResults

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
ALGORITHM = struct.pack("8Q", *range(1, 9))
#: Handle, description, layouts, factors, algorithm, workspace, and slots of A, B, C, D, the bias and the workspace.
MATMUL = ("matmul", 0x10, 0x20, (1, 2, 3, 4), (0.5, 2.0), ALGORITHM, 256, (1, 0, 3, 3, 2, 4))


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> TableBench:
    bench = TableBench(libraries_of(shared_results), tmp_path)
    bench.core.use_matmul(*bench.fake.matmul())
    return bench


def called(bench: TableBench, *steps: Any, outputs: int = 2) -> list[dict[str, Any]]:
    """The calls of a plan of three tensors, its result and its workspace."""
    table, tensors = bench.table(), tuple(FakeTensor(0x1000 * (1 + i)) for i in range(3))
    plan = bench.core.plan(bench.handle, 3 + outputs, list(steps), [])
    assert bench.core.table_insert(table, None, tensors, plan, (SHAPE,) * outputs, 1, 0) is True
    assert bench.core.table_call(table, False, None, *tensors) is bench.made[0]
    return bench.fake.calls()


def test_a_product_with_its_epilogue_is_called_as_it_was_stated(bench: TableBench) -> None:
    bias, product = called(bench, MATMUL)
    assert bias == {"call": "cublasLtMatmulDescSetAttribute", "description": 0x20, "attribute": 8, "value": 0x3000}
    stream = product.pop("stream")
    assert isinstance(stream, int)
    assert product == {
        "call": "cublasLtMatmul",
        "handle": 0x10,
        "description": 0x20,
        "factors": [0.5, 2.0],
        "addresses": [0x2000, 0x1000, FIRST_RESULT, FIRST_RESULT],
        "layouts": [1, 2, 3, 4],
        "algorithm": list(range(1, 9)),
        "workspace": [FIRST_RESULT + 0x1000, 256],
    }


def test_factors_of_integers_are_given_as_integers(bench: TableBench) -> None:
    """The library reads 32 bits of either kind: the integers that are the bits of 0.5 and 2."""
    _, product = called(bench, (*MATMUL[:4], (0x3F000000, 0x40000000), *MATMUL[5:]))
    assert product["factors"] == [0.5, 2.0]


def test_without_bias_and_workspace_there_is_neither(bench: TableBench) -> None:
    (product,) = called(bench, (*MATMUL[:6], 0, (1, 0, 2, 3, -1, -1)), outputs=1)
    assert product["workspace"] == [0, 0]
    assert product["addresses"] == [0x2000, 0x1000, 0x3000, FIRST_RESULT]


@pytest.mark.parametrize("failing", ["cublasLtMatmul", "cublasLtMatmulDescSetAttribute"])
def test_a_failure_of_the_library_is_stated(bench: TableBench, failing: str) -> None:
    bench.fake.fail(failing, 7)
    with pytest.raises(RuntimeError, match=f"{failing} failed with status 7"):
        called(bench, MATMUL)
    bench.fake.fail("nothing")
    bench.made.clear()
    bench.fake.calls()
    assert len(called(bench, MATMUL)) == 2


@pytest.mark.parametrize(
    "step",
    [
        ("matmul",),
        MATMUL[:7],
        ("matmul", 0, *MATMUL[2:]),
        ("matmul", 0x10, 0, *MATMUL[3:]),
        (*MATMUL[:3], (1, 2, 3), *MATMUL[4:]),
        (*MATMUL[:3], (1, 2, 3, 0), *MATMUL[4:]),
        (*MATMUL[:4], ("1", 2), *MATMUL[5:]),
        (*MATMUL[:4], (1, 1 << 31), *MATMUL[5:]),
        (*MATMUL[:5], ALGORITHM[:-1], *MATMUL[6:]),
        (*MATMUL[:6], -1, MATMUL[7]),
        (*MATMUL[:6], 256, (1, 0, 3, 3, 2, -1)),
        (*MATMUL[:7], (1, 0, 3, -1, 2, 4)),
        (*MATMUL[:7], (1, 0, 3, 3, 2, 5)),
        (*MATMUL[:7], (1, 0, 3, 3, 2)),
    ],
)
def test_malformed_steps_are_refused(bench: TableBench, step: Any) -> None:
    with pytest.raises(TypeError):
        bench.core.plan(bench.handle, 5, [step], [])


def test_without_the_library_there_is_no_step(shared_results: SharedResults, tmp_path: Path) -> None:
    bench = TableBench(libraries_of(shared_results), tmp_path)
    with pytest.raises(RuntimeError, match="no library for products with epilogues"):
        bench.core.plan(bench.handle, 5, [MATMUL], [])
    for given in ((0, 1), (1, 0), ("1", 1), (1,)):
        with pytest.raises(TypeError):
            bench.core.use_matmul(*given)


def test_a_dropped_call_is_new_and_others_stay(bench: TableBench) -> None:
    table, tensor = bench.table(), FakeTensor(0x1000)
    bench.insert(table, tensor, extra="one", number=1)
    bench.insert(table, tensor, extra="other", number=2)
    assert bench.core.table_drop(table, "one", (tensor,)) is True
    assert bench.core.table_drop(table, "one", (tensor,)) is False
    assert bench.core.table_call(table, False, "one", tensor) is False
    assert bench.core.table_call(table, False, "other", tensor) is bench.made[-1]
    assert bench.core.table_state(table)[0] == 1
    assert bench.insert(table, tensor, extra="one", number=3) is True
    bench.core.table_call(table, False, "one", tensor)
    assert [number for number, _ in bench.launches()] == [2, 3]


def test_a_function_may_drop_its_own_call(bench: TableBench) -> None:
    """As a trial does, which another plan replaces while it runs."""
    table, tensor = bench.table(), FakeTensor(0x1000)

    def last(given: Any) -> str:
        assert bench.core.table_drop(table, None, (given,)) is True
        assert bench.insert(table, given) is True
        return "replaced"

    assert bench.core.table_insert(table, None, (tensor,), last, (), 0, 0) is True
    assert bench.core.table_call(table, False, None, tensor) == "replaced"
    assert bench.core.table_call(table, False, None, tensor) is bench.made[0]
