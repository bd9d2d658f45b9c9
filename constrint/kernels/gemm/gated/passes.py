"""`gate`: activation(z) * u in one pass, and its gradients in another; by plans. Needs torch.

What a gated pair leaves where its two products are calls of their own: where gradients need both sums, and in layers
of experts, whose products are grouped. Torch's functions take two passes forward and three back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.reference import ACTIVATIONS, activation_gradient
from constrint.kernels.gemm.units import row_hint
from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable
from constrint.kernels.launch.triton import TritonLaunch

#: Elements of a block's tile, its columns at most and at least, and its warps.
TILE_ELEMENTS, MOST_COLUMNS, LEAST_COLUMNS, NUM_WARPS = 2048, 512, 16, 4
#: Tiles of rows, at most: blocks along the second dimension of a grid.
MOST_TILES = 65535
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def gate(z: Tensor, u: Tensor | None, activation: str) -> Tensor:
    """activation(z) * u; without `u`, z holds both, side by side.

    Args:
        z: (..., N), or (..., 2 N).
        u: (..., N) of the same dtype, or None.
        activation: A key of `ACTIVATIONS`.

    Returns:
        A new tensor (..., N), rounded once where a plan runs, and by every operation where torch's functions do.
    """
    out: Any = GATES.call(False, activation, z, u)
    if out is WANTS_GRAD:
        out = _apply(z, u, activation)
    elif out is IS_NEW:
        out = GATES.learn(activation, z, u)
    result: Tensor = by_torch(z, u, activation) if out is None else out
    return result


def by_torch(z: Tensor, u: Tensor | None, activation: str) -> Tensor:
    """The same by torch's functions."""
    first, second = z.chunk(2, dim=-1) if u is None else (z, u)
    return ACTIVATIONS[activation](first) * second


def gate_launch(z: Tensor, u: Tensor | None, out: Tensor, activation: str) -> TritonLaunch:
    """The launch of activation(z) * u, on tensors whose rows follow each other.

    Args:
        z: (M, N), or (M, 2 N) without u.
        u: (M, N), or None.
        out: (M, N).
        activation: A key of `ACTIVATIONS`.
    """
    from constrint.kernels.gemm.gated.kernel import gate_kernel

    arguments: dict[str, Any] = {"z_ptr": z, "u_ptr": u, "out_ptr": out, "activation": activation}
    return _launch(gate_kernel, arguments, out, z.stride(0))


def gate_gradient_launch(
    gradient: Tensor, z: Tensor, u: Tensor | None, of_z: Tensor, of_u: Tensor | None, activation: str
) -> TritonLaunch:
    """The launch of both gradients: `gradient` (M, N), and `of_z`, `of_u` laid out as `z` and `u`."""
    from constrint.kernels.gemm.gated.kernel import gate_gradient_kernel

    arguments: dict[str, Any] = {"gradient_ptr": gradient, "z_ptr": z, "u_ptr": u, "of_z_ptr": of_z, "of_u_ptr": of_u}
    return _launch(gate_gradient_kernel, arguments | {"activation": activation}, gradient, z.stride(0))


