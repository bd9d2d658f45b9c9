"""`grouped_matmul` on the CPU: results, gradients, lists, sizes; arguments that do not go together; the space."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

from constrint import rank
from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.grouped import grouped_matmul
from constrint.kernels.grouped.launch import GroupedCall, grouped_launch
from constrint.kernels.grouped.op import workload_of_call
from constrint.kernels.grouped.spec import SPECS
from constrint.kernels.registry import load_kernel
from constrint.select.workload import Workload

ENDS = (0, 3, 3, 9)


def operands(dtype: torch.dtype = torch.float64, rows: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    a = torch.randn((rows, 5), generator=draw, dtype=dtype)
    b = torch.randn((len(ENDS), 5, 4), generator=draw, dtype=dtype)
    return a, b, torch.tensor(ENDS, dtype=torch.int32)


def one_by_one(a: Tensor, b: Tensor, ends: tuple[int, ...] = ENDS) -> Tensor:
    parts = [a[begin:end] @ b[e] for e, (begin, end) in enumerate(zip((0, *ends), ends, strict=False))]
    return torch.cat([*parts, a.new_zeros((len(a) - ends[-1], b.shape[2]))])


def test_each_expert_has_its_rows_and_rows_of_none_are_zeros() -> None:
    a, b, offsets = operands()
    expected = one_by_one(a, b)
    torch.testing.assert_close(grouped_matmul(a, b, offsets), expected)
    sizes = [0, 3, 0, 6]
    torch.testing.assert_close(grouped_matmul(a, b, sizes=sizes), expected)
    torch.testing.assert_close(grouped_matmul(a, b, sizes=torch.tensor(sizes)), expected)
    assert grouped_matmul(a[:0], b, sizes=[0, 0, 0, 0]).shape == (0, 4)


def test_ends_that_make_no_sense_are_taken_for_the_nearest_that_do() -> None:
    a, b, _ = operands()
    wild = torch.tensor([-4, 7, 2, 99], dtype=torch.int32)
    torch.testing.assert_close(grouped_matmul(a, b, wild), one_by_one(a, b, (0, 7, 7, 11)))


@pytest.mark.parametrize("activation", [None, "gelu", "silu"])
@pytest.mark.parametrize("wide", [False, True])
def test_gradients(activation: str | None, wide: bool) -> None:
    a, b, offsets = operands()
    bias = torch.randn((4, 4) if wide else (4,), dtype=torch.float64)
    leaves = [t.clone().requires_grad_() for t in (a, b, bias)]

    def run(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = grouped_matmul(a, b, offsets, bias=bias, activation=activation, alpha=0.5)
        return out

    assert torch.autograd.gradcheck(run, leaves)


def test_lists_are_one_launch_or_a_loop() -> None:
    a, b, _ = operands()
    sizes = [2, 0, 5, 4]
    rows = list(torch.split(a, sizes))
    expected = [x @ w for x, w in zip(rows, b, strict=True)]
    for weights in (list(b), [w.clone() for w in b]):
        found = grouped_matmul(rows, weights)
        assert len(found) == 4
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
    uneven = grouped_matmul([a, a[:, :3]], [b[0], b[1, :3, :2]])
    torch.testing.assert_close(uneven[1], a[:, :3] @ b[1, :3, :2])


def test_gradients_of_lists_reach_each_tensor() -> None:
    a, b, _ = operands()
    weights = [w.clone().requires_grad_() for w in b]
    torch.cat(grouped_matmul(list(torch.split(a, [2, 0, 5, 4])), weights)).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(weights[2].grad, a[2:7].T @ torch.ones(5, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"offsets": None}, UsageError, "either offsets"),
        ({"sizes": [1, 2, 3, 4]}, UsageError, "either offsets"),
        ({"offsets": None, "sizes": [1, -2, 3, 4]}, UsageError, "whole numbers from 0"),
        ({"offsets": None, "sizes": [1, 2, 30, 4]}, UsageError, "sum to at most 11"),
        ({"offsets": [1, 2, 3, 4]}, TypeError, "offsets are a tensor"),
        ({"bias": 1.0}, TypeError, "bias is a tensor"),
        ({"offsets": torch.tensor([1, 2, 3])}, RuntimeError, "one for each of 4"),
        ({"offsets": torch.tensor([1, 2, 3, 4])}, RuntimeError, "int32"),
        ({"b": torch.zeros(4, 6, 4, dtype=torch.float64)}, RuntimeError, "one K"),
        ({"b": torch.zeros(4, 5, 4)}, RuntimeError, "one dtype"),
        ({"bias": torch.zeros(3, 4)}, RuntimeError, "bias is"),
        ({"kernel": "pointer"}, UnknownNameError, "pointer"),
        ({"activation": "swish"}, UnknownNameError, "swish"),
        ({"a": [torch.zeros(2, 5)]}, UsageError, "lists of A and of B"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_arguments_that_do_not_go_together(change: dict[str, Any], error: type[Exception], told: str) -> None:
    a, b, offsets = operands()
    arguments: dict[str, Any] = {"a": a, "b": b, "offsets": offsets} | change
    with pytest.raises(error, match=told):
        grouped_matmul(**arguments)


def test_the_space_is_that_of_whole_tiles() -> None:
    assert [spec.full_name for spec in load_kernel("grouped").implementations] == ["grouped.cuda"]
    ranking = rank("grouped", "h200", m=2048, n=2048, k=4096, experts=32, top=5)
    for each in ranking.candidates:
        assert (each.config["split_k"], each.config["only_last"]) == (1, 0)
    with pytest.raises(UnsupportedError, match="Hopper"):
        SPECS[0].check_dtype(load_gpu("a100"), Workload("grouped", {"m": 64, "n": 64, "k": 64, "experts": 2}, "bf16"))


def test_a_launch_is_stated_for_what_the_device_finds() -> None:
    a, b = torch.zeros(100, 64, dtype=torch.bfloat16), torch.zeros(8, 64, 256, dtype=torch.bfloat16)
    out, offsets = torch.zeros(100, 256, dtype=torch.bfloat16), torch.zeros(8, dtype=torch.int32)
    config = rank("grouped", "h200", m=128, n=256, k=64, experts=8, top=1).candidates[0].config
    launch = grouped_launch(load_gpu("h200"), GroupedCall(a, b, offsets, out), config)
    assert launch.source.macros["GROUPED"] == launch.source.macros["STORES_BOXES"] == 1
    assert launch.grid[0] <= 132
    narrow = grouped_launch(load_gpu("h200"), GroupedCall(a, b[:, :, :252], offsets, out[:, :252]), config)
    assert narrow.source.macros["STORES_BOXES"] == 0
    with pytest.raises(UsageError, match="contiguous int32 offsets"):
        grouped_launch(load_gpu("h200"), GroupedCall(a, b, offsets.long(), out), config)


def test_calls_of_similar_numbers_of_rows_share_a_choice() -> None:
    a, b = torch.zeros(100, 64, dtype=torch.bfloat16), torch.zeros(8, 256, 64, dtype=torch.bfloat16).transpose(1, 2)
    workload = workload_of_call(a, b, None)
    assert workload.sizes == {"m": 104, "n": 256, "k": 64, "experts": 8}
    assert workload.options == {"transpose_b": 1}
    assert workload_of_call(a[:97], b, None) == workload
    for rows in (1, 7, 8, 9, 1000, 12345):
        assert (
            rows
            <= workload_of_call(torch.empty(rows, 64, dtype=torch.bfloat16), b, None).sizes["m"]
            <= rows * 9 / 8 + 8
        )
