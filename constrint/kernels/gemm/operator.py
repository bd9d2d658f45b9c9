"""The table of `matmul`'s launch plans, and `constrint::gemm`, the operator of calls that are traced or observed.

The operator takes three axes, has a fake implementation and gradients, so that `torch.compile(fullgraph=True)` sees one
node. CPU tensors run the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.implementations import AUTO, STEADY, config_text, kernel_names, kernel_of_gradients
from constrint.kernels.gemm.reference import activation_gradient, gemm_reference
from constrint.kernels.launch.plan.table import PlanTable

if TYPE_CHECKING:
    from constrint.kernels.launch.plan.recipe import RecordedCall

#: Key of a plan beside its tensors: alpha = 1, beta = 0, no activation, the operands' own type of result, any kernel.
PLAIN = None
#: `PLAIN` written out, in the order of `first_call.End`.
PLAIN_END = (1.0, 0.0, None, None, AUTO, "")
#: `PLAIN_END` by one kernel that serves any number of rows.
STEADY_END = (1.0, 0.0, None, None, STEADY, "")


def _plan_of_call(tensors: tuple[Tensor | None, ...], end: Any) -> RecordedCall:
    from constrint.kernels.gemm.first_call import plan_of_call  # loaded where no plan is on disk

    return plan_of_call(tensors, end)


def _library_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    from constrint.kernels.gemm.library.planned import planned_function  # loaded where a plan calls torch

    return planned_function(stated)


def plan_key(
    alpha: float, beta: float, activation: str | None, out_dtype: torch.dtype | None, kernel: str,
    config: Mapping[str, int] | None,
) -> tuple[Any, ...] | None:  # fmt: skip
    """Key of a call's plan besides its tensors: `PLAIN`, or `first_call.End` as a plain tuple.

    Raises:
        UsageError: When a configuration is given without the kernel that it is for.
    """
    if config is None:
        if kernel == AUTO and alpha == 1.0 and beta == 0.0 and activation is None and out_dtype is None:
            return PLAIN
        return float(alpha), float(beta), activation, out_dtype, kernel, ""
    if kernel.removeprefix("gemm.") not in kernel_names():
        names = ", ".join(kernel_names())
        raise UsageError(f"matmul: config needs the kernel that it is for, one of {names}; got kernel={kernel!r}.")
    return float(alpha), float(beta), activation, out_dtype, kernel, config_text(config)


PLANS = PlanTable("matmul", _plan_of_call, torch.get_float32_matmul_precision, _library_function)

# The implementation's argument must not be called `kernel`: torch's inductor passes options by name to a function of
# its own that has such an argument.
torch.library.define(
    "constrint::gemm",
    "(Tensor a, Tensor b, Tensor? bias, Tensor? c, float alpha, float beta, str? activation, ScalarType out_dtype,"
    " str implementation='auto', str config='')"
    " -> Tensor",
)


@torch.library.impl("constrint::gemm", "CUDA")
def _on_gpu(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, alpha: float, beta: float, activation: str | None,
    out_dtype: torch.dtype, implementation: str = AUTO, config: str = "",
) -> Tensor:  # fmt: skip
    from constrint.kernels.gemm.first_call import End, run

    end = End(alpha, beta, activation, out_dtype, implementation, config)
    out: Tensor | None = PLANS.run(tuple(end), a, b, bias, c if beta != 0.0 else None)
    return run(a, b, bias, c, end) if out is None else out


@torch.library.impl("constrint::gemm", "CPU")
def _on_cpu(*arguments: Any) -> Tensor:
    operands_and_end = arguments[:8]
    return gemm_reference(*operands_and_end).contiguous()


@torch.library.register_fake("constrint::gemm")  # type: ignore[untyped-decorator]
def _fake(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, alpha: float, beta: float, activation: str | None,
    out_dtype: torch.dtype, implementation: str = AUTO, config: str = "",
) -> Tensor:  # fmt: skip
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=out_dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, c, alpha, beta, activation, out_dtype, implementation, _ = inputs
    ctx.implementation = kernel_of_gradients(implementation)
    tensors, ctx.facts = saved_of(a, b, bias, c, (alpha, beta, activation, out_dtype), output)
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, b, bias, c, output = ctx.saved_tensors
    saved = Saved(a, b, bias, c, output, ctx.facts)
    multiply = partial(torch.ops.constrint.gemm, implementation=ctx.implementation)
    return *gradients(multiply, saved, gradient, ctx.needs_input_grad[:4]), None, None, None, None, None, None


torch.library.register_autograd("constrint::gemm", _backward, setup_context=_save)


#: (alpha, beta, activation, out_dtype).
End = tuple[float, float, str | None, "torch.dtype"]
#: Takes a, b, bias, c and the four of `End`.
Multiply = Callable[..., Tensor]


class SavedOptions(NamedTuple):
    """Options of a product that its gradients need: everything that is no tensor."""

    end: End
    bias_dtype: torch.dtype | None
    c_dtype: torch.dtype | None


class Saved(NamedTuple):
    """Tensors and options that a product saves for its gradients; tensors that they do not need are None."""

    a: Tensor  # (..., M, K)
    b: Tensor  # (..., K, N), with the batch of a
    bias: Tensor | None
    c: Tensor | None
    output: Tensor | None
    facts: SavedOptions
    z: Tensor | None = None  # the activation's argument, where the forward pass stored it


def saved_of(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, end: End, output: Tensor
) -> tuple[tuple[Tensor | None, ...], SavedOptions]:
    """The tensors to save, in the order of `Saved`, and the facts."""
    activation = end[2]
    # Only relu's derivative can be read off its result; for the others the product is computed again.
    needs_sum = activation not in (None, "relu")
    facts = SavedOptions(end, None if bias is None else bias.dtype, None if c is None else c.dtype)
    tensors = (a, b, bias if needs_sum else None, c if needs_sum else None, output if activation else None)
    return tensors, facts


def gradients(
    multiply: Multiply, saved: Saved, gradient: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a, b, bias and c; None where they are not needed.

    Every operation can be differentiated again: where that is asked for, the activation's argument is computed anew.
    """
    a, b = saved.a, saved.b
    alpha, beta, activation, out_dtype = saved.facts.end
    if activation == "relu":
        assert saved.output is not None
        # NaN passes gradients on, as in torch.
        gradient = torch.where(saved.output <= 0, torch.zeros_like(gradient), gradient)
    elif activation is not None:
        z = None if torch.is_grad_enabled() else saved.z
        if z is None:
            z = multiply(a, b, saved.bias, saved.c, alpha, beta, None, out_dtype)
        gradient = activation_gradient(activation, gradient, z)
    narrow = gradient if gradient.dtype == a.dtype else gradient.to(a.dtype)
    grad_a = _in_order_of(a, multiply, narrow, b.mT, alpha) if needs[0] else None
    grad_b = _in_order_of(b, multiply, a.mT, narrow, alpha) if needs[1] else None
    grad_bias, grad_c = None, None
    if needs[2] and saved.facts.bias_dtype is not None:
        every_row = tuple(range(gradient.dim() - 1))
        grad_bias = gradient.sum(every_row, dtype=_wide(gradient.dtype)).to(saved.facts.bias_dtype)
    if needs[3] and saved.facts.c_dtype is not None:
        grad_c = (beta * gradient).to(saved.facts.c_dtype)
    return grad_a, grad_b, grad_bias, grad_c


def _in_order_of(t: Tensor, multiply: Multiply, left: Tensor, right: Tensor, alpha: float) -> Tensor:
    """alpha * left @ right, by columns where t is: autograd copies gradients of another order than their tensor's."""
    if t.stride(-1) != 1 and t.stride(-2) == 1:
        return multiply(right.mT, left.mT, None, None, alpha, 0.0, None, t.dtype).mT
    return multiply(left, right, None, None, alpha, 0.0, None, t.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
