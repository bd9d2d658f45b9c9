"""Conjugate gradients around anyone's product: a loop in PyTorch, or Triton's vector kernels in a CUDA graph.

Needs torch. A `CgTask` is a solve; both functions continue it from its x and return how far they came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.cg.vectors.launch import STATE, SUMS, Vectors

Product = Callable[[Tensor], Tensor]

#: Statuses by the numbers of `source/cg.cu`.
RUNNING, CONVERGED, MOST, NOT_POSITIVE, NOT_FINITE, PRECONDITIONER = range(6)
#: Programs of a kernel, elements of one at a time, and warps of one.
OPTIONS = {"programs": 512, "block": 1024, "num_warps": 4}
#: Iterations of a CUDA graph, and those that run before it is captured.
CAPTURED, EAGER = 8, 8
#: Iterations whose r . r the device keeps.
MOST_HISTORY = 1 << 20


@dataclass(frozen=True)
class CgTask:
    """A system and its limits.

    Args:
        product: The matrix times a vector (n,).
        b: (n,), contiguous.
        x: (n,), contiguous: the guess, which becomes the solution.
        inverse: (n,): the inverse diagonal, or None.
        precondition: A preconditioner that is no diagonal, or None.
        threshold: Largest ||r|| of a solution.
        most: Most iterations.
    """

    product: Product
    b: Tensor
    x: Tensor
    inverse: Tensor | None
    precondition: Product | None
    threshold: float
    most: int


@dataclass(frozen=True)
class Recurrence:
    """End of a recurrence.

    Args:
        iterations: Iterations of it.
        status: A number of those above.
        squares: r . r before the first iteration and after each.
        curvature: The last p . A p.
    """

    iterations: int
    status: int
    squares: list[float]
    curvature: float


def checked_result(name: str, function: Product, argument: Tensor) -> Tensor:
    """The result of a caller's function for a vector, as a contiguous vector of the same type.

    Raises:
        UsageError: When it gives something else.
    """
    out = function(argument)
    if not isinstance(out, Tensor) or out.shape != argument.shape or out.dtype != argument.dtype:
        got = f"{out.dtype} {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise UsageError(f"cg: {name} gives {argument.dtype} {tuple(argument.shape)} for such a vector, got {got}.")
    if out.device != argument.device:
        raise UsageError(f"cg: {name} gives a tensor on {argument.device}, got one on {out.device}.")
    return out.contiguous()


def dot(a: Tensor, b: Tensor) -> float:
    """a . b in fp64."""
    return float(torch.dot(a.double(), b.double()))


def residual_of(task: CgTask) -> Tensor:
    """b - A x."""
    return task.b - checked_result("the operator", task.product, task.x)


def run_plain(task: CgTask, first: Tensor) -> Recurrence:
    """Iterate in PyTorch; the host reads both sums of an iteration.

    Args:
        task: The solve.
        first: b - A x.
    """
    r, x = first.clone(), task.x

    def preconditioned() -> Tensor:
        if task.inverse is not None:
            return task.inverse * r
        return r if task.precondition is None else checked_result("the preconditioner", task.precondition, r)

    square = dot(r, r)
    squares, curvature, p, before = [square], 0.0, torch.zeros_like(r), 0.0
    iterations = 0
    while True:
        status = _status(square, task, iterations)
        if status == RUNNING:
            z = preconditioned()
            rho = square if z is r else dot(r, z)
            status = RUNNING if rho > 0 and math.isfinite(rho) else PRECONDITIONER
        if status != RUNNING:
            return Recurrence(iterations, status, squares, curvature)
        p = z + (rho / before if before else 0.0) * p
        q = checked_result("the operator", task.product, p)
        curvature = dot(p, q)
        if not curvature > 0 or not math.isfinite(curvature):
            return Recurrence(iterations, NOT_POSITIVE if math.isfinite(curvature) else NOT_FINITE, squares, curvature)
        alpha = rho / curvature
        x.add_(p, alpha=alpha)
        r.sub_(q, alpha=alpha)
        before, square = rho, dot(r, r)
        squares.append(square)
        iterations += 1


def _status(square: float, task: CgTask, iterations: int) -> int:
    if not math.isfinite(square):
        return NOT_FINITE
    if math.sqrt(square) <= task.threshold:
        return CONVERGED
    return MOST if iterations >= task.most else RUNNING


def run_triton(task: CgTask, first: Tensor) -> Recurrence:
    """Iterate by Triton's kernels; after a few iterations several of them are one CUDA graph, where it can be captured.

    Args:
        task: The solve.
        first: b - A x.
    """
    loop = _Loop(task, first)
    if loop.status != RUNNING:
        return loop.progress()
    graph: Any = None
    tried = False
    while True:
        if graph is not None:
            graph.replay()
        else:
            loop.iterate(EAGER)
        if loop.read() != RUNNING:
            return loop.progress()
        if not tried:
            graph, tried = loop.captured(), True


class _Loop:
    """Tensors of a solve by Triton's kernels."""

    def __init__(self, task: CgTask, first: Tensor) -> None:
        self.task, self.r = task, first.clone()
        square = dot(self.r, self.r)
        self.status = _status(square, task, 0)
        z = self._preconditioned()
        rho = square
        if task.inverse is not None:
            rho = dot(self.r, task.inverse * self.r)
        elif z is not self.r:
            rho = dot(self.r, z)
        if self.status == RUNNING and (not rho > 0 or not math.isfinite(rho)):
            self.status = PRECONDITIONER
        device = self.r.device
        state = torch.zeros((2, STATE), dtype=torch.float64, device=device)
        self.numbers = [rho, square, 0.0, 0.0, float(self.status), task.threshold]
        state[0] = torch.tensor(self.numbers, dtype=torch.float64, device=device)
        partials = torch.zeros((SUMS, OPTIONS["programs"]), dtype=torch.float64, device=device)
        history = torch.empty((min(task.most, MOST_HISTORY) + 1,), dtype=torch.float64, device=device)
        history[0] = square
        first_p = (z if task.inverse is None else task.inverse * self.r).clone()
        self.vectors = Vectors(task.x, self.r, first_p, task.inverse, state, partials, history)

    def _preconditioned(self) -> Tensor:
        precondition = self.task.precondition
        return self.r if precondition is None else checked_result("the preconditioner", precondition, self.r)

    def iterate(self, number: int) -> None:
        """Enqueue an even number of iterations."""
        for i in range(number):
            self._step(i % 2)

    def _step(self, turn: int) -> None:
        task, vectors = self.task, self.vectors
        q = checked_result("the operator", task.product, vectors.p)
        vectors.curvature(q, OPTIONS).run()
        vectors.solution(q, vectors.state[turn], OPTIONS).run()
        z = self._preconditioned()
        if task.precondition is not None:
            vectors.dot(vectors.r, z, 2, OPTIONS).run()
        has_products = task.inverse is not None or task.precondition is not None
        vectors.direction(z, turn, task.most, OPTIONS, has_products=has_products).run()

    def captured(self) -> Any:
        """A graph of `CAPTURED` iterations; None where the caller's functions cannot be captured."""
        graph: Any = torch.cuda.CUDAGraph()
        try:
            with _quiet_allocator(), torch.cuda.graph(graph):
                self.iterate(CAPTURED)
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return graph

    def read(self) -> int:
        """Wait, and return the status."""
        self.numbers = self.vectors.state[0].tolist()
        self.status = int(self.numbers[4])
        return self.status

    def progress(self) -> Recurrence:
        """How far it came."""
        iterations = int(self.numbers[3])
        squares = self.vectors.history[: iterations + 1].tolist()
        return Recurrence(iterations, self.status, squares, self.numbers[2])


@contextmanager
def _quiet_allocator() -> Iterator[None]:
    torch.cuda.synchronize()
    yield
