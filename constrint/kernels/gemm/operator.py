"""`constrint::gemm`: the operator behind `matmul` where calls are traced, transformed or observed.

It takes three axes, has a fake implementation and gradients, so that `torch.compile(fullgraph=True)` sees one node.
CPU tensors run the reference.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.gradients import Saved, gradients, saved_of
from constrint.kernels.gemm.implementations import AUTO, of_gradients
from constrint.kernels.gemm.plans import PLANS
from constrint.kernels.gemm.reference import gemm_reference

torch.library.define(
    "constrint::gemm",
    "(Tensor a, Tensor b, Tensor? bias, Tensor? c, float alpha, float beta, str? activation, ScalarType out_dtype,"
    " str implementation='auto')"
    " -> Tensor",
)


@torch.library.impl("constrint::gemm", "CUDA")
def _on_gpu(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, alpha: float, beta: float, activation: str | None,
    out_dtype: torch.dtype, implementation: str = AUTO,
) -> Tensor:  # fmt: skip
    from constrint.kernels.gemm.dispatch import run_on_gpu

    end = (alpha, beta, activation, out_dtype, implementation)
    used = c if beta != 0.0 else None
    out: Any = PLANS.run(end, a, b, bias, used)
    made: Tensor = run_on_gpu(a, b, bias, c, *end) if out is None else out
    return made


@torch.library.impl("constrint::gemm", "CPU")
def _on_cpu(*arguments: Any) -> Tensor:
    operands_and_end = arguments[:8]
    return gemm_reference(*operands_and_end).contiguous()


@torch.library.register_fake("constrint::gemm")  # type: ignore[untyped-decorator]
def _fake(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, alpha: float, beta: float, activation: str | None,
    out_dtype: torch.dtype, implementation: str = AUTO,
) -> Tensor:  # fmt: skip
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=out_dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, c, alpha, beta, activation, out_dtype, implementation = inputs
    ctx.implementation = of_gradients(implementation)
    tensors, ctx.facts = saved_of(a, b, bias, c, (alpha, beta, activation, out_dtype), output)
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, b, bias, c, output = ctx.saved_tensors
    saved = Saved(a, b, bias, c, output, ctx.facts)
    multiply = partial(torch.ops.constrint.gemm, implementation=ctx.implementation)
    return *gradients(multiply, saved, gradient, ctx.needs_input_grad[:4]), None, None, None, None, None


torch.library.register_autograd("constrint::gemm", _backward, setup_context=_save)
