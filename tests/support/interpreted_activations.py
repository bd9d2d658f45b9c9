"""Activations in Triton's interpreter, run by `tests.support.interpreter`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from constrint.kernels.gemm.epilogue.kernel import activate
from tests.kernels.gemm.test_activations import missed
from tests.support.activations_on_cpu import numbers


@triton.jit  # type: ignore[untyped-decorator]
def activating(x_ptr: Any, number: Any, name: tl.constexpr, out_dtype: tl.constexpr, block: tl.constexpr) -> None:
    """Activate numbers in place, in fp32."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < number, other=0.0)
    tl.store(x_ptr + at, activate(x, name, out_dtype), mask=at < number)


def missed_in_triton(case: dict[str, Any]) -> float:
    """The most units by which results miss exact values."""
    x = numbers()
    made, block = torch.from_numpy(x.copy()), 1 << 18
    kind = {"bf16": tl.bfloat16, "fp16": tl.float16}[case["output"]]
    activating[(triton.cdiv(len(x), block),)](made, len(x), case["name"], kind, block)
    return missed(made.numpy(), x, case["name"], "fp16" if case["name"] == "tanh" else case["output"])
