"""`matmul`: matrix products by the program that `constrint.choose.decide` chooses.

A call whose signature has a plan runs it: one look-up, the result's memory, the launch. The first call of a signature
makes the plan (`first_call.py`, top to bottom). Calls that are traced, transformed or observed, and those of other
devices, go through the operator `constrint::gemm` (`operator.py`). `matmul.why` explains the decision (`why.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.kernels.gemm.backward.plans import KEEPS_SUM, activated
from constrint.kernels.gemm.backward.run import all_planned, by_operations, key_of_all, planned
from constrint.kernels.gemm.checks import stack
from constrint.kernels.gemm.implementations import (
    AUTO,
    COMPOSED,
    check_kernel,
    config_of,
    kernel_of_gradients,
)
from constrint.kernels.gemm.layer_nodes import recorded
from constrint.kernels.gemm.operator import (
    PLAIN,
    PLAIN_END,
    PLANS,
    STEADY_END,
    Saved,
    SavedOptions,
    plan_key,
    saved_of,
)
from constrint.kernels.gemm.reference import ACTIVATIONS, default_out_dtype, gemm_reference
from constrint.kernels.gemm.training import recorded_table
from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, is_transformed

if TYPE_CHECKING:
    from constrint.choose import Decision

#: Elements of the largest weights whose products take the device less time than the host.
SMALL = 1 << 18


def matmul(
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
) -> Tensor:
    """activation(alpha * a @ b + bias + beta * c), or epilogue(a @ b, ...), accumulated in 32 bits.

    The result is rounded once, except where the library computes the product and a pointwise kernel the rest: then the
    product is rounded to the result's type first, as by torch's own two calls, which adds an error of at most half a
    unit of what the kernel reads. `kernel="kernels"` rounds once; an `out_dtype` of 32 bits makes both small. Where
    gradients are wanted, activations other than relu start from the sum as it is stored, rounded, as torch's do.

    A new product whose decision rests on predictions is tried during its first calls: the best candidates are timed on
    the operands, and the fastest one runs from then on (`CONSTRINT_TRIALS=0`, or deterministic algorithms: never).
    Where autograd records the product, torch's own function is tried, too, once backward passes run: if both passes
    take less time by its nodes, it runs from then on, and sums of 16-bit operands are as torch's switches say.

    Dimensions and batches are those of `torch.matmul`. Operands may have any strides. fp32 operands are multiplied in
    tf32 where `torch.get_float32_matmul_precision()` allows it, else in fp32 (three tf32 passes on NVIDIA's units, or
    six of bf16). Under `torch.autocast` operands are converted as those of `torch.matmul` are.

    Args:
        a: (..., M, K) or (K,): fp16, bf16, fp32, fp64, fp8 (e4m3) or int8.
        b: (..., K, N) or (K,), of the same dtype, on the same device.
        bias: (N,), added to every row.
        alpha: Factor of the product.
        beta: Factor of c; where it is 0, c is not read.
        c: Broadcastable to the result's shape.
        activation: "relu", "gelu" (exact), "silu", "gelu_tanh", "sigmoid", "quick_gelu" (x * sigmoid(1.702 * x)),
            "relu2" (relu squared) or "tanh".
        epilogue: In place of bias, factors, c and activation a function of the sum and of operands by name, traced once
            (`lambda acc, bias, r: gelu(acc + bias) * r`, with torch's functions), or a text, "gelu(acc + bias) * r".
        operands: Its operands by name: tensors of one element, (M, 1), (N,) or of the result's shape; or numbers, which
            are compiled in. `bias` and `c` may be given as arguments, too.
        out_dtype: Type of the result; None: fp8 gives bf16, int8 gives int32, anything else its own type.
        kernel: "auto": the best candidate by evidence, of our kernels and torch's own product (cuBLAS, hipBLASLt);
            "kernels": of our kernels; "library": torch's own product, whose gradients are chosen among all;
            "library+pointwise": the same, then a pointwise kernel for what it leaves of the epilogue; the name of one
            of our kernels, such as "cuda". Tensors on the CPU run the reference, whatever is named.
        config: Values of all parameters of the named kernel, which then runs with them.

    Returns:
        A new tensor (..., M, N), without the dimensions that a 1-D operand lacks. Sizes of 0 give what torch.matmul
        gives; non-finite values spread as they do there.

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together, as torch.matmul does.
        TypeError: For arguments that are no tensors, or dtypes that are not supported.
        UnknownNameError: For an unknown activation or kernel; lists the known ones.
        UnsupportedError: When the named kernel does not compute the product; says why.
        UsageError: When `config` is not valid: names each rule that it breaks, and what was seen.
    """
    if torch._C._is_any_autocast_enabled():
        a, b = _autocast(a, b)
    if epilogue is not None or operands is not None:
        ends = alpha, beta, activation
        return _with_epilogue(
            a, b, bias, c, epilogue, operands, ends, out_dtype=out_dtype, kernel=kernel, config=config
        )
    if not is_compiling() and (c is None or beta != 0.0):
        # Inline, since every call passes here; `plan_key` says the same.
        is_plain = alpha == 1.0 and beta == 0.0 and activation is None and out_dtype is None
        is_plain = is_plain and kernel == AUTO and config is None
        end = PLAIN if is_plain else plan_key(alpha, beta, activation, out_dtype, kernel, config)
        out: Any = PLANS.call(False, end, a, b, bias, c)
        if out is WANTS_GRAD:
            if _keeps_batch(a, b, c):
                if c is None and (is_plain or end == (1.0, 0.0, activation, None, AUTO, "")):
                    differentiable: Any = RECORDED.call(True, end, a, b, bias, None)
                    if differentiable is IS_NEW:
                        differentiable = RECORDED.learn(end, a, b, bias, None)
                    if differentiable is None:
                        differentiable = _by_nodes(activation, a, b, bias)
                else:
                    differentiable = _apply(a, b, bias, c, end)
                with_node: Tensor = differentiable
                return with_node
        elif out is IS_NEW:
            out = PLANS.learn(end, a, b, bias, c)
            if out is not None:
                learnt: Tensor = out
                return learnt
        elif out is not None:
            result: Tensor = out
            return result
    end = plan_key(alpha, beta, activation, out_dtype, kernel, config)
    return _through_operator(a, b, bias, c, *(end or PLAIN_END))


def _with_epilogue(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, epilogue: Any, operands: Any,
    ends: tuple[float, float, str | None], **options: Any,
) -> Tensor:  # fmt: skip
    """`matmul` with a user's epilogue.

    Raises:
        UsageError: Beside factors or an activation, and for operands without an epilogue.
    """
    if is_compiling() or not _OWN:
        from constrint.kernels.gemm.traced.op import all_operands, traced_matmul  # loaded where an epilogue is given

        if not is_compiling():
            _OWN[:] = all_operands, traced_matmul
    else:
        all_operands, traced_matmul = _OWN  # what an import costs each call is seen
    return traced_matmul(a, b, epilogue, all_operands(bias, c, epilogue, operands, ends), **options)


#: What `_with_epilogue` loads.
_OWN: list[Any] = []


def small_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """x (..., K) @ weight (N, K)^T + bias (N,) for small weights, at little cost to the host; None for large ones.

    One kernel serves any number of rows, so that a new batch size compiles nothing. Gradients are torch's.
    """
    if is_compiling() or weight.numel() > SMALL:
        return None
    transposed = weight.t()
    out: Any = PLANS.call(False, STEADY_END, x, transposed, bias, None)
    if out is WANTS_GRAD:
        linear: Tensor | None = _apply_linear(x, weight, bias)
        return linear
    if out is IS_NEW and x.dim() > 1 and x.shape[-1] == weight.shape[1] and x.dtype == weight.dtype:
        out = PLANS.learn(STEADY_END, x, transposed, bias, None)
    result: Tensor | None = None if out is IS_NEW else out
    return result


def _why(*arguments: Any, **options: Any) -> Decision:
    """The decision of `matmul` for the same arguments; see `why.py`."""
    from constrint.kernels.gemm.why import why  # loaded where a decision is explained

    return why(*arguments, **options)


matmul.why = _why  # type: ignore[attr-defined]


class _Linear(torch.autograd.Function):
    """`small_linear` with torch's own products for its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        transposed = weight.t()
        out: Any = PLANS.call(True, STEADY_END, x, transposed, bias, None)
        if out is IS_NEW:
            out = PLANS.learn(STEADY_END, x, transposed, bias, None)
        if out is None:
            out = torch.nn.functional.linear(x, weight, bias)
        ctx.save_for_backward(x, weight)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.shape[-1])
        grad_x = (rows @ weight).view(x.shape) if needs_x else None
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if needs_weight else None
        return grad_x, grad_weight, rows.sum(0) if needs_bias else None


