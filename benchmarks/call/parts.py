"""Where the host's time of a call goes, and what launches cost by themselves."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.call.kernels import few_arguments, many_arguments, with_descriptors
from benchmarks.call.timing import Run
from constrint.core import compiled
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.operator import PLANS
from constrint.kernels.launch.plan.driver import fast_allocator
from constrint.kernels.launch.plan.table import listeners
from constrint.launch import prepare


def parts_of_a_call() -> dict[str, Run]:
    """The steps of a call of `matmul` without gradients."""
    a, b = (torch.randn(64, 64, device="cuda").to(torch.bfloat16) for _ in range(2))
    matmul(a, b)
    allocate, table, hear = fast_allocator(), PLANS._table, listeners()
    c = torch.empty(64, 64, device="cuda", dtype=torch.int64)

    def listen() -> None:
        for listener in hear:
            listener()

    return {
        "whole call": lambda: matmul(a, b),
        "the core alone (look-up, memory, launch)": lambda: compiled.table_call(table, False, None, a, b, None, None),  # type: ignore[union-attr]
        "  without listening": lambda: compiled.table_call(table, True, None, a, b, None, None),  # type: ignore[union-attr]
        "  look-up that finds nothing": lambda: compiled.table_call(table, True, None, c, b, None, None),  # type: ignore[union-attr]
        "  the result's memory": lambda: allocate((64, 64), (64, 1), torch.bfloat16),
        "  listeners, from Python": listen,
        "torch.empty": lambda: torch.empty((64, 64), dtype=torch.bfloat16, device="cuda"),
        "torch.matmul": lambda: torch.matmul(a, b),
        "the long way (operator, Triton's look at the arguments)": lambda: _long_way(a, b),
    }


def _long_way(a: Any, b: Any) -> Any:
    from constrint.kernels.gemm.op import _through_operator

    return _through_operator(a, b, None, None, 1.0, 0.0, None, None, "auto")


def launches() -> dict[str, dict[str, Run]]:
    """Triton's own launch beside a prepared one, by kind of kernel."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y, out = (torch.randn(1024, device="cuda") for _ in range(3))
    numbers = list(range(2, 32))
    pointers = [x, y, out, x, y, out, x, y, out]
    tiles = [torch.randn(64, 64, device="cuda") for _ in range(3)]
    described = [TensorDescriptor.from_tensor(tile, [64, 64]) for tile in tiles]
    few = prepare(few_arguments, (1,), x, y, out, 1024, tile=1024)
    many = prepare(many_arguments, (1,), *pointers, *numbers, 1024, tile=1024)
    by_maps = prepare(with_descriptors, (1,), *described, tile=64)
    return {
        "5 arguments": {
            "triton": lambda: few_arguments[(1,)](x, y, out, 1024, tile=1024),
            "ours": lambda: few(x, y, out, 1024),
        },
        "41 arguments": {
            "triton": lambda: many_arguments[(1,)](*pointers, *numbers, 1024, tile=1024),
            "ours": lambda: many(*pointers, *numbers, 1024),
        },
        "3 descriptors": {
            "triton": lambda: with_descriptors[(1,)](*described, tile=64),
            "ours": lambda: by_maps(*described),
        },
    }
