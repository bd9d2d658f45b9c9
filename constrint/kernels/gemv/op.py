"""`gemv`: alpha * a x + beta * y by the program that `constrint.choose.decide` chooses. Needs torch.

Later calls of a signature run a plan: one look-up, the memory of the result, the launch. Alpha and beta are no part of
the signature. Calls that are traced, and those that need gradients, run the operator `constrint::gemv`, which has a
fake implementation and gradients. Tensors on the CPU run the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.choose import Decision, Request, decide
from constrint.choose.decision import Program
from constrint.errors import ConstrintError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.first_call import machine_of
from constrint.kernels.gemm.implementations import config_of, config_text
from constrint.kernels.gemm.library.launch import NARROW_SUMS
from constrint.kernels.gemv.by_torch import library_gemv
from constrint.kernels.gemv.candidates import KERNELS, OWN, of_one_step, unlike
from constrint.kernels.gemv.launch import GemvCall, gemv_launch, lies_by_columns, width_of
from constrint.kernels.gemv.library import LIBRARY
from constrint.kernels.gemv.reference import DTYPES_BY_NAME, batch_of, gemv_reference
from constrint.kernels.gemv.shape import natural_width
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.launch.plan.arguments import Factor
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, PlanTable, is_transformed
from constrint.kernels.launch.plan.trial import Rivals, trials_are_on
from constrint.kernels.launch.policy import record_what_fits
from constrint.select.workload import Workload

AUTO = "auto"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOATS_8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
NAMES = {dtype: name for name, dtype in DTYPES_BY_NAME.items()} | {torch.float8_e4m3fnuz: "fp8"}
#: Configurations of the kernel that work in another way, which the first calls try beside the best by prediction.
MOST_RIVALS = 2
#: Configurations of one step are tried up to this multiple of the chosen one's predicted time.
ONE_STEP_REACH = 1.5


def gemv(
    a: Tensor,
    x: Tensor,
    *,
    y: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    transposed: bool = False,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
) -> Tensor:
    """alpha * a @ x + beta * y for a matrix and a vector, or a batch of them; a^T in place of a if `transposed`.

    Sums are of fp32 (fp64 for fp64), always in the same order, and rounded once. With alpha = 0 neither a nor x is
    read, with beta = 0 y is not, as in BLAS.

    Args:
        a: (..., M, N) of any strides: fp16, bf16, fp32, fp64, or float8_e4m3fn with vectors of 16 or 32 bits.
        x: (..., N), or (..., M) if transposed; axes of the batch broadcast.
        y: (..., M), or (..., N) if transposed, of the dtype of x; needed where beta is not 0.
        alpha, beta: Factors; a program may give others in every call.
        transposed: Whether a^T is multiplied.
        kernel: "auto"; "triton": the kernel of this package; "library": torch's operators.
        config: Values of all parameters of "triton", which then runs with them.

    Returns:
        A new tensor (..., M), or (..., N) if transposed, of the dtype of x.

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together.
        TypeError: For arguments that are no tensors, and factors that are no numbers.
        UnknownNameError: For an unknown kernel.
        UnsupportedError: When the named kernel does not compute the product; says why.
        UsageError: When `config` is not valid, or comes without the kernel that it is for.
    """
    if type(alpha) is int:
        alpha = float(alpha)
    if type(beta) is int:
        beta = float(beta)
    if beta == 0.0:
        y = None
    if alpha != 0.0 and not is_compiling():
        extra = transposed, kernel, None if config is None else config_text(config)
        # The signature of a call that was checked before; another one goes on below.
        out = _PLANS.call(False, extra, a, x, y, alpha, beta)
        if isinstance(out, Tensor):
            return out
    return _checked_call(a, x, y, alpha, beta, transposed, kernel, config)


def _checked_call(
    a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float, transposed: bool, kernel: str,
    config: Mapping[str, int] | None,
) -> Tensor:  # fmt: skip
    """A call that has no plan yet, or none at all."""
    check_call(a, x, y, alpha, beta, transposed, kernel, config)
    alpha, beta = float(alpha), float(beta)
    text = None if config is None else config_text(config)
    if is_compiling() or alpha == 0.0:
        return _operator(a, x, y, alpha, beta, transposed, kernel, text)
    if is_transformed():
        # An operator would need a rule for each transform.
        return gemv_reference(a.mT if transposed else a, x, y, alpha, beta)
    extra = transposed, kernel, text
    out = _PLANS.call(False, extra, a, x, y, alpha, beta)
    if out is IS_NEW:
        out = _PLANS.learn(extra, a, x, y, alpha, beta)
    return out if isinstance(out, Tensor) else _operator(a, x, y, alpha, beta, transposed, kernel, text)


def _operator(
    a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float, transposed: bool, kernel: str, text: str | None
) -> Tensor:
    out: Tensor = torch.ops.constrint.gemv(a, x, y, alpha, beta, transposed, kernel, text or "")
    return out


def _why(
    a: Tensor,
    x: Tensor,
    *,
    y: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    transposed: bool = False,
    kernel: str = AUTO,
    gpu: GpuModel | str | None = None,
) -> Decision:
    """The decision of `gemv` for the same arguments.

    Args:
        a, x, y, alpha, beta, transposed, kernel: Those of `gemv`.
        gpu: A GPU to decide for; None: the one that the tensors are on.

    Raises:
        UsageError: When no GPU is named and the tensors are on none.
    """
    check_call(a, x, y, alpha, beta, transposed, kernel, None)
    if gpu is None and a.device.type != "cuda":
        raise UsageError("gemv.why: tensors on the CPU run the reference; name a GPU, gpu='h200'.")
    model = gpu if isinstance(gpu, GpuModel) or gpu is None else load_gpu(gpu)
    decision = decide(_request(_stacked(a, x, y if beta else None, transposed), kernel, None, model))
    if gpu is not None:
        return decision
    note = _PLANS.note((transposed, kernel, None), a, x, y if beta else None, float(alpha), float(beta))
    return replace(decision, recorded=note)


gemv.why = _why  # type: ignore[attr-defined]


def check_call(
    a: Any, x: Any, y: Any, alpha: Any, beta: Any, transposed: bool, kernel: str, config: Mapping[str, int] | None
) -> None:
    """Raise for arguments that do not go together; see `gemv`."""
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", str(kernel), KERNELS)
    if config is not None and kernel != "triton":
        raise UsageError(f"gemv: config is for kernel='triton', got kernel={kernel!r}.")
    for name, t in (("a", a), ("x", x), ("y", y)):
        if not isinstance(t, Tensor) and not (t is None and name == "y"):
            raise TypeError(f"gemv: {name} must be a tensor, got {type(t).__name__}.")
    for name, number in (("alpha", alpha), ("beta", beta)):
        if isinstance(number, bool | complex | Tensor) or not hasattr(number, "__float__"):
            raise TypeError(f"gemv: {name} must be a real number, got {type(number).__name__}.")
    if beta != 0.0 and y is None:
        raise UsageError(f"gemv: beta = {beta} needs y.")
    if a.dim() < 2 or x.dim() < 1:
        raise RuntimeError(f"gemv: a is (..., M, N) and x (..., N), got {tuple(a.shape)} and {tuple(x.shape)}.")
    m, n = a.shape[-2:][::-1] if transposed else a.shape[-2:]
    of = "a^T" if transposed else "a"
    if x.shape[-1] != n:
        raise RuntimeError(f"gemv: {of} has {n} columns, x has {x.shape[-1]} elements.")
    if y is not None and (y.dim() < 1 or y.shape[-1] != m):
        raise RuntimeError(f"gemv: {of} has {m} rows, y has the shape {tuple(y.shape)}.")
    if x.dtype not in FLOATS or (a.dtype != x.dtype and not (a.dtype in FLOATS_8 and x.dtype != torch.float64)):
        raise RuntimeError(
            f"gemv: a and x have one dtype of fp16, bf16, fp32 and fp64, or a is of 8 bits and x of 16 or 32, got "
            f"{a.dtype} and {x.dtype}."
        )
    if y is not None and y.dtype != x.dtype:
        raise RuntimeError(f"gemv: x and y have one dtype, got {x.dtype} and {y.dtype}.")
    for name, t in (("x", x), ("y", y)):
        if t is not None and t.device != a.device:
            raise RuntimeError(f"gemv: all tensors on one device, a is on {a.device}, {name} on {t.device}.")
    try:
        batch = batch_of(a.shape[:-2], x.shape[:-1])
        whole = batch if y is None else batch_of(batch, y.shape[:-1])
    except RuntimeError as error:
        shapes = tuple(a.shape[:-2]), tuple(x.shape[:-1]), None if y is None else tuple(y.shape[:-1])
        raise RuntimeError(f"gemv: axes of the batch do not broadcast: {shapes}.") from error
    if whole != batch:
        raise RuntimeError(f"gemv: y has more products than a and x: {tuple(whole)}, {tuple(batch)}.")


class StackedCall:
    """A call's tensors with one axis for the batch, as views.

    Args:
        a: (batch, M, N).
        x: (batch, N).
        y: (batch, M), or None.
        shape: Of the result.
    """

    def __init__(self, a: Tensor, x: Tensor, y: Tensor | None, shape: tuple[int, ...]) -> None:
        self.a, self.x, self.y, self.shape = a, x, y, shape


def _stacked(a: Tensor, x: Tensor, y: Tensor | None, transposed: bool) -> StackedCall:
    """View a call as a batch.

    Raises:
        RuntimeError: When that takes copies.
    """
    a = a.mT if transposed else a
    if a.dim() == 2 and x.dim() == 1 and (y is None or y.dim() == 1):
        return StackedCall(a[None], x[None], None if y is None else y[None], (a.shape[0],))
    batch, (m, n) = batch_of(a.shape[:-2], x.shape[:-1]), a.shape[-2:]
    number = batch.numel()
    wide = a.expand(*batch, m, n).view(number, m, n)
    added = None if y is None else y.expand(*batch, m).view(number, m)
    return StackedCall(wide, x.expand(*batch, n).view(number, n), added, (*batch, m))


def workload_of_call(stacked: StackedCall) -> Workload:
    """The workload of a call."""
    a = stacked.a
    batch, m, n = a.shape
    by_columns, width = lies_by_columns(a), width_of(a)
    options = {"transposed": 1} if by_columns else {}
    options |= {"batch": batch} if batch > 1 else {}
    options |= {"beta": 1} if stacked.y is not None else {}
    if width != natural_width(m if by_columns else n, a.element_size()):
        options |= {"width": width}
    return Workload("gemv", {"m": m, "n": n}, NAMES[a.dtype], options)


def _request(stacked: StackedCall, kernel: str, config: str | None, gpu: GpuModel | None = None) -> Request:
    """The request for a call; on the device of its tensors where no GPU is named."""
    device = stacked.a.device
    here, place = (gpu, None) if gpu is not None else (machine_of(device)[0], device)
    named = "" if kernel == AUTO else kernel
    given = None if not config else config_of(config)
    return Request("gemv", workload_of_call(stacked), here, place, kernel=named, config=given)


def _build(tensors: tuple[Any, ...], extra: Any) -> RecordedCall:
    """Decide about a call and record its plan; the first calls try what may be as fast.

    Raises:
        NotPlannedError: For calls that nothing computes as views.
        ConstrintError: When the caller named a kernel that does not compute the call.
    """
    transposed, kernel, config = extra
    try:
        stacked = _stacked(tensors[0], tensors[1], tensors[2], transposed)
    except RuntimeError as error:
        raise NotPlannedError("the batch is no view") from error
    if 0 in stacked.a.shape:
        raise NotPlannedError("there is nothing to compute")
    request = _request(stacked, kernel, config)
    decision = decide(request)
    by_library = decision.program.name == LIBRARY and (kernel == "library" or _is_exact(stacked))
    if by_library or decision.gpu is None:
        made = _by_library(stacked, transposed)
    else:
        try:
            own = decide(replace(request, operation=OWN, kernel=""))
            made = record_what_fits(own, partial(_record, stacked, tensors))
        except ConstrintError:
            if kernel != AUTO:
                raise
            made = _by_library(stacked, transposed)
    return _with_rivals(made, stacked, tensors, transposed, decision) if kernel == AUTO else made


def _by_library(stacked: StackedCall, transposed: bool) -> RecordedCall:
    """The library's product as a recorded call; plain: of one matrix and one vector, and no setting is changed."""
    is_plain = len(stacked.shape) == 1 and stacked.y is None and stacked.a.dtype not in NARROW_SUMS
    stated = {"transposed": transposed, "is_plain": is_plain}
    return RecordedCall(Recipe([], [], 1, 0, LIBRARY, stated), [])