def _autocast(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in autocast's dtype where it is on for their device; fp64, 8-bit and integer operands stay."""
    kind = a.device.type if isinstance(a, Tensor) else ""
    if not kind or not isinstance(b, Tensor) or not torch.is_autocast_enabled(kind):
        return a, b
    dtype, narrow = torch.get_autocast_dtype(kind), (torch.float32, torch.float16, torch.bfloat16)
    if a.dtype not in narrow or b.dtype not in narrow:
        return a, b
    return a.to(dtype), b.to(dtype)


def _through_operator(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    c: Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None,
    out_dtype: torch.dtype | None,
    kernel: str,
    config: str,
) -> Tensor:
    check_kernel(kernel.removeprefix("gemm."))
    operands = stack(a, b, bias, c, alpha, beta, activation, out_dtype)
    end = (alpha, beta, activation, operands.kind)
    if not is_compiling() and is_transformed():
        # An operator would need a rule for each transform.
        return gemm_reference(operands.a, operands.b, bias, operands.c, *end).reshape(operands.result_shape)
    after = activation if is_compiling() and activation in KEEPS_SUM and _may_train(a, b, bias, c) else None
    if after is not None:
        # The sum is stored for the gradients, and torch's compiler fuses the rest with what surrounds it.
        end = (alpha, beta, None, operands.kind)
    out: Tensor = torch.ops.constrint.gemm(operands.a, operands.b, bias, operands.c, *end, kernel, config)
    if after is not None:
        out = ACTIVATIONS[after](out)
    return out.reshape(operands.result_shape)


def _may_train(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _keeps_batch(a: Tensor, b: Tensor, c: Tensor | None) -> bool:
    """Whether gradients are products of the same batch, so that no gradient is a sum over the batch."""
    dims = a.dim()
    if dims == 2 and c is None:
        return b.dim() == 2
    if dims < 2 or (c is not None and c.shape != (*a.shape[:-1], b.shape[-1])):
        return False
    return b.dim() == 2 or (b.dim() == dims and a.shape[:-2] == b.shape[:-2])


def _multiply(a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, *end: Any, kernel: str = AUTO) -> Tensor:
    alpha, beta, activation, out_dtype = end
    ends: dict[str, Any] = {"alpha": alpha, "beta": beta, "activation": activation, "out_dtype": out_dtype}
    return matmul(a, b, bias, c=c, **ends, kernel=kernel)


@lru_cache(maxsize=256)
def _end_at_sum(end: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The key of the same product that ends before its activation."""
    alpha, beta, _, out_dtype, kernel, config = end
    # A composition has nothing to compose then.
    return plan_key(alpha, beta, None, out_dtype, AUTO if kernel == COMPOSED else kernel, config_of(config))


def _by_nodes(activation: str | None, a: Tensor, b: Tensor, bias: Tensor | None, _: None = None) -> Tensor:
    """A product without options, perhaps with an activation, where autograd records it: by nodes of ours."""
    if activation is not None:
        return _with_activation(a, b, bias, activation)
    out: Tensor = _apply_plain(a, b) if bias is None else _apply_biased(a, b, bias)
    return out


def _by_torch(activation: str | None, a: Tensor, b: Tensor, bias: Tensor | None, _: None = None) -> Tensor:
    """The same by torch's functions, as a user of torch writes it; sums are as torch's switches for 16 bits say."""
    if bias is None:
        out = torch.mm(a, b) if a.dim() == 2 else torch.matmul(a, b)
    elif a.dim() == 2:
        out = torch.addmm(bias, a, b)
    else:
        out = torch.nn.functional.linear(a, b.mT, bias) if b.dim() == 2 else torch.matmul(a, b) + bias
    return out if activation is None else ACTIVATIONS[activation](out)


#: Calls that autograd records, of products without options beside an activation.
RECORDED = recorded_table("recorded_matmul", PLANS, _by_nodes, _by_torch)


def _with_activation(a: Tensor, b: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """A product with an activation alone where autograd records it, by a node that costs the host less."""
    end = plan_key(1.0, 0.0, activation, None, AUTO, None)
    first = _end_at_sum(end) if activation in KEEPS_SUM else end
    out: Any = PLANS.call(True, first, a, b, bias, None)
    if out is IS_NEW:
        with torch.no_grad():
            out = PLANS.learn(first, a, b, bias, None)
    if out is not None:
        return recorded(a, b, bias, out, activation, _multiply, is_linear=False)
    differentiable: Tensor = _apply(a, b, bias, None, end)
    return differentiable


class _Product(torch.autograd.Function):
    """A product by its recorded plan, whose gradients are one plan, too."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, end: Any) -> Tensor:
        alpha, beta, activation, out_dtype, kernel, _ = end or PLAIN_END
        # The argument of these is stored for the gradients, as torch stores it: the product ends before them.
        keeps_sum = activation in KEEPS_SUM
        first = _end_at_sum(end) if keeps_sum else end
        out: Any = PLANS.call(True, first, a, b, bias, c)
        if out is IS_NEW:
            out = PLANS.learn(first, a, b, bias, c)
        z = None
        if out is None:
            out = _through_operator(a, b, bias, c, *(end or PLAIN_END))
        elif keeps_sum:
            z, out = out, activated(out, str(activation))
        full = (alpha, beta, activation, out_dtype or default_out_dtype(a.dtype))
        tensors, ctx.facts = saved_of(a, b, bias, c, full, out)
        ctx.kernel = kernel_of_gradients(kernel)
        # The result itself is for relu alone, where z is None.
        ctx.save_for_backward(*tensors[:4], tensors[4] if activation == "relu" else None, z)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b, bias, c, output, z = ctx.saved_tensors
        facts, needs = ctx.facts, ctx.needs_input_grad
        alpha, beta, activation, _ = facts.end
        kept = output if z is None else z
        of_c = needs[3] and facts.c_dtype is not None
        # A gradient of c may be wider than the plan's gradient of the sum.
        if (activation is None or kept is not None) and not (of_c and gradient.dtype != a.dtype):
            options = alpha, activation, facts.bias_dtype, ctx.kernel
            found = planned(gradient, a, b, kept, options, (*needs[:3], of_c and activation is not None))
            if found is not None:
                before = gradient if found[3] is None else found[3]
                grad_c = (before if beta == 1.0 else beta * before).to(facts.c_dtype) if of_c else None
                return *found[:3], grad_c, None
        saved = Saved(a, b, bias, c, output, facts, z)
        return *by_operations(partial(_multiply, kernel=ctx.kernel), saved, gradient, needs[:4], ctx.kernel), None


#: The backward pass of `_Plain`.
_OF_BOTH = key_of_all(None, None, is_linear=False)


class _Plain(torch.autograd.Function):
    """`_Product` without bias, c and options: most products in training, for which the host's time counts."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        out: Any = PLANS.call(True, PLAIN, a, b, None, None)
        if out is IS_NEW:
            out = PLANS.learn(PLAIN, a, b, None, None)
        if out is None:
            out = _through_operator(a, b, None, None, *PLAIN_END)
        ctx.save_for_backward(a, b)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_a, of_b = ctx.needs_input_grad
        if of_a and of_b:
            both = all_planned(_OF_BOTH, gradient, a, b, None)
            if both is not None:
                return both
        return _plain_gradients(gradient, a, b, None, (of_a, of_b, False, False))[:2]


#: `needs_input_grad` where every operand has a gradient.
_EVERY = (True, True, True)


class _Biased(torch.autograd.Function):
    """`_Plain` with a bias."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        out: Any = PLANS.call(True, PLAIN, a, b, bias, None)
        if out is IS_NEW:
            out = PLANS.learn(PLAIN, a, b, bias, None)
        if out is None:
            out = _through_operator(a, b, bias, None, *PLAIN_END)
        ctx.bias_dtype = bias.dtype
        ctx.save_for_backward(a, b)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        needs, bias_dtype = ctx.needs_input_grad, ctx.bias_dtype
        if needs == _EVERY:
            every = all_planned(key_of_all(None, bias_dtype, is_linear=False), gradient, a, b, None)
            if every is not None:
                return every
        return _plain_gradients(gradient, a, b, bias_dtype, (*needs, False))[:3]


def _plain_gradients(gradient: Tensor, a: Tensor, b: Tensor, bias_dtype: Any, needs: tuple[bool, ...]) -> Any:
    """Gradients of a, b, the bias and c of a product with neither factors nor an activation."""
    found = planned(gradient, a, b, None, (1.0, None, bias_dtype, AUTO), needs)
    if found is None:
        facts = SavedOptions((1.0, 0.0, None, default_out_dtype(a.dtype)), bias_dtype, None)
        saved = Saved(a, b, None, None, None, facts)
        found = by_operations(partial(_multiply, kernel=AUTO), saved, gradient, needs, AUTO)
    return found


_apply_plain, _apply_biased = apply_of(_Plain), apply_of(_Biased)
_apply, _apply_linear = apply_of(_Product), apply_of(_Linear)
