"""`axpy`: alpha * x + y in one pass over memory, by the program that `constrint.choose.decide` chooses. Needs torch.

Later calls of a signature run a plan: one look-up, the memory of the result, the launch. Alpha is no part of the
signature. Calls that are traced, and those that need gradients, run the operator `constrint::axpy`. Tensors on the CPU
run the reference; so does what is irregular in more than two axes, by torch's own sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import gcd
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.axpy.launch import AxpyCall, axpy_launch, collapsed
from constrint.kernels.axpy.reference import NAMES, axpy_reference
from constrint.kernels.gemm.first_call import machine_of
from constrint.kernels.gemm.implementations import config_of, config_text
from constrint.kernels.launch.plan.arguments import Factor
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.table import IS_NEW, PlanTable, is_transformed
from constrint.kernels.launch.plan.trial import Rivals, trials_are_on
from constrint.kernels.launch.policy import record_what_fits
from constrint.select.workload import Workload

AUTO, OWN, LIBRARY = "auto", "triton", "library"
KERNELS = (AUTO, OWN, LIBRARY)
#: Bytes of the widest alignment that counts.
WIDEST = 16
#: Results of a call: a new tensor, y itself, or a tensor of the caller's.
NEW, IN_PLACE, GIVEN = "new", "in place", "out"
#: What most calls depend on beside their tensors: the result, the kernel and the configuration.
PLAIN_NEW, PLAIN_IN_PLACE = (NEW, AUTO, None), (IN_PLACE, AUTO, None)


def axpy(
    alpha: float | Tensor,
    x: Tensor,
    y: Tensor,
    *,
    out: Tensor | None = None,
    inplace: bool = False,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
) -> Tensor:
    """alpha * x + y, computed in fp32 (fp64 for fp64) and rounded once.

    Args:
        alpha: A number, which may be another one in every call, or a tensor of one element on the device of x.
        x: Any shape and strides: fp16, bf16, fp32 or fp64.
        y: The same shape, dtype and device; nothing is broadcast.
        out: Memory for the result, of the same shape, dtype and device; x or y themselves are allowed, other memory
            that overlaps them is not.
        inplace: Whether y becomes the result.
        kernel: "auto"; "triton": the kernel of this package; "library": torch's own sum.
        config: Values of all parameters of "triton", which then runs with them.

    Returns:
        A new tensor, or y, or `out`.

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together, for results that overlap an operand or
            themselves, and for results that need gradients.
        TypeError: For arguments that are no tensors, and for an alpha that is no real number.
        UnknownNameError: For an unknown kernel.
        UsageError: For `out` together with `inplace`, and for a `config` that is not valid.
    """
    number, factor = (1.0, alpha) if isinstance(alpha, Tensor) else (alpha, None)
    if type(number) is int:
        number = float(number)
    if out is None and not is_compiling():
        if kernel == AUTO and config is None:
            extra: tuple[str, str, str | None] = PLAIN_IN_PLACE if inplace else PLAIN_NEW
        else:
            extra = IN_PLACE if inplace else NEW, kernel, None if config is None else config_text(config)
        # The signature of a call that was checked before; whether memory overlaps is in none.
        if not inplace or _is_apart(x, y):
            found = _PLANS.call(False, extra, x, y, factor, None, number)
            if isinstance(found, Tensor):
                return found
            if found == ():
                return y
    return _checked_call(alpha, x, y, out, inplace, kernel, config)


def _is_apart(x: Any, y: Any) -> bool:
    """Whether two vectors are one, or are far enough from each other to share no element."""
    try:
        distance: int = x.data_ptr() - y.data_ptr()
        if distance and x.is_contiguous() and y.is_contiguous():
            return bool(distance >= y.nbytes or -distance >= x.nbytes)
        if distance == 0:
            return bool(x.stride() == y.stride())
        return bool(abs(distance) >= max(x.untyped_storage().nbytes(), y.untyped_storage().nbytes()))
    except (AttributeError, RuntimeError):
        return False


def _checked_call(
    alpha: float | Tensor, x: Tensor, y: Tensor, out: Tensor | None, inplace: bool, kernel: str,
    config: Mapping[str, int] | None,
) -> Tensor:  # fmt: skip
    """A call that has no plan yet, or none at all."""
    check_call(alpha, x, y, out, inplace, kernel, config)
    if not isinstance(alpha, Tensor):
        alpha = float(alpha)
    text = None if config is None else config_text(config)
    target = y if inplace else out
    if target is not None and _wants_gradients(alpha, x, y, target):
        raise RuntimeError("axpy: a result in place or in `out` has no gradients; call it without, or in no_grad().")
    if not is_compiling() and is_transformed():
        new = axpy_reference(alpha, x, y)
        return new if target is None else target.copy_(new)
    if is_compiling() or _wants_gradients(alpha, x, y):
        new = _operator(alpha, x, y, kernel, text)
        return new if target is None else target.copy_(new)
    if x.device.type != "cuda" or not x.numel():
        new = axpy_reference(alpha, x, y)
        return new if target is None else target.copy_(new)
    if target is not None and (_may_share(x, target) or (target is not y and _may_share(y, target))):
        # Elements of an operand would be overwritten before they are read.
        return target.copy_(axpy(alpha, x, y, kernel=kernel, config=config))
    how = IN_PLACE if inplace or out is y else NEW if out is None else GIVEN
    number, factor = (1.0, alpha) if isinstance(alpha, Tensor) else (float(alpha), None)
    extra, arguments = (how, kernel, text), (x, y, factor, out if how == GIVEN else None, number)
    found = _PLANS.call(False, extra, *arguments)
    if found is IS_NEW:
        found = _PLANS.learn(extra, *arguments)
    if isinstance(found, Tensor):
        return found
    if found == () and target is not None:
        return target
    new = _operator(alpha, x, y, kernel, text)
    return new if target is None else target.copy_(new)


def _wants_gradients(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)


def _operator(alpha: float | Tensor, x: Tensor, y: Tensor, kernel: str, text: str | None) -> Tensor:
    number, factor = (1.0, alpha) if isinstance(alpha, Tensor) else (float(alpha), None)
    out: Tensor = torch.ops.constrint.axpy(number, factor, x, y, kernel, text or "")
    return out


def _why(
    alpha: float | Tensor,
    x: Tensor,
    y: Tensor,
    *,
    kernel: str = AUTO,
    gpu: GpuModel | str | None = None,
) -> Decision:
    """The decision of `axpy` for the same arguments.

    Args:
        alpha, x, y, kernel: Those of `axpy`.
        gpu: A GPU to decide for; None: the one that the tensors are on.

    Raises:
        UsageError: When no GPU is named and the tensors are on none, or torch's own sum runs.
    """
    check_call(alpha, x, y, None, False, kernel, None)
    if gpu is None and x.device.type != "cuda":
        raise UsageError("axpy.why: tensors on the CPU run the reference; name a GPU, gpu='h200'.")
    model = gpu if isinstance(gpu, GpuModel) or gpu is None else load_gpu(gpu)
    rows = _rows_of(x, y, torch.empty_like(x))
    if rows is None or kernel == LIBRARY:
        raise UsageError("axpy.why: torch's own sum runs this call; nothing is chosen.")
    return decide(_request(rows, None, model))


axpy.why = _why  # type: ignore[attr-defined]


def check_call(
    alpha: Any, x: Any, y: Any, out: Any, inplace: bool, kernel: str, config: Mapping[str, int] | None
) -> None:
    """Raise for arguments that do not go together; see `axpy`."""
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", str(kernel), KERNELS)
    if config is not None and kernel != OWN:
        raise UsageError(f"axpy: config is for kernel={OWN!r}, got kernel={kernel!r}.")
    if inplace and out is not None:
        raise UsageError("axpy: the result goes into y (inplace=True) or into `out`, not into both.")
    for name, t in (("x", x), ("y", y), ("out", out)):
        if not isinstance(t, Tensor) and not (t is None and name == "out"):
            raise TypeError(f"axpy: {name} must be a tensor, got {type(t).__name__}.")
        if t is not None and (t.layout is not torch.strided or t.is_nested):
            kind = "a nested tensor" if t.is_nested else t.layout
            raise RuntimeError(f"axpy: {name} is dense (torch.strided), got {kind}; call it for the values.")
        if t is not None and (t.shape != x.shape or t.dtype != x.dtype or t.device != x.device):
            raise RuntimeError(
                f"axpy: x, y and out have one shape, dtype and device: x is {tuple(x.shape)} {x.dtype} on {x.device}, "
                f"{name} is {tuple(t.shape)} {t.dtype} on {t.device}."
            )
    if x.dtype not in NAMES:
        raise RuntimeError(f"axpy: x is of fp16, bf16, fp32 or fp64, got {x.dtype}.")
    if isinstance(alpha, Tensor):
        if alpha.numel() != 1 or not alpha.is_floating_point() or alpha.device != x.device:
            raise RuntimeError(
                f"axpy: alpha is a number or one floating element on {x.device}, got {tuple(alpha.shape)} "
                f"{alpha.dtype} on {alpha.device}."
            )
    elif isinstance(alpha, bool | complex) or not hasattr(alpha, "__float__"):
        raise TypeError(f"axpy: alpha must be a real number or a tensor, got {type(alpha).__name__}.")
    target = y if inplace else out
    if target is not None:
        _check_target(target, x, y)


def _check_target(target: Tensor, x: Tensor, y: Tensor) -> None:
    """Raise for memory that cannot take a result."""
    if any(step == 0 and size > 1 for step, size in zip(target.stride(), target.shape, strict=True)):
        raise RuntimeError("axpy: the result has several elements in one place of memory; clone it first.")
    for name, t in (("x", x), ("y", y)):
        both_dense = _is_dense(t) and _is_dense(target)
        if t is not target and both_dense and _may_share(t, target):
            raise RuntimeError(f"axpy: the result overlaps {name} in memory without being it; clone one of them.")


def _is_dense(t: Tensor) -> bool:
    """Whether a tensor's elements fill its memory."""
    start_to_end = sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True)) + 1
    return bool(start_to_end == t.numel())


