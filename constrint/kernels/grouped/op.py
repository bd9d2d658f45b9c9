"""`grouped_matmul`: products of rows that are dealt to experts, in one launch, and their gradients. Needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision, Request, decide
from constrint.errors import (
    CompileError,
    ConstrintError,
    InfeasibleError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.first_call import has_nvrtc, machine_of
from constrint.kernels.gemm.operands import can_describe
from constrint.kernels.gemm.reference import ACTIVATIONS, DTYPE_NAMES
from constrint.kernels.grouped.cost import MOST_EXPERTS
from constrint.kernels.grouped.launch import GroupedCall, grouped_launch
from constrint.kernels.grouped.reference import clamped_ends, grouped_reference
from constrint.kernels.launch.look import look
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, PlanTable
from constrint.kernels.launch.policy import launch_what_fits, record_what_fits
from constrint.select.candidate import Config
from constrint.select.workload import Workload

AUTO, OWN, LIBRARY, LOOP = "auto", "cuda", "library", "loop"
KERNELS = (AUTO, OWN, LIBRARY, LOOP)
#: Columns and rows of weights that `torch._grouped_mm` takes are multiples of 16 bytes.
LIBRARY_BYTES = 16


def grouped_matmul(
    a: Tensor | Sequence[Tensor],
    b: Tensor | Sequence[Tensor],
    offsets: Tensor | None = None,
    *,
    sizes: Tensor | Sequence[int] | None = None,
    bias: Tensor | None = None,
    activation: str | None = None,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    kernel: str = AUTO,
    config: Config | None = None,
) -> Any:
    """activation(alpha * a[rows of e] @ b[e] + bias[e]) for every expert e, accumulated in fp32 and rounded once.

    The rows of expert 0 come first, then those of expert 1, and so on; an expert may have none. Offsets stay on the
    device: the host neither reads them nor waits. Rows of no expert, behind the last offset, give zeros. An offset less
    than the one before it counts as that one, and one beyond the last row as the number of rows, so that no call reads
    or writes memory that is not its own.

    Args:
        a: (M, K), fp16 or bf16; any other floating dtype runs as a loop. Or a list of (M_e, K_e).
        b: (experts, K, N) of the same dtype. Or a list of (K_e, N_e), for a list `a`.
        offsets: (experts,), int32, on the device of `a`: where the rows of each expert end.
        sizes: In place of `offsets`: the number of rows of each expert, on any device, or whole numbers, which are
            checked: none is negative, and they sum to at most M.
        bias: (N,) for all experts, or (experts, N).
        activation: "relu", "gelu" (exact) or "silu".
        alpha: Factor of the products.
        out_dtype: Type of the result; None: that of `a`.
        kernel: "auto"; "cuda": the kernel of this package; "library": torch._grouped_mm; "loop": one product for each
            expert, for which the host reads the offsets.
        config: Values of all parameters of "cuda", which then runs with them.

    Returns:
        (M, N); for lists a list of (M_e, N_e).

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together.
        TypeError: For arguments that are no tensors.
        UnknownNameError: For an unknown activation or kernel.
        UnsupportedError: When the named kernel does not compute the products; says why.
        UsageError: When there are neither offsets nor sizes, or both; for sizes that do not fit.
    """
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", str(kernel), KERNELS)
    if activation is not None and activation not in ACTIVATIONS:
        raise UnknownNameError("activation", str(activation), ACTIVATIONS)
    ends = {"activation": activation, "alpha": alpha, "out_dtype": out_dtype}
    given = None if config is None else tuple(config.items())
    are_tensors = isinstance(offsets, Tensor) and (bias is None or isinstance(bias, Tensor))
    if are_tensors and sizes is None and kernel in (AUTO, OWN) and isinstance(a, Tensor) and isinstance(b, Tensor):
        # Signatures that were checked before; a new one, or one that wants gradients, goes on below.
        planned: Any = _PLANS.call(False, (alpha, activation, str(out_dtype or a.dtype), given), a, b, offsets, bias)
        if isinstance(planned, Tensor):
            return planned
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return _of_lists(a, b, offsets, sizes, bias, ends, kernel, config)
    offsets = _offsets_of(a, b, offsets, sizes)
    _check(a, b, offsets, bias)
    wants = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (a, b, bias))
    options = (alpha, activation, out_dtype or a.dtype, kernel, given)
    if wants:
        out: Tensor = _Grouped.apply(a, b, offsets, bias, options)  # type: ignore[no-untyped-call]
        return out
    return _run(a, b, offsets, bias, *options)


def _of_lists(
    a: Any, b: Any, offsets: Any, sizes: Any, bias: Tensor | None, ends: dict[str, Any], kernel: str, config: Any
) -> list[Tensor]:
    """Products of lists: one launch where the weights are slices of one tensor, else a loop of products."""
    if offsets is not None or sizes is not None or isinstance(a, Tensor) or isinstance(b, Tensor):
        raise UsageError("grouped_matmul: lists of A and of B go together, without offsets and sizes.")
    rows, weights = list(a), list(b)
    if len(rows) != len(weights) or not rows:
        raise UsageError(f"grouped_matmul: as many matrices A as B, at least one; got {len(rows)} and {len(weights)}.")
    if any(not isinstance(t, Tensor) or t.dim() != 2 for t in (*rows, *weights)):
        raise TypeError("grouped_matmul: lists hold tensors of two axes.")
    stacked = _stacked(weights)
    alike = all(t.shape[1] == rows[0].shape[1] and t.dtype == rows[0].dtype for t in rows)
    if stacked is None or not alike or kernel == LOOP:
        biases = [bias if bias is None or bias.dim() == 1 else bias[i] for i in range(len(rows))]
        return [matmul(x, w, one, **ends) for x, w, one in zip(rows, weights, biases, strict=True)]
    numbers = [len(x) for x in rows]
    out = grouped_matmul(torch.cat(rows), stacked, sizes=numbers, bias=bias, **ends, kernel=kernel, config=config)
    return list(out.split(numbers))


def _stacked(weights: list[Tensor]) -> Tensor | None:
    """One tensor (experts, K, N) of matrices that follow each other in memory at equal distances; else None."""
    first = weights[0]
    if any(w.requires_grad for w in weights):
        return None  # the slices are variables of their own
    if any(w.shape != first.shape or w.stride() != first.stride() or w.dtype != first.dtype for w in weights):
        return None
    if any(w.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() for w in weights):
        return None
    starts = [w.storage_offset() for w in weights]
    step = starts[1] - starts[0] if len(starts) > 1 else first.numel()
    if step <= 0 or any(start != starts[0] + i * step for i, start in enumerate(starts)):
        return None
    return first.as_strided((len(weights), *first.shape), (step, *first.stride()))


def _offsets_of(a: Tensor, b: Tensor, offsets: Tensor | None, sizes: Tensor | Sequence[int] | None) -> Tensor:
    """The offsets of a call; sizes that the host has are checked."""
    if (offsets is None) == (sizes is None):
        raise UsageError("grouped_matmul: give either offsets, where the rows of each expert end, or sizes.")
    if offsets is not None:
        if not isinstance(offsets, Tensor):
            raise TypeError(
                f"grouped_matmul: offsets are a tensor, got {type(offsets).__name__}; `sizes` may be numbers."
            )
        return offsets
    if isinstance(sizes, Tensor):
        return sizes.to(a.device).cumsum(0).to(torch.int32)
    numbers = list(sizes or ())
    if any(not isinstance(n, int) or n < 0 for n in numbers) or sum(numbers) > a.shape[0]:
        raise UsageError(
            f"grouped_matmul: sizes are whole numbers from 0 on that sum to at most {a.shape[0]}, got {numbers}."
        )
    return torch.tensor(numbers, dtype=torch.int64).cumsum(0).to(torch.int32).to(a.device)


def _check(a: Tensor, b: Tensor, offsets: Tensor, bias: Tensor | None) -> None:
    """Raise for arguments that do not go together. The values of offsets are not read."""
    if bias is not None and not isinstance(bias, Tensor):
        raise TypeError(f"grouped_matmul: bias is a tensor, got {type(bias).__name__}.")
    if a.dim() != 2 or b.dim() != 3 or a.shape[1] != b.shape[1]:
        raise RuntimeError(
            f"grouped_matmul: a (M, K) and b (experts, K, N) with one K, got {tuple(a.shape)} and {tuple(b.shape)}."
        )
    if a.dtype != b.dtype or not a.is_floating_point() or a.dtype.itemsize == 1:
        raise RuntimeError(f"grouped_matmul: a and b have one dtype of 16, 32 or 64 bits, got {a.dtype} and {b.dtype}.")
    if offsets.dtype != torch.int32 or offsets.shape != (b.shape[0],):
        raise RuntimeError(
            f"grouped_matmul: offsets are int32, one for each of {b.shape[0]} experts, got {offsets.dtype} "
            f"{tuple(offsets.shape)}."
        )
    if bias is not None and bias.shape not in ((b.shape[2],), (b.shape[0], b.shape[2])):
        raise RuntimeError(
            f"grouped_matmul: bias is ({b.shape[2]},) or {(b.shape[0], b.shape[2])}, got {tuple(bias.shape)}."
        )
    for name, t in (("b", b), ("offsets", offsets), ("bias", bias)):
        if t is not None and t.device != a.device:
            raise RuntimeError(f"grouped_matmul: all tensors on one device, a is on {a.device}, {name} on {t.device}.")


def _run(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    bias: Tensor | None,
    alpha: float,
    activation: str | None,
    out_dtype: torch.dtype,
    kernel: str,
    config: tuple[tuple[str, int], ...] | None,
) -> Tensor:
    if not a.numel() or not b.numel() or a.device.type != "cuda":
        return grouped_reference(a, b, offsets, bias, alpha, activation, out_dtype)
    plain = alpha == 1.0 and activation is None and bias is None and out_dtype == a.dtype
    if kernel in (AUTO, OWN) and a.stride(1) != 1:
        # The space counts memory of slices along K; those across it take more.
        a = a.contiguous()
    own = _why_not_own(a, b, out_dtype)
    if kernel == OWN and own:
        raise UnsupportedError(f"grouped.cuda does not compute these products: {own}.")
    if kernel == OWN or (kernel == AUTO and not own):
        try:
            return _own(a, b, offsets, bias, alpha, activation, out_dtype, config)
        except (InfeasibleError, CompileError, UnsupportedError):
            if kernel == OWN:
                raise
    library = _why_not_library(a, b, plain=plain)
    if kernel == LIBRARY and library:
        raise UnsupportedError(f"torch._grouped_mm does not compute these products: {library}.")
    if kernel in (LIBRARY, AUTO) and not library:
        out: Tensor = torch._grouped_mm(a, b, offs=offsets)
        return out
    return _loop(a, b, offsets, bias, alpha, activation, out_dtype)


def _why_not_own(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> str:
    """Why the kernel of this package does not compute the products; empty if it does."""
    gpu = machine_of(a.device)[0]
    if gpu is None or not gpu.arch.target.startswith("sm_90"):
        return "it is written for Hopper"
    if not has_nvrtc():
        return "it is compiled by NVRTC, which is not installed here: pip install 'constrint[cuda]'"
    if a.dtype not in (torch.float16, torch.bfloat16) or out_dtype == torch.float64:
        return f"it is for fp16 and bf16, not for {a.dtype} with results of {out_dtype}"
    if not (can_describe(a) and can_describe(b)):
        return "it copies no operand: rows lie along K or across it and start at multiples of 16 bytes"
    return "" if b.shape[0] <= MOST_EXPERTS else f"it is for up to {MOST_EXPERTS} experts"


def _why_not_library(a: Tensor, b: Tensor, *, plain: bool) -> str:
    """Why `torch._grouped_mm` does not compute the products; empty if it does."""
    if not hasattr(torch, "_grouped_mm"):
        return "this torch has none"
    if not plain:
        return "it takes no epilogue"
    if a.dtype != torch.bfloat16:
        return f"it is for bf16, not for {a.dtype}"
    if any(size * a.element_size() % LIBRARY_BYTES for size in (a.shape[1], b.shape[2])):
        return f"it takes rows of multiples of {LIBRARY_BYTES} bytes"
    return ""


def workload_of_call(a: Tensor, b: Tensor, bias: Tensor | None) -> Workload:
    """The workload for which a configuration is chosen: rows rounded up by at most an eighth, which calls share."""
    experts, k, n = b.shape
    step = 1 << max(0, (a.shape[0] - 1).bit_length() - 4)
    rows = max(experts, -(-a.shape[0] // step) * step)
    options = {"transpose_b": 1} if b.stride(1) == 1 and b.stride(2) != 1 else {}
    options |= {"bias": 1} if bias is not None else {}
    return Workload("grouped", {"m": rows, "n": n, "k": k, "experts": experts}, DTYPE_NAMES[a.dtype], options)


def _own(
    a: Tensor, b: Tensor, offsets: Tensor, bias: Tensor | None, alpha: float, activation: str | None,
    out_dtype: torch.dtype, config: tuple[tuple[str, int], ...] | None,
) -> Tensor:  # fmt: skip
    """The kernel of this package: by its plan, else stated and launched for this call alone."""
    extra = (alpha, activation, str(out_dtype), config)
    planned: Any = _PLANS.call(True, extra, a, b, offsets, bias)
    if planned is IS_NEW:
        planned = _PLANS.learn(extra, a, b, offsets, bias)
    if isinstance(planned, Tensor):
        return planned
    out = torch.empty((a.shape[0], b.shape[2]), dtype=out_dtype, device=a.device)
    if bias is not None and bias.stride(-1) != 1:
        bias = bias.contiguous()
    decision = _decided(a, b, bias, config)
    call = GroupedCall(a, b, offsets.contiguous(), out, bias, alpha, activation)

    def start(chosen: Decision, /, *, may_spill: bool) -> None:
        launch = grouped_launch(_gpu_of(chosen), call, chosen.config)
        look([launch], may_spill=may_spill)
        launch.run()

    if config is not None:
        start(decision, may_spill=True)
    else:
        launch_what_fits(decision, start, optional=_traits(activation, out))
    return out


def _decided(a: Tensor, b: Tensor, bias: Tensor | None, config: tuple[tuple[str, int], ...] | None) -> Decision:
    """The decision for a call.

    Raises:
        InfeasibleError: When nothing is valid.
        UsageError: When the named configuration is not valid.
    """
    gpu: GpuModel | None = machine_of(a.device)[0]
    if gpu is None:
        raise UnsupportedError("grouped_matmul: there is no hardware model of the device.")
    given = None if config is None else dict(config)
    return decide(Request("grouped", workload_of_call(a, b, bias), gpu, kernel=OWN, config=given))


def _gpu_of(decision: Decision) -> GpuModel:
    assert decision.gpu is not None  # `_decided` has asked for it
    return decision.gpu


def _traits(activation: str | None, out: Tensor) -> tuple[str, ...]:
    """Traits of a call that the kernel is compiled for, beside its workload."""
    return (*([activation] if activation else []), str(out.dtype))


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call.

    Raises:
        NotPlannedError: For calls that the kernel of this package does not compute, or not as operands lie.
    """
    a, b, offsets, bias = tensors
    alpha, activation, kind, config = extra
    if a is None or b is None or offsets is None:
        raise NotPlannedError("operands are missing")
    out_dtype = getattr(torch, kind.removeprefix("torch."))
    reason = _why_not_own(a, b, out_dtype)
    if reason or not a.numel() or not b.numel() or not offsets.is_contiguous():
        raise NotPlannedError(reason or "nothing to compute, or offsets that do not follow each other")
    out = torch.empty((a.shape[0], b.shape[2]), dtype=out_dtype, device=a.device)
    call = GroupedCall(a, b, offsets, out, bias, alpha, activation)

    def record(chosen: Decision, may_spill: bool) -> RecordedCall:
        launch = grouped_launch(_gpu_of(chosen), call, chosen.config)
        label = f"grouped.cuda {dict(chosen.config)}"
        return recipe_of([launch], tensors, [out], NotedScratch(), label, may_spill=may_spill)

    try:
        return record_what_fits(_decided(a, b, bias, config), record, _traits(activation, out))
    except ConstrintError as error:
        raise NotPlannedError(str(error)) from error