def _record(stacked: StackedCall, tensors: tuple[Any, ...], chosen: Decision, may_spill: bool) -> RecordedCall:
    """The plan of a decision's kernel; alpha and beta are arguments 3 and 4 of every call."""
    assert chosen.gpu is not None
    scratch = NotedScratch()
    out = torch.empty(stacked.shape, dtype=stacked.x.dtype, device=stacked.a.device)
    flat, factors = out.view(stacked.a.shape[:2]), (Factor(tensors[3], 3), Factor(tensors[4], 4))
    call = GemvCall(stacked.a, stacked.x, flat, stacked.y, *factors, scratch)
    launch = gemv_launch(chosen.gpu, call, chosen.config)
    note = f"{OWN} {dict(chosen.config)}"
    return recipe_of([launch], tensors, [out], scratch, note, may_spill=may_spill)


def _with_rivals(
    made: RecordedCall, stacked: StackedCall, tensors: tuple[Any, ...], transposed: bool, decision: Decision
) -> RecordedCall:
    """The call with the candidates that the first calls try beside the one that was chosen by prediction."""
    is_captured = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    has_core = made.recipe.steps or made.recipe.function is not None
    if not trials_are_on() or decision.is_measured or decision.gpu is None or is_captured or not has_core:
        return made
    chosen, rivals = decision.program, list[RecordedCall]()
    others: list[Program] = [p for p in decision.programs if p.name != chosen.name and not p.refusal]
    if chosen.name != LIBRARY:
        step = chosen.steps[0]
        turned = {**step.config, "evict_first": 1 - step.config["evict_first"]}
        others += [replace(chosen, steps=(replace(step, config=turned),))]
        others += unlike(decision.request, step.config, MOST_RIVALS)
        reach = ONE_STEP_REACH * (chosen.seconds or 0.0)
        others += [each for each in of_one_step(decision.request) if (each.seconds or 0.0) <= reach]
    seconds = [chosen.seconds or 0.0]
    for program in others:
        other = _rival(program, stacked, tensors, transposed, decision)
        if other is not None and other.recipe.note not in (made.recipe.note, *(one.recipe.note for one in rivals)):
            rivals.append(other)
            seconds.append(program.seconds or seconds[0])
    if not rivals:
        return made
    labels = [one.recipe.note for one in (made, *rivals)]
    standards = [place for place, label in enumerate(labels) if label == LIBRARY]
    recipes = [one.recipe for one in rivals]
    return made._replace(rivals=Rivals(recipes, labels, seconds, lambda measured, best: None, standards))