def _may_share(t: Tensor, target: Tensor) -> bool:
    """Whether memory of two tensors overlaps and they are not the same elements in the same order."""
    if t.data_ptr() == target.data_ptr() and t.stride() == target.stride():
        return False
    (start, end), (first, last) = (_extent(one) for one in (t, target))
    return start < last and first < end


def _extent(t: Tensor) -> tuple[int, int]:
    if not t.numel():
        return t.data_ptr(), t.data_ptr()
    reach = sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (reach + 1) * t.element_size()


def _rows_of(x: Tensor, y: Tensor, out: Tensor) -> AxpyCall | None:
    """The call as rows; None where the tensors are irregular in more than two axes."""
    sizes, strides = collapsed(x.shape, x.stride(), y.stride(), out.stride())
    if len(sizes) > 2:
        return None
    if len(sizes) == 1:
        sizes, strides = [1, *sizes], [[0, *steps] for steps in strides]
    views = [t.as_strided(sizes, steps) for t, steps in zip((x, y, out), strides, strict=True)]
    return AxpyCall(views[0], views[1], views[2])


def workload_of_call(call: AxpyCall) -> Workload:
    """The workload of a call."""
    (rows, n), size = call.x.shape, call.x.element_size()
    tensors = (call.x, call.y, call.out)
    width = gcd(WIDEST, *(t.data_ptr() for t in tensors), *(t.stride(0) * size for t in tensors if rows > 1))
    if any(t.stride(1) != 1 for t in tensors) and n > 1:
        width = size
    options = ({"rows": rows} if rows > 1 else {}) | ({"width": width} if width != WIDEST else {})
    return Workload("axpy", {"n": n}, NAMES[call.x.dtype], options)


