"""Calls of `rnn` with random operands, and the bound on the error of any back-end against the reference in fp64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.flashrnn import rnn
from constrint.kernels.rnn.cells import CELLS

#: Half a unit in the last place.
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
#: Rounded operands that one step's gradient is a product of.
FACTORS = 8


@dataclass
class Case:
    """One call: its operands in the dtype under test, and what goes with them."""

    cell: str
    tensors: dict[str, Any]
    lengths: Tensor | None
    reset: Tensor | None
    upstream: tuple[Tensor, Tensor]

    def run(self, dtype: torch.dtype | None = None, **options: Any) -> tuple[list[Tensor], list[Tensor]]:
        """Results and gradients of a weighted sum of all of them."""
        tensors: dict[str, Any] = {n: x.to(dtype or x.dtype).detach().requires_grad_() for n, x in self.tensors.items()}
        states, last = rnn(**tensors, cell=self.cell, lengths=self.lengths, reset=self.reset, **options)
        of_states, of_last = ((w.to(s.dtype) * s).sum() for w, s in zip(self.upstream, (states, last), strict=True))
        gradients = torch.autograd.grad(of_states + of_last, list(tensors.values()))
        return [states.detach(), last.detach()], list(gradients)


def make_case(
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: torch.dtype,
    seed: int,
    optional: str = "",
    *,
    device: str = "cpu",
) -> Case:
    """Random operands; `optional` names what there is: b, s (initial states), l (lengths), r (reset)."""
    batch, time, heads, dim = sizes
    kind, generator = CELLS[cell], torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    tensors = {
        "wx": draw(batch, time, kind.num_gates, heads, dim),
        # Of spectral radius about 1/2: the recurrence forgets, so an error does not grow without bound.
        "r": draw(kind.num_gates, heads, dim, dim) / (2 * dim**0.5),
    }
    if "b" in optional:
        tensors["b"] = draw(kind.num_gates, heads, dim)
    if "s" in optional:
        tensors["states"] = draw(kind.num_states, batch, heads, dim)
        if cell == "slstm":
            tensors["states"][2] = tensors["states"][2].abs() + 1.5
    lengths = torch.randint(0, time + 1, (batch,), generator=generator) if "l" in optional else None
    reset = torch.rand(batch, time, generator=generator) < 0.1 if "r" in optional else None
    of_states, of_last = draw(kind.num_states, batch, time, heads, dim), draw(kind.num_states, batch, 1, heads, dim)
    return Case(
        cell,
        {n: x.to(device=device, dtype=dtype) for n, x in tensors.items()},
        lengths,
        None if reset is None else reset.to(device),
        (of_states.to(device), of_last.to(device)),
    )


def assert_within(found: Tensor, exact: Tensor, bound: float, what: str) -> None:
    """The largest error, relative to the largest value, is within the bound."""
    error = float((found.double() - exact).abs().max()) / max(float(exact.abs().max()), 1e-30) if exact.numel() else 0.0
    assert error <= bound, f"{what}: error {error:.2e} of the largest value, bound {bound:.2e}"


def comparable(cell: str, states: Tensor) -> Tensor:
    """States as far as they do not depend on how an sLSTM's m was rounded: its c and n are in units of exp(m)."""
    if cell != "slstm":
        return states
    h, c, n, m = states.double().unbind(0)
    return torch.stack([h, c * m.exp(), n * m.exp()])


def check(case: Case, dtype: torch.dtype, *, rounded_operands: bool = False, **options: Any) -> None:
    """A back-end's results and gradients against the reference on the same rounded operands in fp64.

    A result is rounded once to `dtype`; its sums of D products in fp32 add D roundings of fp32, and the recurrence
    carries earlier ones on. A gradient reads rounded results at every step: FACTORS roundings a step, which over T
    steps add up like independent ones, hence sqrt(T). With `rounded_operands` h is rounded to `dtype` before every
    product, as matrix units want it, and tanh has about as many bits: FACTORS roundings of a state.
    """
    time, dim = case.tensors["wx"].shape[1], case.tensors["wx"].shape[4]
    if case.cell == "slstm" and dtype in (torch.bfloat16, torch.float16):
        # Gradients of c, n or m alone jump where the maximum in m changes sides, which a rounding can do; h's do not.
        for upstream in case.upstream:
            upstream[1:] = 0
    results, gradients = case.run(dtype, **options)
    exact_results, exact_gradients = case.run(torch.float64, backend="reference")
    fine = ROUNDOFF[torch.float64 if dtype == torch.float64 else torch.float32]
    roundings = FACTORS if rounded_operands else 2
    for name, found, exact in zip(("states", "last"), results, exact_results, strict=True):
        assert found.dtype == dtype
        found, exact = comparable(case.cell, found), comparable(case.cell, exact)
        assert_within(found, exact, roundings * ROUNDOFF[dtype] + fine * dim * time**0.5, name)
    if case.cell == "elman_relu" and rounded_operands and dtype != torch.float32:
        return  # its slope jumps at 0, and a rounded operand moves pre-activations across
    bound = FACTORS * ROUNDOFF[dtype] * time**0.5 + fine * dim * time**0.5
    for name, found, exact in zip(case.tensors, gradients, exact_gradients, strict=True):
        assert found.dtype == dtype
        assert_within(found, exact, bound, f"gradient of {name}")
