"""The first call of a product, top to bottom: inspect, decide, compile and look, record a plan or run.

    matmul (`op.py`)            the call of a signature that has no plan yet
      -> plan_of_call           inspect -> decide -> compile and look -> record; the table of plans runs it from then
                                on; where predictions do not tell candidates apart, a trial first (`trial.py`)
    constrint::gemm (operator)  a call that is traced, observed or transformed
      -> run                    inspect -> decide -> compile and look -> launch

Needs torch; triton is loaded where a kernel of it is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.choose import Decision, Program, Request, decide
from constrint.errors import CompileError, DoesNotFitError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import trial
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.checks import stack
from constrint.kernels.gemm.implementations import AUTO, KERNELS, LIBRARY_EXCLUDED, STEADY, check_kernel, config_of
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine, runtime_precision
from constrint.kernels.gemm.library.candidates import COMPOSED
from constrint.kernels.gemm.library.fused import split
from constrint.kernels.gemm.library.launch import LibraryLaunch, refusal_of_call, refusal_of_end
from constrint.kernels.gemm.library.planned import composed_plan, library_plan
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.kernels.gemm.operands import product_of, with_aligned_stride
from constrint.kernels.gemm.pointwise.launch import pointwise_launch
from constrint.kernels.gemm.reference import DTYPE_NAMES, gemm_reference
from constrint.kernels.gemm.spec import gemm_spec
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.kernels.launch.device import describe, gpu_of, warn_of_version, warn_once
from constrint.kernels.launch.look import SpilledError, look
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.policy import Start, launch_what_fits
from constrint.select.spec import Launch

#: Rows for which a kernel that serves any number of them is chosen.
USUAL_ROWS = 512


class End(NamedTuple):
    """Arguments of a call besides its tensors.

    Args:
        alpha, beta, activation, out_dtype, kernel: Those of `matmul`.
        config: The configuration as text, `tile_m=64,tile_n=32`; empty: the best one.
    """

    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    out_dtype: torch.dtype | None = None
    kernel: str = AUTO
    config: str = ""


class Inspected(NamedTuple):
    """A call after its inspection.

    Args:
        request: The request for its product.
        call: The operands, the memory of the result, and the epilogue.
    """

    request: Request
    call: GemmCall


def plan_of_call(tensors: tuple[Tensor | None, ...], end: Any) -> RecordedCall:
    """The plan of a call of `matmul` on (a, b, bias, c).

    Raises:
        NotPlannedError: For products that no kernel computes, or whose operands have to be copied first.
        RuntimeError, TypeError, UsageError: For arguments that do not go together; see `matmul`.
    """
    a, b, bias, c = tensors
    if a is None or b is None:
        raise UsageError("matmul: a and b must be tensors, got None.")
    end = End(*(end or ()))
    operands = stack(a, b, bias, c, *end[:4])
    if bias is not None and not bias.is_contiguous():
        raise NotPlannedError("the bias has to be copied first: kernels read one whose elements follow each other")
    out = torch.empty(operands.result_shape, dtype=operands.kind, device=a.device)
    flat = out.view(operands.a.shape[0], operands.a.shape[1], operands.b.shape[2])
    inspected = inspect(operands.a, operands.b, bias, operands.c, end, flat)
    decision = None if inspected is None else decide_or_none(inspected.request)
    if inspected is None or decision is None:
        raise NotPlannedError("no kernel computes this product")
    recorded: list[tuple[RecordedCall, Decision]] = []

    def plan_of_program(program: Program, *, may_spill: bool = False) -> RecordedCall:
        return _recorded(program, inspected.call, tensors, out, may_spill=may_spill)

    def record(chosen: Decision, /, *, may_spill: bool) -> None:
        recorded[:] = [(plan_of_program(chosen.program, may_spill=may_spill), chosen)]

    tried = trial.fastest(inspected.request)
    if tried is not None:
        with suppress(*refusals()):
            return plan_of_program(tried)
    _launch_or_next(decision, record, end.activation)
    made, chosen = recorded[0]
    if not trial.is_due(chosen):
        return made
    return trial.with_rivals(made, chosen, trial.rivals_of(chosen), plan_of_program, label_of, refusals())


def refusals() -> tuple[type[Exception], ...]:
    """Exceptions by which a compiler or a device refuses a program; Triton's passes and memory fail as RuntimeError."""
    from triton.errors import TritonError

    return NotPlannedError, SpilledError, CompileError, DoesNotFitError, TritonError, RuntimeError


def run(
    a: Tensor,  # (batch, M, K)
    b: Tensor,  # (batch, K, N)
    bias: Tensor | None,  # (N,)
    c: Tensor | None,  # (batch, M, N)
    end: End,
) -> Tensor:
    """Compute (batch, M, N) without a plan; a product that no kernel computes runs as plain PyTorch on its device."""
    out = torch.empty((a.shape[0], a.shape[1], b.shape[2]), dtype=end.out_dtype, device=a.device)
    bias = None if bias is None else bias.contiguous()
    inspected = inspect(a, b, bias, c, end, out)
    decision = None if inspected is None else decide_or_none(inspected.request)
    if inspected is None or decision is None:
        return gemm_reference(a, b, bias, c, *end[:4])
    request, call = inspected

    def start(chosen: Decision, /, *, may_spill: bool) -> None:
        key = chosen.program.name, tuple(chosen.config.items()), request.detail, end.activation
        if key not in _CLEAN and not may_spill and a.is_cuda:
            look(launches_of(chosen.program, call))
            _CLEAN.add(key)
        launch(chosen.program, call)

    _launch_or_next(decision, start, end.activation)
    return out


