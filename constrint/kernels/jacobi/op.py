"""`jacobi`: sweeps of a star stencil over grids, and their gradients. Needs torch.

A call of a known signature runs its launch plan. Calls that are traced or transformed, and those that need gradients,
run the operator `constrint::jacobi`, which has a fake implementation, gradients and a rule for `vmap`. CPU tensors run
the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.first_call import has_nvrtc, machine_of
from constrint.kernels.gemm.implementations import config_of, config_text
from constrint.kernels.jacobi import launch as cuda
from constrint.kernels.jacobi.candidates import CUDA, KERNELS, NAMES, POINTER, TORCH
from constrint.kernels.jacobi.gradients import gradients_of
from constrint.kernels.jacobi.launch import DTYPE_NAMES, SweepCall
from constrint.kernels.jacobi.pointer import launch as pointer
from constrint.kernels.jacobi.reference import has_inside, sweeps_reference
from constrint.kernels.jacobi.star import NAMED, StarStencil, star_of
from constrint.kernels.launch.look import look
from constrint.kernels.launch.plan.recipe import RecordedCall, extent, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch, Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, PlanTable, is_transformed
from constrint.kernels.launch.policy import launch_what_fits, record_what_fits
from constrint.select.spec import Launch
from constrint.select.workload import Workload

AUTO = "auto"
#: Steps of one plan, at most; longer calls run several.
MOST_STEPS = 480
_OF_AXES = {2: NAMED["5-point"], 3: NAMED["7-point"]}


def jacobi(
    u: Tensor,
    f: Tensor | None = None,
    steps: int = 1,
    *,
    stencil: Mapping[Any, float] | str | StarStencil | None = None,
    out: Tensor | None = None,
    kernel: str = AUTO,
    config: Mapping[str, int] | None = None,
) -> Tensor:
    """u after `steps` sweeps: u'(p) = sum over offsets o of factor(o) * u(p + o), plus factor("f") * f(p).

    All points of a sweep are computed from those of the sweep before. Points within the border keep the values that
    they have in u: along each axis the border is as wide as the largest offset along it, on both sides. A grid that is
    all border is returned as it is.

    Without a stencil a sweep is one of Jacobi's method for -laplace(u) = f with a spacing of 1: the mean of four
    neighbours plus f / 4 on grids of two axes, the mean of six plus f / 6 on those of three.

    Args:
        u: (..., NY, NX) or (..., NZ, NY, NX): fp32, fp64, fp16 or bf16. Leading axes are a batch; they need a stencil.
        f: The right side, of the same shape and type; None: zero.
        steps: Sweeps, from 0 on. fp16 and bf16 are computed in fp32, rounded to their type after the last step, and at
            most after every step.
        stencil: Factors by offset, one number for each axis, the slowest first, of which at most one is not zero, from
            -4 to 4: {(0, 1): 0.25, (0, -1): 0.25, ..., "f": 0.25}; without "f" the factor of f is 1. Or "5-point",
            "7-point".
        out: Memory of the result, of the shape and type of u; it may be u.
        kernel: "auto"; "cuda": several steps in a launch, in CUDA C++; "pointer": a launch for each, in Triton;
            "torch": plain PyTorch.
        config: Values of all parameters of "cuda" or "pointer", which then runs with them.

    Returns:
        A new contiguous tensor, or `out`.

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together.
        TypeError: For arguments that are no tensors, or a number of steps that is no whole number.
        UnknownNameError: For an unknown kernel or name of a stencil.
        UnsupportedError: When the named kernel does not compute the sweeps; says why.
        UsageError: For anything else that is not valid: a stencil, a configuration, a negative number of steps.
    """
    star = _OF_AXES.get(u.dim()) if stencil is None and isinstance(u, Tensor) else None
    star = star or _star_of(stencil, u)
    if type(steps) is int and 0 < steps <= MOST_STEPS and kernel in (AUTO, *KERNELS) and not is_compiling():
        # Signatures that were checked before; a new one, or one that wants gradients, goes on below.
        extra = star.text, steps, kernel, None if config is None else config_text(config), out is not None
        if out is None:
            planned: Any = _PLANS.call(False, extra, u, f)
            if isinstance(planned, Tensor):
                return planned
    _check(u, f, steps, star, out, kernel, config)
    if out is not None:
        return _into(out, u, f, steps, star, kernel, config)
    run: Any = torch.ops.constrint.jacobi
    if not is_compiling() and is_transformed():
        run = _Transformed.apply
    result: Tensor = run(u, f, *star.plain, steps, kernel, config_text(config))
    return result


def _why(
    u: Tensor,
    f: Tensor | None = None,
    steps: int = 1,
    *,
    stencil: Mapping[Any, float] | str | StarStencil | None = None,
    kernel: str = AUTO,
    gpu: GpuModel | str | None = None,
) -> Decision:
    """The decision of `jacobi` for the same arguments.

    Args:
        u, f, steps, stencil, kernel: Those of `jacobi`.
        gpu: A GPU to decide for; None: the one that the tensors are on.

    Raises:
        UsageError: When no GPU is named and the tensors are on none, or there is nothing to decide.
    """
    star = _star_of(stencil, u)
    _check(u, f, steps, star, None, kernel, None)
    if gpu is None and u.device.type != "cuda":
        raise UsageError("jacobi.why: tensors on the CPU run plain PyTorch; name a GPU, gpu='h200'.")
    if steps == 0 or not has_inside(u, star.widths):
        raise UsageError("jacobi.why: no point changes, so that nothing is chosen.")
    model = gpu if isinstance(gpu, GpuModel) or gpu is None else load_gpu(gpu)
    return decide(request_of(u, steps, star.flat, kernel, "", model))


jacobi.why = _why  # type: ignore[attr-defined]


def _star_of(stencil: Any, u: Any) -> StarStencil:
    if not isinstance(u, Tensor):
        raise TypeError(f"jacobi: u must be a tensor, got {type(u).__name__}.")
    if isinstance(stencil, Mapping) and not is_compiling():
        with suppress(TypeError):  # a factor that has no hash, such as a tensor
            return _mapped(tuple(stencil.items()))
    return star_of(stencil, u.dim())


@lru_cache(maxsize=1024)
def _mapped(items: tuple[tuple[Any, Any], ...]) -> StarStencil:
    """The star of a mapping, by its items."""
    return star_of(dict(items), 0)


def _check(
    u: Tensor, f: Tensor | None, steps: int, star: StarStencil, out: Tensor | None, kernel: str, config: Any
) -> None:  # fmt: skip
    """Raise for arguments that do not go together; see `jacobi`."""
    if kernel not in (AUTO, *NAMES):
        raise UnknownNameError("kernel", str(kernel), (AUTO, *NAMES))
    if config is not None and kernel not in KERNELS:
        raise UsageError(f"jacobi: config needs a kernel of {', '.join(KERNELS)}, got kernel={kernel!r}.")
    if isinstance(steps, bool) or not isinstance(steps, int | torch.SymInt):
        raise TypeError(f"jacobi: steps is a whole number, got {steps!r}.")
    if steps < 0:
        raise UsageError(f"jacobi: steps is a number from 0 on, got {steps}.")
    for name, t in (("f", f), ("out", out)):
        if t is None:
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"jacobi: {name} must be a tensor, got {type(t).__name__}.")
        if t.shape != u.shape or t.dtype != u.dtype or t.device != u.device:
            raise RuntimeError(
                f"jacobi: {name} has the shape, type and device of u, {tuple(u.shape)} {u.dtype} {u.device}, got "
                f"{tuple(t.shape)} {t.dtype} {t.device}."
            )
    if u.dtype not in DTYPE_NAMES:
        raise RuntimeError(f"jacobi: u is of fp32, fp64, fp16 or bf16, got {u.dtype}.")
    if u.dim() < star.axes:
        raise RuntimeError(f"jacobi: the stencil has {star.axes} axes, u has {u.dim()}.")


def _into(
    out: Tensor, u: Tensor, f: Tensor | None, steps: int, star: StarStencil, kernel: str, config: Any
) -> Tensor:  # fmt: skip
    """The result in memory of the caller's."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (u, f, out)):
        raise RuntimeError("jacobi: out takes no part in gradients; call it without out, or under torch.no_grad().")
    text = config_text(config)
    kept = (u, f) if f is not None else (u,)
    is_apart = out.is_contiguous() and all(t.is_contiguous() and not _overlap(out, t) for t in kept)
    if is_apart and steps <= MOST_STEPS and not is_compiling() and _is_computed(u, steps, star.flat, kernel):
        extra = star.text, steps, kernel, text or None, True
        planned: Any = _PLANS.call(False, extra, u, f, out)
        if planned is IS_NEW:
            planned = _PLANS.learn(extra, u, f, out)
        if isinstance(planned, tuple):
            torch.autograd.graph.increment_version(out)
            return out
    return out.copy_(torch.ops.constrint.jacobi(u, f, *star.plain, steps, kernel, text))