_PLANS = PlanTable("grouped_matmul", _build, torch.get_float32_matmul_precision)


def _loop(
    a: Tensor, b: Tensor, offsets: Tensor, bias: Tensor | None, alpha: float, activation: str | None,
    out_dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """A product for each expert; the host reads where rows end."""
    out = torch.zeros((a.shape[0], b.shape[2]), dtype=out_dtype, device=a.device)
    begin = 0
    for expert, end in enumerate(clamped_ends(offsets, a.shape[0])):
        if end > begin:
            own = bias if bias is None or bias.dim() == 1 else bias[expert]
            ends: dict[str, Any] = {"alpha": alpha, "activation": activation, "out_dtype": out_dtype}
            out[begin:end] = matmul(a[begin:end], b[expert], own, **ends)
        begin = end
    return out


class _Grouped(torch.autograd.Function):
    """Grouped products with gradients: that of A is grouped as well, that of B is a product for each expert."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, offsets: Tensor, bias: Tensor | None, options: Any) -> Tensor:
        ctx.save_for_backward(a, b, offsets, bias)
        ctx.options = options
        return _run(a, b, offsets, bias, *options)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b, offsets, bias = ctx.saved_tensors
        alpha, activation, _, kernel, _ = ctx.options
        needs_a, needs_b, _, needs_bias, _ = ctx.needs_input_grad
        if activation is not None:
            # The sums are computed anew: the activation's derivative is taken where they are.
            with torch.enable_grad():
                sums = _run(a, b, offsets, bias, alpha, None, torch.float32, kernel, None).requires_grad_()
                (gradient,) = torch.autograd.grad(ACTIVATIONS[activation](sums), sums, gradient.float())
        inside = _expert_of_rows(offsets, a.shape[0])
        narrow = torch.where((inside < b.shape[0])[:, None], gradient, 0).to(a.dtype).contiguous()
        scaled = narrow if alpha == 1.0 else narrow * alpha
        kept = kernel if kernel in (AUTO, LOOP) else AUTO
        grad_a = _run(scaled, b.transpose(1, 2), offsets, None, 1.0, None, a.dtype, kept, None) if needs_a else None
        grad_b = _gradient_of_b(a, scaled, offsets, b) if needs_b else None
        grad_bias = None
        if needs_bias:
            if bias.dim() == 1:
                grad_bias = narrow.sum(0, dtype=torch.float32).to(bias.dtype)
            else:
                sums = torch.zeros((b.shape[0] + 1, b.shape[2]), dtype=torch.float32, device=a.device)
                grad_bias = sums.index_add_(0, inside, narrow.float())[:-1].to(bias.dtype)
        return grad_a, grad_b, None, grad_bias, None


def _expert_of_rows(offsets: Tensor, rows: int) -> Tensor:
    """The expert of every row; the number of experts for rows of none."""
    ends = offsets.clamp(0, rows).cummax(0).values
    return torch.bucketize(torch.arange(rows, device=offsets.device, dtype=ends.dtype), ends, right=True)


def _gradient_of_b(a: Tensor, gradient: Tensor, offsets: Tensor, b: Tensor) -> Tensor:
    """a[rows of e]^T @ gradient[rows of e] for every expert, in the memory layout of `b`."""
    grad_b = torch.zeros_like(b)
    begin = 0
    for expert, end in enumerate(clamped_ends(offsets, a.shape[0])):
        if end > begin:
            grad_b[expert] = matmul(a[begin:end].t(), gradient[begin:end])
        begin = end
    return grad_b
