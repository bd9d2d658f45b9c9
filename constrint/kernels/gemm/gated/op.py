"""`gated_matmul`: activation(a @ gate) * (a @ up) by the program that `constrint.choose.decide` chooses. Needs torch.

Later calls of a signature whose program is the fused kernel run a plan: one look-up, the result's memory, the launch.
Calls that are traced, and those that need gradients, run the operator `constrint::gated`, which has a fake
implementation and gradients. CPU tensors run the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.first_call import has_nvrtc, machine_of
from constrint.kernels.gemm.gated.candidates import COMPOSITION, FUSED, KERNELS, NAMES
from constrint.kernels.gemm.gated.launch import GatedCall, gated_launch, why_not
from constrint.kernels.gemm.gated.pointer import launch as pointer
from constrint.kernels.gemm.gated.reference import gated_reference
from constrint.kernels.gemm.implementations import config_of, config_text
from constrint.kernels.gemm.op import matmul
from constrint.kernels.gemm.reference import ACTIVATIONS, DTYPE_NAMES, activation_gradient
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable, is_transformed
from constrint.kernels.launch.policy import record_what_fits
from constrint.select.spec import Launch
from constrint.select.workload import Workload

AUTO = "auto"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def gated_matmul(
    a: Tensor,
    gate: Tensor,
    up: Tensor | None = None,
    *,
    activation: str = "silu",
    bias_gate: Tensor | None = None,
    bias_up: Tensor | None = None,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
) -> Tensor:
    """activation(a @ gate + bias_gate) * (a @ up + bias_up): "silu" gives swiglu, "gelu" geglu, "relu" reglu.

    Args:
        a: (..., K): fp16, bf16, fp32 or fp64.
        gate: (K, N) of the same dtype, any strides; or, without `up`, (K, 2 N): gate's columns, then those of up.
        up: (K, N), or None.
        activation: One that `matmul` takes.
        bias_gate, bias_up: (N,), or None.
        kernel: "auto"; "cuda", "pointer": one launch, whose tiles hold columns of both factors, accumulated in fp32 and
            rounded once, in CUDA C++ for Hopper, in Triton for any GPU; "composition": two products by `matmul`, each
            rounded, and their product.
        config: Values of all parameters of "cuda" or "pointer", which then runs with them.

    Returns:
        A new tensor (..., N).

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together.
        TypeError: For arguments that are no tensors.
        UnknownNameError: For an unknown activation or kernel.
        UnsupportedError: When the named kernel does not compute the pair; says why.
        UsageError: When `config` is not valid, or comes without a kernel that has one.
    """
    gate, up = _checked(a, gate, up, bias_gate, bias_up, activation, kernel)
    if config is not None and kernel not in KERNELS:
        raise UsageError(f"gated_matmul: config needs a kernel of {', '.join(KERNELS)}, got kernel={kernel!r}.")
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(a.device.type) and a.dtype != torch.float64:
        a, gate, up = (t.to(torch.get_autocast_dtype(a.device.type)) for t in (a, gate, up))
    flat = _rows(a)
    tensors = flat, gate, up, bias_gate, bias_up
    options = activation, kernel, config_text(config)
    out: Any = WANTS_GRAD
    if not is_compiling():
        if is_transformed():
            # An operator would need a rule for each transform.
            return gated_reference(a, gate, up, bias_gate, bias_up, activation)
        out = _PLANS.call(False, options, *tensors)
        if out is IS_NEW:
            out = _PLANS.learn(options, *tensors)
    if out is None or out is WANTS_GRAD:
        out = torch.ops.constrint.gated(*tensors, *options)
    result: Tensor = out.reshape(*a.shape[:-1], gate.shape[1])
    return result


def _why(
    a: Tensor,
    gate: Tensor,
    up: Tensor | None = None,
    *,
    activation: str = "silu",
    bias_gate: Tensor | None = None,
    bias_up: Tensor | None = None,
    kernel: str = AUTO,
    gpu: GpuModel | str | None = None,
) -> Decision:
    """The decision of `gated_matmul` for the same arguments.

    Args:
        a, gate, up, activation, bias_gate, bias_up, kernel: Those of `gated_matmul`.
        gpu: A GPU to decide for; None: the one that the tensors are on.

    Raises:
        UsageError: When no GPU is named and the tensors are on none, or for dtypes that no kernel computes.
    """
    gate, up = _checked(a, gate, up, bias_gate, bias_up, activation, kernel)
    if gpu is None and a.device.type != "cuda":
        raise UsageError("gated_matmul.why: tensors on the CPU run the reference; name a GPU, gpu='h200'.")
    if a.dtype not in (torch.float16, torch.bfloat16):
        raise UsageError(f"gated_matmul.why: {a.dtype} runs as two products and their product; nothing is chosen.")
    model = gpu if isinstance(gpu, GpuModel) or gpu is None else load_gpu(gpu)
    return decide(request_of(_rows(a), gate, bias_gate, bias_up, activation, kernel, "", model))


gated_matmul.why = _why  # type: ignore[attr-defined]


def _rows(a: Tensor) -> Tensor:
    """(..., K) as (M, K), K = 0 included."""
    return a.flatten(0, -2) if a.dim() > 1 else a[None]


def _checked(
    a: Tensor, gate: Tensor, up: Tensor | None, bias_gate: Tensor | None, bias_up: Tensor | None, activation: str,
    kernel: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Both factors, which may come as one tensor.

    Raises:
        RuntimeError, TypeError, UnknownNameError: For arguments that do not go together; see `gated_matmul`.
    """
    if activation not in ACTIVATIONS:
        raise UnknownNameError("activation", str(activation), ACTIVATIONS)
    if kernel not in (AUTO, *NAMES):
        raise UnknownNameError("kernel", str(kernel), (AUTO, *NAMES))
    for name, t in (("a", a), ("gate", gate), ("up", up), ("bias_gate", bias_gate), ("bias_up", bias_up)):
        if not isinstance(t, Tensor) and not (t is None and name not in ("a", "gate")):
            raise TypeError(f"gated_matmul: {name} must be a tensor, got {type(t).__name__}.")
    if up is None:
        if gate.dim() != 2 or gate.shape[1] % 2:
            raise RuntimeError(f"gated_matmul: without up, gate is (K, 2 N), got {tuple(gate.shape)}.")
        half = gate.shape[1] // 2
        gate, up = gate[:, :half], gate[:, half:]
    if gate.dim() != 2 or gate.shape != up.shape or a.dim() < 1 or a.shape[-1] != gate.shape[0]:
        shapes = ", ".join(str(tuple(t.shape)) for t in (a, gate, up))
        raise RuntimeError(f"gated_matmul: a (..., K), gate and up (K, N) with one K and one N, got {shapes}.")
    if a.dtype not in FLOATS or gate.dtype != a.dtype or up.dtype != a.dtype:
        raise RuntimeError(
            f"gated_matmul: a, gate and up have one dtype of fp16, bf16, fp32 and fp64, got {a.dtype}, {gate.dtype} "
            f"and {up.dtype}."
        )
    for name, bias in (("bias_gate", bias_gate), ("bias_up", bias_up)):
        if bias is not None and (bias.shape != (gate.shape[1],) or not bias.is_floating_point()):
            raise RuntimeError(
                f"gated_matmul: {name} is ({gate.shape[1]},) of a floating dtype, got {bias.dtype} {tuple(bias.shape)}."
            )
    for name, t in (("gate", gate), ("up", up), ("bias_gate", bias_gate), ("bias_up", bias_up)):
        if t is not None and t.device != a.device:
            raise RuntimeError(f"gated_matmul: all tensors on one device, a is on {a.device}, {name} on {t.device}.")
    return gate, up


