"""`matmul.why`: the decision for a call's tensors, and the plan that this machine has recorded for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.choose.explain import explained
from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.checks import stack
from constrint.kernels.gemm.first_call import End, inspect
from constrint.kernels.gemm.implementations import AUTO
from constrint.kernels.gemm.operator import PLANS, plan_key


def why(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Tensor | None = None,
    activation: str | None = None,
    epilogue: str | Callable[..., Any] | None = None,
    operands: Mapping[str, Tensor | float] | None = None,
    out_dtype: torch.dtype | None = None,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
    gpu: str | Path | GpuModel | None = None,
) -> Decision:
    """The decision of `matmul` for these arguments: program, evidence and candidates passed over; `print` it.

    On the GPU of the tensors that is the decision as it stands, after everything that the device has refused, and the
    recorded plan of the call, if there is one. Nothing is launched or compiled.

    Args:
        a, b, bias, alpha, beta, c, activation, epilogue, operands, out_dtype, kernel, config: Those of `matmul`.
        gpu: A GPU by name, or its model, to decide for instead; needed for tensors on the CPU.

    Raises:
        UsageError: When no kernel computes the product (fp64, a size of 0), or the tensors are on the CPU and no GPU
            is named.
    """
    if epilogue is not None or operands is not None:
        from constrint.kernels.gemm.traced.op import all_operands
        from constrint.kernels.gemm.traced.op import why as traced_why

        named = all_operands(bias, c, epilogue, operands, (alpha, beta, activation))
        model = load_gpu(gpu) if isinstance(gpu, (str, Path)) else gpu
        return traced_why(a, b, epilogue, named, out_dtype=out_dtype, kernel=kernel, config=config, gpu=model)  # type: ignore[arg-type]
    key = plan_key(alpha, beta, activation, out_dtype, kernel, config)
    end = End(*(key or ()))
    stacked = stack(a, b, bias, c, *end[:4])
    if gpu is None and not a.is_cuda:
        raise UsageError("matmul.why: tensors on the CPU run the reference in plain PyTorch; name a GPU, gpu='h200'.")
    shape = stacked.a.shape[0], stacked.a.shape[1], stacked.b.shape[2]
    out = torch.empty(shape, dtype=stacked.kind, device="meta")
    model = gpu if gpu is None or isinstance(gpu, GpuModel) else load_gpu(gpu)
    inspected = inspect(stacked.a, stacked.b, bias, stacked.c, end, out, model)
    if inspected is None:
        raise UsageError(f"matmul.why: no kernel computes {a.dtype} products of these sizes; plain PyTorch does.")
    decision = explained(inspected.request)
    return decision if gpu is not None else replace(decision, recorded=PLANS.note(key, a, b, bias, c))