def _request(call: AxpyCall, config: str | None, gpu: GpuModel | None = None) -> Request:
    device = call.x.device
    here, place = (gpu, None) if gpu is not None else (machine_of(device)[0], device)
    return Request("axpy", workload_of_call(call), here, place, config=None if not config else config_of(config))


def _target(how: str, x: Tensor, y: Tensor, given: Tensor | None) -> Tensor:
    if how == NEW:
        return torch.empty_like(x)
    return y if given is None else given


def _build(tensors: tuple[Any, ...], extra: Any) -> RecordedCall:
    """Decide about a call and record its plan.

    Raises:
        ConstrintError: When the caller named the kernel, and it does not compute the call.
    """
    x, y, factor, given, number = tensors
    how, kernel, config = extra
    out = _target(how, x, y, given)
    call = _rows_of(x, y, out)
    by_torch = RecordedCall(Recipe([], [], 1, 0, "torch.add", {"how": how}), [])
    if kernel == LIBRARY or (call is None and kernel == AUTO):
        return by_torch
    if call is None:
        raise UsageError("axpy: the kernel takes tensors that are regular in two axes; kernel='library' takes any.")
    request = _request(call, config)
    if request.gpu is None and kernel == AUTO:
        return by_torch
    # The number of a call is its argument 4.
    stated = replace(call, factor=factor, alpha=Factor(number, 4))

    def record(chosen: Decision, may_spill: bool) -> RecordedCall:
        launch, note = axpy_launch(stated, chosen.config), f"axpy {dict(chosen.config)}"
        results = [out] if how == NEW else []
        return recipe_of([launch], tensors, results, NotedScratch(), note, may_spill=may_spill)

    try:
        decision = decide(request)
        made = record_what_fits(decision, record, ("factor",) if factor is not None else ())
    except ConstrintError:
        if kernel != AUTO:
            raise
        return by_torch
    return _with_rivals(made, by_torch, decision, record) if how == NEW and kernel == AUTO else made


