"""`benchmarks.launches`: what it draws, what it takes for wrong, and that references pass, without a GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from benchmarks.launches.bounds import finished, sums_of, worst_of
from benchmarks.launches.group import KINDS, Group, Outcome
from benchmarks.launches.kinds import LIMITS, Drawn
from benchmarks.launches.memory import Guarded, Place


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    before, LIMITS.side = LIMITS.side, 60
    yield
    LIMITS.side = before
    torch.set_float32_matmul_precision("highest")


# torch warns once that its CSR layout is young.
@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "direct"])
def test_references_of_every_kind_pass(kind: str) -> None:
    outcome = Outcome()
    for seed in range(8):
        draw = random.Random(f"{kind} {seed}")
        Group(0, seed, 0, KINDS[kind][1](draw), "cpu", outcome, draw).run()
    assert outcome.failures == []
    assert outcome.launches > 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_missing_product_of_a_sum_is_wrong(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    a, b = (torch.randint(-2, 3, shape).to(dtype) for shape in ((40, 50), (50, 30)))
    a[3, 49], b[49, 7] = 1.0, 1.0
    exact = finished(sums_of(a, b, precision="highest", is_exact=True), dtype)
    right = (a.double() @ b.double()).to(dtype)
    assert worst_of(right, *exact) == ""
    short = (a.double()[:, :49] @ b.double()[:49]).to(dtype)
    assert "wrong, first at" in worst_of(short, *exact)
    right[0, 0] = float("nan")
    assert "1 of 1200 wrong" in worst_of(right, *exact)


def test_what_is_written_beside_a_result_is_found() -> None:
    one = Guarded.at(Place((5, 7), torch.float16, (0, 1), gap=3, offset=1), "cpu")
    one.view.fill_(1.0)
    assert one.written_beside() == []
    one.whole.view(torch.float16)[int(one.base.storage_offset()) + 8] = 1.0
    assert one.written_beside() == [16, 17]


def test_an_operand_that_is_written_and_a_result_that_changes_are_wrong() -> None:
    places = {"a": Place((4, 4), torch.float32, (0, 1)), "b": Place((4, 4), torch.float32, (0, 1))}
    calls: list[int] = []

    def call(operands: dict[str, torch.Tensor]) -> torch.Tensor:
        calls.append(1)
        out = operands["a"] @ operands["b"]
        operands["b"][0, 0] += 1.0
        return out

    drawn = Drawn(
        "matmul", "wrong", places, call,  # type: ignore[arg-type]
        lambda t, is_exact: finished(sums_of(t["a"], t["b"], precision="highest", is_exact=is_exact), torch.float32),
        repeats=True,
    )  # fmt: skip
    outcome = Outcome()
    Group(0, 0, 0, drawn, "cpu", outcome, random.Random(1)).run()
    assert any("memory of b was written" in line for line in outcome.failures)
    assert any("two launches differ" in line or "wrong, first" in line for line in outcome.failures)


def test_draws_are_the_same_for_the_same_seed_and_differ_for_others() -> None:
    texts = [str(KINDS["matmul"][1](random.Random(f"{seed}"))) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
