"""`gated_layer`: activation(x @ gate^T + bias) * (x @ up^T + bias) on weights as layers have them. Needs torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.choose import decide
from constrint.errors import ConstrintError
from constrint.kernels.gemm.first_call import has_nvrtc
from constrint.kernels.gemm.gated.candidates import FUSED
from constrint.kernels.gemm.gated.launch import GatedCall, gated_launch, why_not
from constrint.kernels.gemm.gated.op import AUTO, request_of
from constrint.kernels.gemm.linear import is_layer, recurs
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable


def gated_layer(
    x: Tensor, weight: Tensor, up: Tensor, bias: Tensor | None, bias_up: Tensor | None, activation: str
) -> Tensor | None:
    """A gated pair of two linear layers in one launch, whose factors are not rounded in between.

    None where the pair is two calls and a pass: where gradients need both sums, in the first call of a shape
    (`linear.recurs`), and where `gated_matmul` decides for the composition.

    Args:
        x: (..., K).
        weight, up: (N, K) of the same dtype, on the same device.
        bias, bias_up: (N,) likewise, or None.
        activation: A key of `reference.ACTIVATIONS`.

    Returns:
        A new tensor (..., N), or None.
    """
    out: Any = LAYERS.call(False, activation, x, weight, up, bias, bias_up)
    if out is IS_NEW:
        out = LAYERS.learn(activation, x, weight, up, bias, bias_up) if recurs(x, weight, (FUSED, activation)) else None
    result: Tensor | None = None if out is WANTS_GRAD else out
    return result


def _plan_of_layer(tensors: tuple[Tensor | None, ...], activation: Any) -> RecordedCall:
    """The plan of a call on (x, weight, up, bias, bias_up) by the fused kernel.

    Raises:
        NotPlannedError: For operands of other kinds, and where two products are chosen.
    """
    x, weight, up, bias, bias_up = tensors
    if x is None or weight is None or up is None or weight.shape != up.shape or not x.is_contiguous():
        raise NotPlannedError("these are no operands of a gated pair")
    if not is_layer(x, weight, bias) or not is_layer(x, up, bias_up):
        raise NotPlannedError("these are no operands of two layers")
    flat, scratch = x.view(-1, x.shape[-1]), NotedScratch()
    out = torch.empty((*x.shape[:-1], weight.shape[0]), dtype=x.dtype, device=x.device)
    rows = out.view(-1, out.shape[-1])
    call = GatedCall(flat, weight.t(), up.t(), rows, bias, bias_up, activation, scratch)
    reason = why_not(call) or ("" if has_nvrtc() else "NVRTC is not installed: pip install 'constrint[cuda]'")
    request = None if reason else request_of(flat, weight.t(), bias, bias_up, activation, AUTO, "")
    if request is None or request.gpu is None:
        raise NotPlannedError(reason or "there is no model of the device")
    try:
        decision = decide(request)
        if decision.program.name != f"gated.{FUSED}":
            raise NotPlannedError("two products have plans of their own")
        launch = gated_launch(request.gpu, call, decision.config)
        return recipe_of([launch], tensors, [out], scratch, f"{decision.program.name} {dict(decision.config)}")
    except ConstrintError as error:
        raise NotPlannedError(str(error)) from error


LAYERS = PlanTable("gated_layer", _plan_of_layer, torch.get_float32_matmul_precision)