def _with_rivals(
    made: RecordedCall, by_torch: RecordedCall, decision: Decision, record: Callable[[Decision, bool], RecordedCall]
) -> RecordedCall:
    """The call with what the first calls try beside it: torch's own sum, and the other treatment by the L2.

    A result in place is not tried: every run of a candidate would add once more.
    """
    is_captured = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if not trials_are_on() or decision.is_measured or is_captured or not made.recipe.steps:
        return made
    step = decision.step
    other = replace(step, config={**step.config, "evict_first": 1 - step.config["evict_first"]})
    turned = record(replace(decision, program=replace(decision.program, steps=(other,))), True)
    labels, seconds = [one.recipe.note for one in (made, by_torch, turned)], [decision.seconds] * 3
    recipes = [by_torch.recipe, turned.recipe]
    return made._replace(rivals=Rivals(recipes, labels, seconds, lambda measured, best: None, [1]))


def _function_of(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    """Torch's own sum as a function of a call's tensors and factors."""
    return _new_sum if stated["how"] == NEW else partial(_sum_by_torch, stated["how"])


def _new_sum(x: Tensor, y: Tensor, factor: Tensor | None, given: Tensor | None, number: float) -> Tensor:
    """`_sum_by_torch` into a new tensor, without what costs the host time."""
    return torch.add(y, x, alpha=number) if factor is None else torch.addcmul(y, factor.to(x.dtype), x)


def _sum_by_torch(how: str, x: Tensor, y: Tensor, factor: Tensor | None, given: Tensor | None, number: float) -> Tensor:
    target = None if how == NEW else _target(how, x, y, given)
    if factor is not None:
        return torch.addcmul(y, factor.to(x.dtype), x, out=target)
    return torch.add(y, x, alpha=number, out=target)


#: Plans by the signature of (x, y, alpha as a tensor, out); alpha as a number is a factor, and no part of it.
_PLANS: Any = PlanTable("axpy", _build, None, _function_of)

torch.library.define(
    "constrint::axpy",
    "(float alpha, Tensor? factor, Tensor x, Tensor y, str implementation='auto', str config='') -> Tensor",
)


@torch.library.impl("constrint::axpy", "CUDA")
def _on_gpu(
    alpha: float, factor: Tensor | None, x: Tensor, y: Tensor, implementation: str = AUTO, config: str = ""
) -> Tensor:
    if not x.numel():
        return torch.empty_like(x)
    arguments = x, y, factor, None, float(alpha)
    found = _PLANS.run((NEW, implementation, config or None), *arguments)
    if isinstance(found, Tensor):
        return found
    out = torch.empty_like(x)
    call = _rows_of(x, y, out)
    if call is None or implementation == LIBRARY or machine_of(x.device)[0] is None:
        return _sum_by_torch(NEW, *arguments)
    decision = decide(_request(call, config or None))
    axpy_launch(replace(call, alpha=float(alpha), factor=factor), decision.config).run()
    return out


@torch.library.impl("constrint::axpy", "CPU")
def _on_cpu(alpha: float, factor: Tensor | None, x: Tensor, y: Tensor, *rest: Any) -> Tensor:
    new = axpy_reference(alpha if factor is None else factor, x, y)
    return torch.empty_like(x).copy_(new)


@torch.library.register_fake("constrint::axpy")  # type: ignore[untyped-decorator]
def _fake(
    alpha: float, factor: Tensor | None, x: Tensor, y: Tensor, implementation: str = AUTO, config: str = ""
) -> Tensor:
    return torch.empty_like(x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.alpha, factor, x, _, *_ = inputs
    ctx.save_for_backward(factor, None if factor is None else x)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    factor, x = ctx.saved_tensors
    _, needs_factor, needs_x, needs_y, *_ = ctx.needs_input_grad
    scale = ctx.alpha if factor is None else factor.to(gradient.dtype)
    grad_factor = None
    if needs_factor:
        wide = torch.float64 if gradient.dtype == torch.float64 else torch.float32
        grad_factor = (gradient.to(wide) * x.to(wide)).sum().to(factor.dtype).reshape(factor.shape)
    return None, grad_factor, scale * gradient if needs_x else None, gradient if needs_y else None, None, None


torch.library.register_autograd("constrint::axpy", _backward, setup_context=_save)
