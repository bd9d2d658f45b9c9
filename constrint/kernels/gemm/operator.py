"""The table of `matmul`'s launch plans, and `constrint::gemm`, the operator of calls that are traced or observed.

The operator takes three axes, has a fake implementation and gradients, so that `torch.compile(fullgraph=True)` sees one
node. CPU tensors run the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.gradients import Saved, gradients, saved_of
from constrint.kernels.gemm.implementations import AUTO, STEADY, config_text, kernel_names, kernel_of_gradients
from constrint.kernels.gemm.reference import gemm_reference
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
