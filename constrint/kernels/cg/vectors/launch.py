"""Launches of Triton's vector kernels with the library's product between them. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.cg.reference import apply_star, csr_of
from constrint.kernels.cg.sizes import star_of
from constrint.kernels.launch.triton import TritonLaunch
from constrint.select.candidate import CompiledKernel
from constrint.select.workload import Workload

#: Numbers of a row of the state: rho, r . r, p . q, iterations, status, threshold.
STATE = 6
SUMS = 3


@dataclass(frozen=True)
class LibraryCall:
    """A launch that is no kernel of ours: a product of the library, or the start of a solve.

    Args:
        function: What it does.
    """

    function: Callable[[], object]

    def run(self) -> None:
        """Do it on the current stream."""
        self.function()

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """Refuse: a library's call has no code of ours.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a library's call has no code that could be compiled; state a kernel's launch last.")


@dataclass(frozen=True)
class Vectors:
    """Tensors of a solve by the vector kernels.

    Args:
        x, r, p: (n,).
        inverse: (n,): the inverse diagonal, or None.
        state: (2, 6) fp64: rows that iterations read and write by turns.
        partials: (3, programs) fp64: sums of p . q, r . r and r . z.
        history: fp64: r . r after each iteration.
    """

    x: Tensor
    r: Tensor
    p: Tensor
    inverse: Tensor | None
    state: Tensor
    partials: Tensor
    history: Tensor

    def curvature(self, q: Tensor, options: Mapping[str, Any]) -> TritonLaunch:
        """Partial sums of p . q."""
        return self.dot(self.p, q, 0, options)

    def dot(self, a: Tensor, b: Tensor, place: int, options: Mapping[str, Any]) -> TritonLaunch:
        """Partial sums of a . b in a row of `partials`."""
        from constrint.kernels.cg.vectors.kernel import partial_dot

        arguments = {"a": a, "b": b, "partials": self.partials[place], "n": self.r.numel(), "block": options["block"]}
        return TritonLaunch(partial_dot, self._grid, arguments, {"num_warps": options["num_warps"]})

    def solution(self, q: Tensor, state: Tensor, options: Mapping[str, Any]) -> TritonLaunch:
        """x += alpha p, r -= alpha q, and sums of the new r."""
        from constrint.kernels.cg.vectors.kernel import advance_solution

        vectors = {"x": self.x, "r": self.r, "p": self.p, "q": q, "inverse": self.inverse}
        arguments = {**vectors, **self._sums, "state": state, **self._sizes(options)}
        return TritonLaunch(advance_solution, self._grid, arguments, {"num_warps": options["num_warps"]})

    def direction(
        self, z: Tensor, turn: int, most: int, options: Mapping[str, Any], *, has_products: bool
    ) -> TritonLaunch:
        """p = z + beta p, and the state that follows that of `turn`."""
        from constrint.kernels.cg.vectors.kernel import advance_direction

        states = {"state": self.state[turn], "following": self.state[1 - turn], "history": self.history}
        limits = {"most": most, "history_size": self.history.numel(), "has_products": has_products}
        vectors = {"p": self.p, "z": z, "inverse": self.inverse}
        arguments = {**vectors, **self._sums, **states, **limits, **self._sizes(options)}
        return TritonLaunch(advance_direction, self._grid, arguments, {"num_warps": options["num_warps"]})

    @property
    def _grid(self) -> tuple[int, ...]:
        return (self.partials.shape[1],)

    @property
    def _sums(self) -> dict[str, Tensor]:
        return dict(zip(("curvatures", "squares", "products"), self.partials, strict=True))

    def _sizes(self, options: Mapping[str, Any]) -> dict[str, Any]:
        has_inverse, programs = self.inverse is not None, self.partials.shape[1]
        return {"n": self.r.numel(), "has_inverse": has_inverse, "programs": programs, "block": options["block"]}


def workload_launches(
    workload: Workload, config: Mapping[str, int], inputs: Mapping[str, Tensor], x: Tensor, number: int
) -> list[Any]:
    """The launches of a workload's iterations from x = 0."""
    star, b = star_of(workload), inputs["b"]
    if star is not None:

        def product(v: Tensor) -> Tensor:
            return apply_star(star, v)
    else:
        matrix = None if b.is_meta else csr_of(dict(inputs), b.dtype)

        def product(v: Tensor) -> Tensor:
            return torch.mv(matrix, v)  # type: ignore[arg-type]

    inverse = inputs.get("inverse")
    if star is not None and workload.options.get("jacobi"):
        inverse = torch.full_like(b, 1.0 / star.centre)
    made = torch.empty((2 * STATE + SUMS * config["programs"] + number + 1,), dtype=torch.float64, device=b.device)
    state = made[: 2 * STATE].view(2, STATE)
    partials = made[2 * STATE : 2 * STATE + SUMS * config["programs"]].view(SUMS, -1)
    vectors = Vectors(x, torch.empty_like(b), torch.empty_like(b), inverse, state, partials, made[-number - 1 :])
    q = torch.empty_like(b)
    launches: list[Any] = [LibraryCall(lambda: start(vectors, b))]
    for i in range(number):
        launches += [
            LibraryCall(lambda: q.copy_(product(vectors.p))),
            vectors.curvature(q, config),
            vectors.solution(q, state[i % 2], config),
            vectors.direction(vectors.r, i % 2, number, config, has_products=inverse is not None),
        ]
    return launches


def start(vectors: Vectors, b: Tensor) -> None:
    """x = 0, r = b, p = z, and the state before the first iteration, without waiting for the device."""
    vectors.x.zero_()
    vectors.r.copy_(b)
    vectors.p.copy_(b if vectors.inverse is None else vectors.inverse * b)
    vectors.state.zero_()
    square = torch.dot(b.double(), b.double())
    vectors.history[0] = square
    vectors.state[0, 0] = square if vectors.inverse is None else torch.dot(b.double(), vectors.p.double())
    vectors.state[0, 1] = square
