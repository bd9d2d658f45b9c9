"""Gradients of weights by the kernels of `rnn/weights`, beside what they have to be in double precision."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.gradients import states_before
from constrint.kernels.rnn.weights.launch import WeightTiles, weight_launches

#: What rounds once, and what sums: fp32, of the precision of the matrix units, which may round towards zero.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
SUMMING = 2.0**-22
#: Half of the least numbers.
LEAST = {torch.bfloat16: 2.0**-134, torch.float16: 2.0**-25, torch.float32: 2.0**-150}


class PoisonedScratch(Scratch):
    """Memory that holds NaN, so that nothing counts on zeros."""

    def empty(self, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
        """As in `Scratch`."""
        return torch.full(tuple(shape), math.nan, dtype=dtype, device=device)


class Problem(NamedTuple):
    """What a backward loop leaves."""

    kind: RecurrentCell
    slots: Tensor  # (B, T, slots, N, D)
    h: Tensor  # (B, T, N, D)
    initial: Tensor | None  # (S, B, N, D)


def make_problem(
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: torch.dtype,
    seed: int,
    *,
    initial: bool,
    whole: bool,
    device: str = "cpu",
) -> Problem:
    """Random gradients of the slots and states of a layer of (B, T, N, D).

    With `whole` all are among -2, ..., 2, whose sums are exact in fp32: the results have to be the exact ones, rounded.
    """
    kind, (batch, time, heads, dim) = CELLS[cell], sizes
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        if whole:
            return torch.randint(-2, 3, shape, generator=generator, device=device).float()
        return torch.randn(shape, generator=generator, device=device)

    slots, h = draw(batch, time, kind.num_slots, heads, dim).to(dtype), draw(batch, time, heads, dim).to(dtype)
    return Problem(kind, slots, h, draw(kind.num_states, batch, heads, dim) if initial else None)


def by_kernel(problem: Problem, gpu: GpuModel, tiles: WeightTiles | None, of_bias: torch.dtype | None) -> list[Tensor]:
    """The gradients of r, and of b in its dtype if there is one, from poisoned memory."""
    kind, slots = problem.kind, problem.slots
    heads, dim = slots.shape[3:]
    r = torch.full((kind.num_gates, heads, dim, dim), math.nan, dtype=slots.dtype, device=slots.device)
    b = None if of_bias is None else torch.full(r.shape[:3], math.nan, dtype=of_bias, device=slots.device)
    for launch in weight_launches(kind, slots, problem.h, problem.initial, r, b, gpu, PoisonedScratch(), tiles):
        launch.run()
    return [r] if b is None else [r, b]


def exact(problem: Problem) -> list[tuple[Tensor, Tensor]]:
    """Both gradients in double precision, each beside the sum of the magnitudes of its terms."""
    kind = problem.kind
    before = states_before(problem.h, problem.initial, None).double()
    of_slots = problem.slots.double()[:, :, list(kind.recurrent_slots)]
    sums = []
    for slots, states in ((of_slots, before), (of_slots.abs(), before.abs())):
        sums.append((torch.einsum("btgnd,btne->gnde", slots, states), slots.sum((0, 1))))
    return [(value, size) for value, size in zip(*sums, strict=True)]


def error_over_bound(found: list[Tensor], problem: Problem) -> float:
    """The largest error as a part of what rounding allows; NaN if one is NaN.

    The result is rounded once, and in a sum each term is added to what is no larger than all of them together: in fp32,
    by as many additions as there are terms.
    """
    worst = []
    additions = problem.h.shape[0] * problem.h.shape[1]
    for given, (value, size) in zip(found, exact(problem), strict=False):
        bound = ROUNDING[given.dtype] * value.abs() + additions * SUMMING * size + LEAST[given.dtype]
        worst.append(((given.double() - value).abs() / bound).max())
    return float(torch.stack(worst).max())


class Judged(NamedTuple):
    """What is wrong with the kernels on a layer: nothing if `over_bound` is at most 1, and the others are true."""

    over_bound: float
    is_exact: bool
    is_repeatable: bool


def judge(case: dict[str, Any], gpu: GpuModel, device: str) -> Judged:
    """Run a case on random numbers, on whole ones, and again.

    Args:
        case: `cell`, `sizes` (B, T, N, D), `dtype` and `bias` (that of b, or None) as torch names them, `initial`,
            `tiles` (a `Tiles` as a list, or None for the usual ones), and `seed`.
        gpu: The hardware model.
        device: Where it is run.
    """
    of_bias = None if case["bias"] is None else getattr(torch, case["bias"])
    tiles = None if case["tiles"] is None else WeightTiles(*case["tiles"])

    def problem(*, whole: bool) -> Problem:
        dtype, initial = getattr(torch, case["dtype"]), bool(case["initial"])
        return make_problem(
            case["cell"], tuple(case["sizes"]), dtype, case["seed"], initial=initial, whole=whole, device=device
        )

    given, whole = problem(whole=False), problem(whole=True)
    found, again, rounded = (by_kernel(each, gpu, tiles, of_bias) for each in (given, given, whole))
    wanted = [value.to(each.dtype) for each, (value, _) in zip(rounded, exact(whole), strict=False)]
    return Judged(
        error_over_bound(found, given),
        all(torch.equal(a, b) for a, b in zip(rounded, wanted, strict=True)),
        all(torch.equal(a, b) for a, b in zip(found, again, strict=True)),
    )


def interpreted(case: dict[str, Any]) -> Judged:
    """For Triton's interpreter: `judge` on the CPU."""
    return judge(case, load_gpu("h200"), "cpu")