def _overlap(one: Tensor, other: Tensor) -> bool:
    (begin, end), (start, stop) = extent(one), extent(other)
    return begin < stop and start < end


def _is_computed(u: Tensor, steps: int, star: StarStencil, kernel: str) -> bool:
    """Whether a kernel may run: some point changes, on a GPU."""
    return u.is_cuda and steps > 0 and kernel != TORCH and has_inside(u, star.widths)


def request_of(
    u: Tensor, steps: int, star: StarStencil, kernel: str, config: str, gpu: GpuModel | None = None
) -> Request:  # fmt: skip
    """The request for a call; on the device of its tensors where no GPU is named."""
    here, device = (gpu, None) if gpu is not None else (machine_of(u.device)[0], u.device)
    ny, nx = u.shape[-2:]
    nz = u.shape[-3] if star.axes == 3 else 1
    sizes = {"ny": ny, "nx": nx, "nz": nz, "steps": steps}
    options = {"radius": max(star.widths), "batch": u.numel() // (nz * ny * nx)}
    options = {name: value for name, value in options.items() if value > 1}
    workload = Workload("jacobi", sizes, DTYPE_NAMES[u.dtype], options)
    named = "" if kernel == AUTO else kernel
    return Request("jacobi", workload, here, device, kernel=named, config=config_of(config))


def _launches(
    kernel: str, gpu: GpuModel, call: SweepCall, config: Mapping[str, int]
) -> list[Launch]:  # fmt: skip
    """The launches of a kernel."""
    if kernel == CUDA:
        return list(cuda.sweep_launches(gpu, call, config))
    return list(pointer.sweep_launches(call, config))


def _request(u: Tensor, steps: int, star: StarStencil, kernel: str, config: str) -> Request:
    """The request for one kernel, which is refused to this kernel alone.

    Raises:
        NotPlannedError: When plain PyTorch computes the call.
        UnsupportedError: When the named kernel does not run here.
    """
    request = request_of(u, steps, star, kernel, config)
    if request.gpu is None:
        if kernel in KERNELS:
            raise UnsupportedError(f"jacobi.{kernel} needs a model of the device.")
        raise NotPlannedError("there is no model of the device")
    name = decide(request).program.name.removeprefix("jacobi.")
    if name == CUDA and not has_nvrtc():
        if kernel == CUDA:
            raise UnsupportedError(
                "jacobi.cuda is compiled by NVRTC, which is not installed: pip install 'constrint[cuda]'"
            )
        name = POINTER
    if name == TORCH:
        raise NotPlannedError("plain PyTorch is chosen")
    return Request(f"jacobi.{name}", request.workload, request.gpu, request.device, config=request.config)


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call.

    Raises:
        NotPlannedError: For calls that no kernel computes.
        ConstrintError: When the caller named the kernel, and it does not compute the call.
    """
    u, f, *rest = tensors
    text, steps, kernel, config, has_out = extra
    star = StarStencil.of_text(text)
    flat = star.flat
    if u is None or u.dtype not in DTYPE_NAMES or not all(t is None or t.is_contiguous() for t in tensors):
        raise NotPlannedError("a tensor that is not contiguous")
    if not _fits(u, f, star) or not _is_computed(u, steps, flat, kernel):
        raise NotPlannedError("no point changes, or tensors do not go together")
    out = rest[0] if has_out else torch.empty_like(u)
    assert out is not None
    grid_out = out

    def record(chosen: Decision, may_spill: bool) -> RecordedCall:
        scratch = NotedScratch()
        assert chosen.gpu is not None
        name = chosen.program.name.removeprefix("jacobi.")
        call = SweepCall(u, f, grid_out, flat, steps, scratch)
        launches = _launches(name, chosen.gpu, call, chosen.config)
        label = f"jacobi.{name} {dict(chosen.config)}"
        return recipe_of(launches, tensors, [] if has_out else [grid_out], scratch, label, may_spill=may_spill)

    try:
        return record_what_fits(decide(_request(u, steps, flat, kernel, config or "")), record, (star.shape_text,))
    except ConstrintError as error:
        if kernel in KERNELS:
            raise
        raise NotPlannedError(str(error)) from error


def _fits(u: Tensor, f: Tensor | None, star: StarStencil) -> bool:
    return u.dim() >= star.axes and (f is None or (f.shape == u.shape and f.dtype == u.dtype))


_PLANS = PlanTable("jacobi", _build, None)


torch.library.define(
    "constrint::jacobi",
    "(Tensor u, Tensor? f, int axes, int[] offsets, float[] factors, float right_side, int steps,"
    " str implementation='auto', str config='') -> Tensor",
)


@torch.library.impl("constrint::jacobi", "CUDA")
def _on_gpu(
    u: Tensor, f: Tensor | None, axes: int, offsets: list[int], factors: list[float], right_side: float, steps: int,
    implementation: str = AUTO, config: str = "",
) -> Tensor:  # fmt: skip
    star = StarStencil.of_plain(axes, offsets, factors, right_side)
    if not _is_computed(u, steps, star.flat, implementation):
        return sweeps_reference(u, f, star, steps)
    given, f = u.contiguous(), None if f is None else f.contiguous()
    while steps:
        now = min(steps, MOST_STEPS)
        steps -= now
        extra = star.text, now, implementation, config or None, False
        planned = _PLANS.run(extra, given, f)
        given = planned if isinstance(planned, Tensor) else _launched(given, f, star, now, implementation, config)
    return given


def _launched(u: Tensor, f: Tensor | None, star: StarStencil, steps: int, kernel: str, config: str) -> Tensor:
    """A call without a plan: launches are observed, or plain PyTorch is chosen."""
    try:
        decision = decide(_request(u, steps, star.flat, kernel, config))
    except (NotPlannedError, ConstrintError):
        if kernel in KERNELS:
            raise
        return sweeps_reference(u, f, star, steps)
    out = torch.empty_like(u)

    def start(chosen: Decision, /, *, may_spill: bool) -> None:
        assert chosen.gpu is not None
        call = SweepCall(u, f, out, star.flat, steps, Scratch())
        launches = _launches(chosen.program.name.removeprefix("jacobi."), chosen.gpu, call, chosen.config)
        look(launches, may_spill=may_spill)
        for each in launches:
            each.run()

    if config:
        start(decision, may_spill=True)
    else:
        launch_what_fits(decision, start, optional=(star.shape_text,))
    return out


@torch.library.impl("constrint::jacobi", "CPU")
def _on_cpu(
    u: Tensor, f: Tensor | None, axes: int, offsets: list[int], factors: list[float], right_side: float, steps: int,
    implementation: str = AUTO, config: str = "",
) -> Tensor:  # fmt: skip
    return sweeps_reference(u, f, StarStencil.of_plain(axes, offsets, factors, right_side), steps)


@torch.library.register_fake("constrint::jacobi")  # type: ignore[untyped-decorator]
def _fake(u: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(u, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    # Sweeps are linear: gradients need no value of u or f.
    _, _, *plain, ctx.steps, ctx.kernel, _ = inputs
    ctx.star = StarStencil.of_plain(*plain)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    needs_u, needs_f, *_ = ctx.needs_input_grad
    kernel = ctx.kernel if ctx.kernel in (AUTO, TORCH) else AUTO

    def sweep(u: Tensor, f: Tensor | None, star: StarStencil, steps: int) -> Tensor:
        run: Any = torch.ops.constrint.jacobi
        if not is_compiling() and is_transformed():
            run = _Transformed.apply
        swept: Tensor = run(u, f, *star.plain, steps, kernel, "")
        return swept

    return *gradients_of(gradient, ctx.star, ctx.steps, sweep, needs_u=needs_u, needs_f=needs_f), *([None] * 7)


torch.library.register_autograd("constrint::jacobi", _backward, setup_context=_save)


def _in_front(info: Any, in_dims: Any, u: Tensor, f: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """u and f with the axis of a batch as the first one."""

    def moved(t: Tensor, axis: int | None) -> Tensor:
        return t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)

    return moved(u, in_dims[0]), None if f is None else moved(f, in_dims[1])


def _batched(info: Any, in_dims: Any, u: Tensor, f: Tensor | None, *arguments: Any) -> tuple[Tensor, int]:
    """The batch becomes the first of the leading axes."""
    return torch.ops.constrint.jacobi(*_in_front(info, in_dims, u, f), *arguments), 0


torch.library.register_vmap("constrint::jacobi", _batched)


class _Transformed(torch.autograd.Function):
    """The operator for transforms of torch.func, which take no gradients of operators."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        out: Tensor = torch.ops.constrint.jacobi(*arguments)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _save(ctx, inputs, output)
        ctx.arguments = inputs[2:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _backward(ctx, gradient)

    @staticmethod
    def jvp(ctx: Any, of_u: Tensor | None, of_f: Tensor | None, *others: Any) -> Any:
        if of_u is None and of_f is None:
            return None
        given: Any = torch.zeros_like(of_f) if of_u is None else of_u  # type: ignore[arg-type]
        return torch.ops.constrint.jacobi(given, of_f, *ctx.arguments)

    @staticmethod
    def vmap(info: Any, in_dims: Any, u: Tensor, f: Tensor | None, *arguments: Any) -> Any:
        apply: Any = _Transformed.apply
        return apply(*_in_front(info, in_dims, u, f), *arguments), 0