def _rival(
    program: Program, stacked: StackedCall, tensors: tuple[Any, ...], transposed: bool, decision: Decision
) -> RecordedCall | None:
    """The recorded call of another candidate; None where it does not run, or is less exact."""
    from triton.errors import TritonError

    if program.name == LIBRARY:
        return _by_library(stacked, transposed) if _is_exact(stacked) else None
    single = Decision(replace(decision.request, operation=OWN, kernel=""), program)
    try:
        return _record(stacked, tensors, single, False)
    except (ConstrintError, SpilledError, NotPlannedError, TritonError, RuntimeError):
        return None


def _is_exact(stacked: StackedCall) -> bool:
    """Whether the library keeps fp32: of batches it may multiply in tf32, where torch's setting says so."""
    is_batch = len(stacked.shape) > 1
    return not (is_batch and stacked.a.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest")


def _library_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    """The library's product as a function of a call's tensors and factors."""
    if stated.get("is_plain"):
        return _plain_transposed if stated["transposed"] else _plain
    return partial(_call_library, stated["transposed"])


# The most frequent kinds, without what costs the host time: a plan's signature has the rest.


def _plain(a: Tensor, x: Tensor, y: None, alpha: float, beta: float, mv: Callable[..., Tensor] = torch.mv) -> Tensor:
    return mv(a, x) if alpha == 1.0 else mv(a, x).mul_(alpha)


def _plain_transposed(a: Tensor, x: Tensor, y: None, alpha: float, beta: float) -> Tensor:
    return torch.mv(a.t(), x) if alpha == 1.0 else torch.mv(a.t(), x).mul_(alpha)


def _call_library(transposed: bool, a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float) -> Tensor:
    if a.dim() == 2 and x.dim() == 1 and (y is None or y.dim() == 1):
        return library_gemv(a.mT if transposed else a, x, y, alpha, beta)
    view = _stacked(a, x, y, transposed)
    return library_gemv(view.a, view.x, view.y, alpha, beta).reshape(view.shape)


#: Plans by the signature of (a, x, y); alpha and beta are factors, and no part of it.
#: torch's setting is read in every call, without the function of Python around it.
_PLANS: Any = PlanTable("gemv", _build, torch._C._get_float32_matmul_precision, _library_function)

torch.library.define(
    "constrint::gemv",
    "(Tensor a, Tensor x, Tensor? y, float alpha, float beta, bool transposed, str implementation='auto',"
    " str config='') -> Tensor",
)


@torch.library.impl("constrint::gemv", "CUDA")
def _on_gpu(
    a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float, transposed: bool, implementation: str = AUTO,
    config: str = "",
) -> Tensor:  # fmt: skip
    y = y if beta != 0.0 else None
    if alpha == 0.0 or not a.numel():
        return gemv_reference(a.mT if transposed else a, x, y, alpha, beta)
    out = _PLANS.run((transposed, implementation, config or None), a, x, y, float(alpha), float(beta))
    if isinstance(out, Tensor):
        return out
    try:
        stacked = _stacked(a, x, y, transposed)
    except RuntimeError:
        batch = batch_of(a.shape[:-2], x.shape[:-1])
        flat_a = a.expand(*batch, *a.shape[-2:]).reshape(-1, *a.shape[-2:])
        flat_x = x.expand(*batch, x.shape[-1]).reshape(-1, x.shape[-1])
        flat_y = None if y is None else y.expand(*batch, y.shape[-1]).reshape(-1, y.shape[-1])
        again: Any = torch.ops.constrint.gemv
        whole: Tensor = again(flat_a, flat_x, flat_y, alpha, beta, transposed, implementation, config)
        return whole.reshape(*batch, whole.shape[-1])
    return _launched(stacked, alpha, beta, implementation, config)


def _launched(stacked: StackedCall, alpha: float, beta: float, kernel: str, config: str) -> Tensor:
    """A call without a plan, where launches are observed."""
    decision = decide(_request(stacked, kernel, config or None))
    if decision.program.name == LIBRARY or decision.gpu is None:
        return library_gemv(stacked.a, stacked.x, stacked.y, alpha, beta).reshape(stacked.shape)
    out = torch.empty(stacked.shape, dtype=stacked.x.dtype, device=stacked.a.device)
    call = GemvCall(stacked.a, stacked.x, out.view(stacked.a.shape[:2]), stacked.y, float(alpha), float(beta))
    gemv_launch(decision.gpu, call, decision.config).run()
    return out


@torch.library.impl("constrint::gemv", "CPU")
def _on_cpu(a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float, transposed: bool, *rest: Any) -> Tensor:
    return gemv_reference(a.mT if transposed else a, x, y, alpha, beta)


@torch.library.register_fake("constrint::gemv")  # type: ignore[untyped-decorator]
def _fake(
    a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float, transposed: bool, implementation: str = AUTO,
    config: str = "",
) -> Tensor:  # fmt: skip
    batch = batch_of(a.shape[:-2], x.shape[:-1])
    return x.new_empty((*batch, a.shape[-1] if transposed else a.shape[-2]))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, x, y, *ctx.factors, ctx.transposed, ctx.implementation, _ = inputs
    ctx.y_shape = None if y is None else y.shape
    ctx.save_for_backward(a, x)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, x = ctx.saved_tensors
    alpha, beta = ctx.factors
    needs_a, needs_x, needs_y, *_ = ctx.needs_input_grad
    grad_a = grad_x = grad_y = None
    if needs_a:
        scaled = gradient if alpha == 1.0 else alpha * gradient
        left, right = (x, scaled) if ctx.transposed else (scaled, x)
        grad_a = (left.unsqueeze(-1) * right.unsqueeze(-2)).sum_to_size(a.shape).to(a.dtype)
    if needs_x:
        named = ctx.implementation if ctx.implementation == "library" else AUTO
        grad_x = torch.ops.constrint.gemv(a, gradient, None, alpha, 0.0, not ctx.transposed, named)
        grad_x = grad_x.sum_to_size(x.shape)
    if needs_y and ctx.y_shape is not None:
        grad_y = (beta * gradient).sum_to_size(ctx.y_shape)
    return grad_a, grad_x, grad_y, None, None, None, None, None


torch.library.register_autograd("constrint::gemv", _backward, setup_context=_save)
