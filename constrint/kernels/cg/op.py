"""`cg`: the method of conjugate gradients for stars on grids, matrices and operators. Needs torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from constrint.errors import CompileError, InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.kernels.cg.fused import FusedSolve, why_not_fused
from constrint.kernels.cg.loop import (
    CONVERGED,
    MOST,
    NOT_FINITE,
    NOT_POSITIVE,
    CgTask,
    Recurrence,
    residual_of,
    run_plain,
    run_triton,
)
from constrint.kernels.cg.result import CGResult
from constrint.kernels.cg.star import StarMatrix
from constrint.kernels.cg.systems import (
    JACOBI,
    LinearSystem,
    check_iterations,
    check_preconditioner,
    check_tolerance,
    guess_of,
    system_of_call,
)
from constrint.select.candidate import Config

AUTO, OWN, TRITON, PLAIN = "auto", "cuda", "triton", "torch"
KERNELS = (AUTO, OWN, TRITON, PLAIN)
#: After this many restarts from b - A x, and once one of them lessens ||b - A x|| by less than this factor, rounding
#: keeps the residual above the tolerance.
MOST_RESTARTS, LEAST_GAIN = 10, 0.5


@dataclass(frozen=True)
class Options:
    """The options of a call, checked."""

    rtol: float
    atol: float
    most: int
    preconditioner: Any
    kernel: str
    config: Config | None


def cg(
    matrix: Any,
    b: Tensor,
    *,
    x0: Tensor | None = None,
    rtol: float = 1e-6,
    atol: float = 0.0,
    maxiter: int | None = None,
    preconditioner: Any = None,
    kernel: str = AUTO,
    config: Config | None = None,
) -> CGResult:
    """Solve A x = b for a symmetric positive definite A by the method of conjugate gradients.

    The iteration ends when the recurrence's ||r|| is at most max(rtol * ||b||, atol). Then b - A x is computed: where
    it is larger, the iteration starts again from it, so that a result that says "converged" has that residual. A call
    waits for its result.

    Gradients reach b: x is differentiated implicitly, by another solve with A and the same arguments.

    Args:
        matrix: A `StarMatrix` or `Poisson` on a grid, which is not stored; a matrix in CSR or a dense one, (n, n);
            or a function of a vector (n,). Only of stars it is checked that they are symmetric.
        b: (n,), or of a grid's shape; fp64 or fp32.
        x0: The guess, as b; None: 0.
        rtol, atol: The tolerance.
        maxiter: Most iterations; None: 10 n.
        preconditioner: None, "jacobi" (the inverse diagonal), or a function of a residual (n,).
        kernel: "auto"; "cuda": all iterations in one launch, for stars and CSR on NVIDIA's GPUs; "triton": vector
            kernels around the library's product, in a CUDA graph where the functions can be captured; "torch": a loop.
        config: Values of all parameters of "cuda", which then runs with them.

    Returns:
        The solution with iterations, residual, history and status. "breakdown: ..." says that p . A p or r . z was not
        positive, or a number not finite, or that rounding keeps the residual above the tolerance; x is then the last
        iterate.

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together.
        TypeError: For arguments of other types.
        UnknownNameError: For an unknown kernel or preconditioner.
        UnsupportedError: When the named kernel does not solve the system; when the matrix requires a gradient.
        UsageError: For tolerances and maxiter out of range, and for functions that give no vector like their argument.
    """
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", str(kernel), KERNELS)
    check_preconditioner(preconditioner)
    rtol, atol = check_tolerance("rtol", rtol), check_tolerance("atol", atol)
    system = system_of_call(matrix, b)
    options = Options(rtol, atol, check_iterations(maxiter, b.numel()), preconditioner, kernel, config)
    guess = guess_of(x0, b)
    if torch.is_grad_enabled() and b.requires_grad:
        seen: list[CGResult] = []
        x = _Solution.apply(b, matrix, guess, options, seen)  # type: ignore[no-untyped-call]
        (result,) = seen
        return CGResult(x, result.iterations, result.residual, result.history, result.status, result.kernel)
    return _solved(system, guess, options, b.shape)


class _Solution(torch.autograd.Function):
    """x of A x = b; the gradient of b is the solution of A g = gradient of x."""

    @staticmethod
    def forward(
        ctx: Any, b: Tensor, matrix: Any, guess: Tensor | None, options: Options, seen: list[CGResult]
    ) -> Tensor:
        ctx.matrix, ctx.options = matrix, options
        result = _solved(system_of_call(matrix, b.detach()), guess, options, b.shape)
        seen.append(result)
        x: Tensor = result.x
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        result = _solved(system_of_call(ctx.matrix, gradient.contiguous()), None, ctx.options, gradient.shape)
        return result.x, None, None, None, None


@torch.no_grad()
def _solved(system: LinearSystem, guess: Tensor | None, options: Options, shape: Any) -> CGResult:
    kernel = _kernel_of(system, options)
    x = torch.zeros_like(system.b) if guess is None else guess
    inverse = None
    if options.preconditioner == JACOBI:
        is_star = isinstance(system.matrix, StarMatrix)
        inverse = system.inverse() if not is_star or kernel != OWN else None
    if kernel == OWN:
        try:
            return _by_cuda(system, x, inverse, options, guess is not None, shape)
        except (CompileError, InfeasibleError):
            if options.kernel == OWN:
                raise
            kernel = TRITON if _has_triton() else PLAIN
            inverse = system.inverse() if options.preconditioner == JACOBI else None
            x = torch.zeros_like(system.b) if guess is None else guess
    return _by_loop(system, x, inverse, options, kernel, shape)


def _kernel_of(system: LinearSystem, options: Options) -> str:
    own = why_not_fused(system, options.preconditioner)
    if options.kernel == OWN and own:
        raise UnsupportedError(f"cg.cuda does not solve this system: {own}.")
    if options.config is not None and options.kernel != OWN:
        raise UsageError('cg: config names parameters of kernel="cuda"; name that kernel, too.')
    if options.kernel == TRITON and (system.b.device.type != "cuda" or not _has_triton()):
        raise UnsupportedError("cg.triton does not solve this system: it runs on GPUs where Triton is installed.")
    if options.kernel != AUTO:
        return options.kernel
    if not own:
        return OWN
    return TRITON if system.b.device.type == "cuda" and _has_triton() and system.b.numel() else PLAIN


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _by_cuda(
    system: LinearSystem, x: Tensor, inverse: Tensor | None, options: Options, has_guess: bool, shape: Any
) -> CGResult:
    star = system.matrix if isinstance(system.matrix, StarMatrix) else None
    is_scaled = star is not None and options.preconditioner == JACOBI
    scale = (1.0 / star.centre if star.centre else math.inf) if star is not None and is_scaled else 1.0
    solve = FusedSolve(system, x, inverse, scale, options.config, options.most)

    def run(first: int, *, goes_on: bool) -> tuple[Recurrence, float, float]:
        return solve.run(options.rtol, options.atol, first, options.most, has_guess=has_guess or goes_on)

    return _finished(run, x, options.most, OWN, shape)


def _by_loop(
    system: LinearSystem, x: Tensor, inverse: Tensor | None, options: Options, kernel: str, shape: Any
) -> CGResult:
    b = system.b
    norm = float(torch.linalg.vector_norm(b, dtype=torch.float64)) if b.numel() else 0.0
    if norm == 0.0:
        x.zero_()
    threshold = max(options.rtol * norm, options.atol)
    own = options.preconditioner
    function = own if callable(own) else None
    run_one = run_triton if kernel == TRITON else run_plain

    def run(first: int, *, goes_on: bool) -> tuple[Recurrence, float, float]:
        task = CgTask(system.product, b, x, inverse, function, threshold, options.most - first)
        start = b if norm == 0.0 or not b.numel() else residual_of(task)
        progress = run_one(task, start)
        left = start if norm == 0.0 or not b.numel() else residual_of(task)
        return progress, float(torch.linalg.vector_norm(left, dtype=torch.float64)), threshold

    return _finished(run, x, options.most, kernel, shape)


def _finished(run: Any, x: Tensor, most: int, kernel: str, shape: Any) -> CGResult:
    """Run, and again from b - A x where the recurrence ended below it; the result."""
    progress, residual, threshold = run(0, goes_on=False)
    squares, iterations, restarts = list(progress.squares), progress.iterations, 0
    status = progress.status
    stagnates = False
    while status == CONVERGED and not residual <= threshold:
        before = residual
        if iterations >= most:
            status = MOST
            break
        if restarts == MOST_RESTARTS:
            stagnates = True
            break
        progress, residual, threshold = run(iterations, goes_on=True)
        # ||r|| after the last iteration is now that of b - A x, which the recurrence had lost.
        squares[-1:] = progress.squares
        iterations, status, restarts = iterations + progress.iterations, progress.status, restarts + 1
        if status == CONVERGED and not residual <= threshold and residual > LEAST_GAIN * before:
            stagnates = True
            break
    history = torch.tensor(squares, dtype=torch.float64).sqrt()
    said = _said(status, progress, residual, threshold, stagnates=stagnates)
    return CGResult(x.reshape(shape), iterations, residual, history, said, kernel)


def _said(status: int, progress: Recurrence, residual: float, threshold: float, *, stagnates: bool) -> str:
    if stagnates:
        return f"breakdown: rounding keeps the residual at {residual:.3g}, above the tolerance {threshold:.3g}"
    if status == CONVERGED:
        return "converged"
    if status == MOST:
        return "converged" if residual <= threshold else "maxiter"
    if status == NOT_POSITIVE:
        return f"breakdown: p . A p = {progress.curvature:.3g} is not positive: the matrix is not positive definite"
    if status == NOT_FINITE:
        return "breakdown: a number is not finite"
    return "breakdown: r . M r is not positive: the preconditioner is not positive definite"