#: Programs that were compiled and do not spill, by everything that they are compiled for.
_CLEAN: set[tuple[object, ...]] = set()


# Inspect.


def inspect(
    a: Tensor,  # (batch, M, K)
    b: Tensor,  # (batch, K, N)
    bias: Tensor | None,  # (N,)
    c: Tensor | None,  # (batch, M, N)
    end: End,
    out: Tensor,  # (batch, M, N)
    gpu: GpuModel | None = None,
) -> Inspected | None:
    """The request for a call's product and the call itself; None where no kernel computes it.

    Args:
        a, b, bias, c, end, out: The call.
        gpu: A named GPU to decide for, where the tensors are on no device of its kind; nothing is launched then.
    """
    (batch, m, k), n = a.shape, b.shape[2]
    if not batch * m * n or not k or a.dtype not in DTYPE_NAMES or out.dtype == torch.float64:
        return None
    check_kernel(kernel := end.kernel.removeprefix("gemm."))
    a, b = with_aligned_stride(a), with_aligned_stride(b)
    here, machine = machine_of(a.device) if gpu is None else (gpu, Machine.of(gpu))
    source = c if end.beta != 0.0 else None
    precision = runtime_precision(a.dtype)
    product = product_of(
        a,
        b,
        bias,
        source,
        out.dtype,
        is_three_pass=precision == "tf32x3",
        has_nvrtc=has_nvrtc(),
        no_library=LIBRARY_EXCLUDED.get(kernel) or refusal_of_call(a, b, out.dtype),
        no_library_end=refusal_of_end(a.dtype, bias, source, end.alpha, out.dtype, batch),
        activation=end.activation or "",
    )
    if kernel == STEADY:
        product = replace(product, m=USUAL_ROWS, any_rows=True)
    named = "" if kernel in (AUTO, KERNELS, STEADY) else kernel
    device = a.device if gpu is None else None
    request = request_of(here, product, device=device, kernel=named, config=config_of(end.config))
    call = GemmCall(a, b, out, machine, Epilogue(bias, source, end.alpha, end.beta, end.activation), precision)
    return Inspected(request, call)


@lru_cache(maxsize=1)
def has_nvrtc() -> bool:
    """Whether kernels in CUDA C++ can be compiled here."""
    return bool(nvrtc_here())


@lru_cache(maxsize=64)
def machine_of(device: torch.device) -> tuple[GpuModel | None, Machine]:
    """The model of a device, if there is one, and the figures that a launch needs."""
    import triton

    warn_of_version(triton.__version__)
    gpu = gpu_of(device)
    if gpu is not None:
        return gpu, Machine.of(gpu)
    seen = describe(device)
    return None, Machine(seen.sm_count or 1, 1, seen.target == "sm_90")


# Decide.


def decide_or_none(request: Request) -> Decision | None:
    """The decision; None where the GPU has no matrix instruction for the dtype.

    Raises:
        UnsupportedError: When the request names a kernel that does not compute the product.
        UsageError: When the request names a configuration that is not valid.
    """
    try:
        return decide(request)
    except UnsupportedError as error:
        if request.kernel:
            raise
        warn_once(f"{error} matmul runs as plain PyTorch there.")
        return None


# Launch, or record.


def _launch_or_next(decision: Decision, start: Start, activation: str | None) -> None:
    """Launch a decision; where it spills or the device refuses it, the next ones, at last one that fits any device."""
    if decision.request.kernel and not gemm_spec(decision.kernel).has_tiles:
        start(decision, may_spill=True)  # the caller named the library: its own error says why it does not run
    else:
        launch_what_fits(decision, start, optional=(activation,) if activation else ())


def launches_of(program: Program, call: GemmCall) -> Sequence[Launch]:
    """The launches of a program for a call.

    Raises:
        UsageError: For products that its kernel does not compute.
    """
    if program.name == COMPOSED:
        product, rest = split(call)
        assert rest is not None  # else the library alone were the program
        return [LibraryLaunch(product), pointwise_launch(call, rest)]
    step = program.step("product")
    return gemm_spec(step.kernel).call_launches(call, step.config)


def launch(program: Program, call: GemmCall) -> None:
    """Enqueue a program on the current stream.

    Raises:
        UsageError: For products that its kernel does not compute.
        triton.runtime.errors.OutOfResources: When its configuration does not fit the device.
    """
    for each in launches_of(program, call):
        each.run()


def _recorded(
    program: Program, call: GemmCall, tensors: tuple[Tensor | None, ...], out: Tensor, *, may_spill: bool
) -> RecordedCall:
    """The plan of a program; compiles its kernels.

    Raises:
        NotPlannedError: When no recorded plan can run the program.
        SpilledError, CompileError, DoesNotFitError, triton.errors.TritonError: For `launch_what_fits`, which
            decides again.
    """
    if program.name in (LIBRARY, COMPOSED):
        plan = library_plan if program.name == LIBRARY else composed_plan
        return plan(call, tensors, out, label_of(program), program.step("product").config)
    scratch = NotedScratch()
    launches = launches_of(program, call.with_scratch(scratch))
    return recipe_of(launches, tensors, [out], scratch, label_of(program), may_spill=may_spill)


def label_of(program: Program) -> str:
    """A program's name and configuration: the note of its plan."""
    config = program.step("product").config
    return f"{program.name} {dict(config)}" if config else program.name