def request_of(
    a: Tensor, gate: Tensor, bias_gate: Tensor | None, bias_up: Tensor | None, activation: str, kernel: str,
    config: str, gpu: GpuModel | None = None,
) -> Request:  # fmt: skip
    """The request for a call; on the device of its tensors where no GPU is named."""
    here, device = (gpu, None) if gpu is not None else (machine_of(a.device)[0], a.device)
    sizes = {"m": a.shape[0], "n": gate.shape[1], "k": a.shape[1]}
    options = {"transpose_b": 1} if gate.stride(0) == 1 and gate.stride(1) != 1 else {}
    options |= {"bias": 1} if bias_gate is not None or bias_up is not None else {}
    workload = Workload("gated", sizes, DTYPE_NAMES[a.dtype], options)
    named = "" if kernel == AUTO else kernel
    return Request("gated", workload, here, device, kernel=named, config=config_of(config), detail=activation)


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call that the fused kernel computes.

    Raises:
        NotPlannedError: For other calls.
        UnsupportedError: When the caller named the kernel, and it does not compute the call.
    """
    a, gate, up, bias_gate, bias_up = tensors
    activation, kernel, config = extra
    assert a is not None
    assert gate is not None
    assert up is not None
    if kernel == COMPOSITION:
        raise NotPlannedError("two products have plans of their own")
    scratch = NotedScratch()
    out = torch.empty((a.shape[0], gate.shape[1]), dtype=a.dtype, device=a.device)
    call = GatedCall(a, gate, up, out, bias_gate, bias_up, activation, scratch)
    if kernel in KERNELS:
        _check_named(kernel, call)
    request = request_of(a, gate, bias_gate, bias_up, activation, kernel, config)
    if request.gpu is None:
        raise NotPlannedError("there is no model of the device")
    gpu = request.gpu

    def record(decided: Decision, may_spill: bool) -> RecordedCall:
        chosen = decided.program.name.removeprefix("gated.")
        reason = _refusal(chosen, call)
        if reason:
            raise NotPlannedError(reason)
        scratch = NotedScratch()
        launch = _launch(chosen, gpu, replace(call, scratch=scratch), decided.config)
        label = f"{decided.program.name} {dict(decided.config)}"
        return recipe_of([launch], tensors, [out], scratch, label, may_spill=may_spill)

    try:
        name = decide(request).program.name
        if name == f"gated.{COMPOSITION}":
            raise NotPlannedError("two products have plans of their own")
        # What a device refuses is refused to the kernel alone, so that every decision with it is made anew.
        own = Request(name, request.workload, gpu, request.device, config=request.config)
        return record_what_fits(decide(own), record, (activation,))
    except ConstrintError as error:
        if kernel in KERNELS:
            raise
        raise NotPlannedError(str(error)) from error


def _check_named(kernel: str, call: GatedCall) -> None:
    """Check that the kernel that a caller named computes a call.

    Raises:
        UnsupportedError: When it does not.
    """
    reason = _refusal(kernel, call)
    if reason:
        raise UnsupportedError(f"gated.{kernel} does not compute this pair: {reason}.")


def _refusal(kernel: str, call: GatedCall) -> str:
    """Why a fused kernel does not compute a call here; empty if it does."""
    if kernel != FUSED:
        return pointer.why_not(call)
    return why_not(call) or ("" if has_nvrtc() else "NVRTC is not installed: pip install 'constrint[cuda]'")


def _launch(kernel: str, gpu: GpuModel, call: GatedCall, config: Mapping[str, int]) -> Launch:
    """The launch of a fused kernel."""
    return (gated_launch if kernel == FUSED else pointer.gated_launch)(gpu, call, config)


_PLANS = PlanTable("gated_matmul", _build, torch.get_float32_matmul_precision)


def _composed(
    a: Tensor, gate: Tensor, up: Tensor, bias_gate: Tensor | None, bias_up: Tensor | None, activation: str
) -> Tensor:
    """Two products, and their product."""
    first = matmul(a, gate, bias_gate, activation=activation)
    return first.mul_(matmul(a, up, bias_up))


torch.library.define(
    "constrint::gated",
    "(Tensor a, Tensor gate, Tensor up, Tensor? bias_gate, Tensor? bias_up, str activation, str implementation='auto',"
    " str config='') -> Tensor",
)


@torch.library.impl("constrint::gated", "CUDA")
def _on_gpu(
    a: Tensor, gate: Tensor, up: Tensor, bias_gate: Tensor | None, bias_up: Tensor | None, activation: str,
    implementation: str = AUTO, config: str = "",
) -> Tensor:  # fmt: skip
    tensors = a, gate, up, bias_gate, bias_up
    out: Tensor | None = _PLANS.run((activation, implementation, config), *tensors)
    if out is not None:
        return out
    if implementation in KERNELS:
        return _launched(tensors, activation, implementation, config)
    return _composed(*tensors, activation)


def _launched(tensors: tuple[Any, ...], activation: str, kernel: str, config: str) -> Tensor:
    """A call of a fused kernel without a plan, where launches are observed."""
    a, gate, up, bias_gate, bias_up = tensors
    out = torch.empty((a.shape[0], gate.shape[1]), dtype=a.dtype, device=a.device)
    call = GatedCall(a, gate, up, out, bias_gate, bias_up, activation)
    _check_named(kernel, call)
    decision = decide(request_of(a, gate, bias_gate, bias_up, activation, kernel, config))
    assert decision.gpu is not None
    _launch(kernel, decision.gpu, call, decision.config).run()
    return out


@torch.library.impl("constrint::gated", "CPU")
def _on_cpu(*arguments: Any) -> Tensor:
    return gated_reference(*arguments[:6]).contiguous()


@torch.library.register_fake("constrint::gated")  # type: ignore[untyped-decorator]
def _fake(
    a: Tensor, gate: Tensor, up: Tensor, bias_gate: Tensor | None, bias_up: Tensor | None, activation: str,
    implementation: str = AUTO, config: str = "",
) -> Tensor:  # fmt: skip
    return a.new_empty((a.shape[0], gate.shape[1]))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.activation = inputs[5]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of both factors by the chain rule: their sums are computed anew, since they were not kept."""
    a, gate, up, bias_gate, bias_up = ctx.saved_tensors
    activation, needs = ctx.activation, ctx.needs_input_grad
    first, second = matmul(a, gate, bias_gate), matmul(a, up, bias_up)
    of_second = gradient * ACTIVATIONS[activation](first)
    of_first = activation_gradient(activation, gradient * second, first)
    grad_a = matmul(of_first, gate.t()) + matmul(of_second, up.t()) if needs[0] else None
    grad_gate = matmul(a.t(), of_first) if needs[1] else None
    grad_up = matmul(a.t(), of_second) if needs[2] else None
    biases = [
        of.sum(0).to(bias.dtype) if bias is not None and is_needed else None
        for of, bias, is_needed in ((of_first, bias_gate, needs[3]), (of_second, bias_up, needs[4]))
    ]
    return grad_a, grad_gate, grad_up, *biases, None, None, None


torch.library.register_autograd("constrint::gated", _backward, setup_context=_save)