def _launch(kernel: Any, arguments: dict[str, Any], by_rows: Tensor, stride: int) -> TritonLaunch:
    m, n = by_rows.shape
    tile_n = min(MOST_COLUMNS, max(LEAST_COLUMNS, 1 << (n - 1).bit_length()))
    tile_m = TILE_ELEMENTS // tile_n
    grid = -(-n // tile_n), -(-m // tile_m)
    if grid[1] > MOST_TILES:
        raise NotPlannedError(f"{m} rows are more than a grid has blocks for")
    sizes = {"m": m, "n": n, "stride": stride, "tile_m": tile_m, "tile_n": tile_n, "hint": row_hint(n, stride)}
    return TritonLaunch(kernel, grid, arguments | sizes, {"num_warps": NUM_WARPS})


def _plan_of_gate(tensors: tuple[Tensor | None, ...], activation: Any) -> RecordedCall:
    """The plan of a call on (z, u).

    Raises:
        NotPlannedError: For tensors that these kernels do not read.
    """
    z, u = tensors
    assert z is not None
    columns = _columns(z, u)
    out = torch.empty((*z.shape[:-1], columns), dtype=z.dtype, device=z.device)
    launch = gate_launch(_rows(z), None if u is None else _rows(u), _rows(out), activation)
    return recipe_of([launch], tensors, [out], NotedScratch(), str(activation))


def _plan_of_gradients(tensors: tuple[Tensor | None, ...], activation: Any) -> RecordedCall:
    """The plan of the gradients on (gradient, z, u): one result, or two where there is a u.

    Raises:
        NotPlannedError: For tensors that these kernels do not read.
    """
    gradient, z, u = tensors
    assert gradient is not None
    assert z is not None
    if gradient.shape != (*z.shape[:-1], _columns(z, u)) or gradient.dtype != z.dtype or not gradient.is_contiguous():
        raise NotPlannedError("the gradient is not laid out as the result")
    results = [torch.empty_like(t) for t in (z, u) if t is not None]
    of_z, *rest = (_rows(t) for t in results)
    flat_u = None if u is None else _rows(u)
    launch = gate_gradient_launch(_rows(gradient), _rows(z), flat_u, of_z, rest[0] if rest else None, activation)
    return recipe_of([launch], tensors, results, NotedScratch(), str(activation))


def _columns(z: Tensor, u: Tensor | None) -> int:
    """N.

    Raises:
        NotPlannedError: For tensors that these kernels do not read.
    """
    if not z.numel() or z.dtype not in DTYPES or not z.is_contiguous() or z.dim() < 1:
        raise NotPlannedError("not a tensor of these kernels")
    if u is None:
        if z.shape[-1] % 2:
            raise NotPlannedError("an odd number of columns holds no pair")
        return z.shape[-1] // 2
    if u.shape != z.shape or u.dtype != z.dtype or not u.is_contiguous():
        raise NotPlannedError("both factors have one layout")
    return z.shape[-1]


def _rows(t: Tensor) -> Tensor:
    return t.view(-1, t.shape[-1])


class _Gate(torch.autograd.Function):
    """A pass by its plan, whose gradients are one pass, too."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, u: Tensor | None, activation: str) -> Tensor:
        out: Any = GATES.call(True, activation, z, u)
        if out is IS_NEW:
            out = GATES.learn(activation, z, u)
        ctx.activation = activation
        ctx.save_for_backward(z, u)
        result: Tensor = by_torch(z, u, activation) if out is None else out
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        z, u = ctx.saved_tensors
        if not gradient.is_contiguous():
            gradient = gradient.contiguous()
        found: Any = GRADIENTS.call(False, ctx.activation, gradient, z, u)
        if found is IS_NEW:
            found = GRADIENTS.learn(ctx.activation, gradient, z, u)
        if found is None or found is WANTS_GRAD:  # the gradients will be differentiated again, or observed
            found = _gradients_by_torch(gradient, z, u, ctx.activation)
        return (found, None, None) if u is None else (*found, None)


def _gradients_by_torch(gradient: Tensor, z: Tensor, u: Tensor | None, activation: str) -> Tensor | tuple[Tensor, ...]:
    first, second = z.chunk(2, dim=-1) if u is None else (z, u)
    of_first = activation_gradient(activation, gradient * second, first)
    of_second = gradient * ACTIVATIONS[activation](first)
    return torch.cat((of_first, of_second), dim=-1) if u is None else (of_first, of_second)


GATES = PlanTable("gate", _plan_of_gate, torch.get_float32_matmul_precision)
GRADIENTS = PlanTable("gate_backward", _plan_of_gradients, torch.get_float32_matmul_precision)

_apply = apply_of(_Gate)
