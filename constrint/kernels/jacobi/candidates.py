"""The candidates for sweeps: CUDA C++ with several steps in a launch, Triton with one, and plain PyTorch. No torch.

Plain PyTorch runs a kernel for each term of a star and each step, so that it is the slowest by any prediction; it runs
where neither kernel does, and stands among the candidates for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

from constrint.choose.decide import Refusal, decide
from constrint.choose.decision import Decision, Program, Request, Step, in_order
from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError
from constrint.kernels.jacobi.cost import torch_s
from constrint.kernels.jacobi.sizes import Grid

CUDA, POINTER, TORCH = "cuda", "pointer", "torch"
#: Kernels that have parameters, preferred ones first.
KERNELS = (CUDA, POINTER)
NAMES = (*KERNELS, TORCH)


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The candidates by predicted time; those that do not run come last.

    Raises:
        InfeasibleError, UnsupportedError, UsageError: When the named kernel does not run, or the named configuration
            is not valid.
        UnknownNameError: When the request names another kernel.
    """
    if request.kernel and request.kernel not in NAMES:
        raise UnknownNameError("kernel", request.kernel, ("auto", *NAMES))
    if request.kernel in KERNELS:
        return [decide(_own(request, request.kernel)).program]
    if request.kernel == TORCH or request.gpu is None:
        return [_torch(request)]
    programs = [_torch(request)]
    for name in KERNELS:
        try:
            programs.append(decide(_own(request, name)).program)
        except (UnsupportedError, InfeasibleError) as error:
            programs.append(Program(f"jacobi.{name}", refusal=str(error)))
    return in_order(programs)


def force_hint(decision: Decision) -> str:
    """Arguments of `jacobi` by which a caller forces another candidate."""
    names = " or ".join(f'"{name}"' for name in NAMES)
    return f"jacobi(..., kernel={names}), with config={{...}} for one configuration of jacobi.cuda or jacobi.pointer"


def _own(request: Request, name: str) -> Request:
    return Request(f"jacobi.{name}", request.workload, request.gpu, request.device, config=request.config)


def _torch(request: Request) -> Program:
    """Plain PyTorch."""
    gpu = request.gpu
    seconds = None if gpu is None else torch_s(gpu, Grid.of(request.workload))
    step = Step("product", "torch.narrow", workload=request.workload, seconds=seconds)
    return Program(f"jacobi.{TORCH}", (step,), note="a kernel for each term of each step")
