"""Launch plans of one step of a cell: the products by cuBLASLt, and one pointwise kernel around them.

    forward:   sums = x @ W^T, sums += h @ R^T, then the kernel: new states, and the slots where a gradient follows
    backward:  the kernel: gradients of the sums and of c; then grad_x = grad_sums @ W, grad_h = grad_sums @ R

The GRU keeps both parts of its candidate apart: each product has sums of its own there. Gradients of the weights are no
part of a plan: `constrint.flashrnn.onestep` computes them once for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.kernels.gemm.first_call import machine_of
from constrint.kernels.gemm.launch import Epilogue, GemmCall, runtime_precision
from constrint.kernels.gemm.library.fused import FusedLaunch, matmul_step
from constrint.kernels.gemm.library.launch import is_captured
from constrint.kernels.launch.plan.recipe import MatmulStep, Recipe, RecordedCall, output_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import PlanTable
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.generated.triton import step_function

#: Dtypes of tensors with plans.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
#: Units that a program of the pointwise kernel has, at most, and units of a warp.
MOST_TILE, WARP_UNITS = 256, 64


class StepForward(NamedTuple):
    """Everything but its tensors that a step depends on.

    Args:
        cell: lstm, gru, elman or elman_relu.
        trains: Whether the slots are a result, for the gradient.
    """

    cell: str
    trains: bool


class StepBackward(NamedTuple):
    """Everything but its tensors that the gradient of a step depends on.

    Args:
        cell: The cell.
        of_x, of_h, of_c: Whether the gradients of x and of the states are results.
    """

    cell: str
    of_x: bool
    of_h: bool
    of_c: bool


def _build_forward(tensors: tuple[Tensor | None, ...], extra: StepForward) -> RecordedCall:
    """The plan of a step on (x, h, c, W, R, bias of W, bias of R) -> new h, new c if there is one, slots if it trains.

    h and c are None for zeros, biases where there are none.

    Raises:
        NotPlannedError: For operands that do not go together, or that the kernel or the library does not take.
    """
    x, h, c, w_ih, w_hh, *biases = tensors
    if x is None or w_ih is None or w_hh is None:
        raise NotPlannedError("there is no input, or there are no weights")
    kind, width = CELLS[extra.cell], w_hh.shape[-1]
    _check(tensors, kind.num_gates)
    rows = len(x)
    has_c = kind.num_states > 1

    def memory(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=x.dtype, device=x.device)

    results = [memory(rows, width) for _ in range(1 + has_c)]
    sums = memory(rows, kind.num_gates * width)
    parts_h = memory(rows, kind.num_gates * width) if kind.keeps_parts_apart and h is not None else None
    slots = None
    if extra.trains:
        # Where every slot is a gate, the slots take the place of the sums.
        slots = memory(rows, kind.num_slots * width) if kind.keeps_parts_apart else sums
        results.append(slots)
    num_results = len(results)
    results += [each for each in (sums, parts_h) if each is not None and each is not slots]
    products = [(x, w_ih.t(), sums, False)]
    if h is not None:
        products.append((h, w_hh.t(), sums if parts_h is None else parts_h, parts_h is None))
    arguments = {
        "of_input": sums,
        "of_hidden": parts_h,
        **dict(zip(("bias_ih", "bias_hh"), biases, strict=True)),
        "h": h if kind.reads_h else None,
        "c": c,
        "new_h": results[0],
        "new_c": results[1] if has_c else None,
        "slots": slots,
    }
    launch = step_launch(extra.cell, arguments, rows, width, h, c)
    return _recorded(tensors, results, num_results, products, launch, products_first=True)


def _build_backward(tensors: tuple[Tensor | None, ...], extra: StepBackward) -> RecordedCall:
    """The plan of a gradient on (gradients of new h and new c, h, c, new c, slots, W, R).

    Results are the gradients of the input's parts of the gates, those of the recurrence's parts where the cell keeps
    them apart, and of x, h and c as far as `extra` names them. h is needed by the GRU alone.

    Raises:
        NotPlannedError: As in the forward pass.
    """
    grad_h, grad_c, h, c, new_c, slots, w_ih, w_hh = tensors
    if slots is None or w_ih is None or w_hh is None:
        raise NotPlannedError("there are no slots, or there are no weights")
    kind, width, rows = CELLS[extra.cell], w_hh.shape[-1], len(slots)
    for each in (grad_h, grad_c, new_c):
        if each is not None and (tuple(each.shape) != (rows, width) or not each.is_contiguous()):
            raise NotPlannedError("gradients have to be contiguous, and of the shape of the states")
    if any(each is not None and each.dtype != slots.dtype for each in tensors):
        raise NotPlannedError("tensors of several dtypes")

    def memory(columns: int) -> Tensor:
        return torch.empty((rows, columns), dtype=slots.dtype, device=slots.device)

    of_input = memory(kind.num_gates * width)
    of_hidden = memory(kind.num_gates * width) if kind.keeps_parts_apart else None
    of_x, of_h = memory(w_ih.shape[1]) if extra.of_x else None, memory(width) if extra.of_h else None
    of_c = memory(width) if extra.of_c else None
    results = [each for each in (of_input, of_hidden, of_x, of_h, of_c) if each is not None]
    passes_h = kind.reads_h and of_h is not None
    products = []
    if of_h is not None:
        products.append((of_input if of_hidden is None else of_hidden, w_hh, of_h, passes_h))
    if of_x is not None:
        products.append((of_input, w_ih, of_x, False))
    arguments = {
        "grad_h": grad_h,
        "grad_c": grad_c,
        "h": h if kind.reads_h else None,
        "c": c,
        "new_c": new_c,
        "slots": slots,
        "of_input": of_input,
        "of_hidden": of_hidden,
        "old_h": of_h if passes_h else None,
        "old_c": of_c,
    }
    launch = step_launch(extra.cell, arguments, rows, width, h, c)
    return _recorded(tensors, results, len(results), products, launch, products_first=False)


def _check(tensors: Sequence[Tensor | None], gates: int) -> None:
    """Refuse operands of a forward pass that do not go together: torch's cell then says why.

    Raises:
        NotPlannedError: For such operands.
    """
    x, h, c, w_ih, w_hh, *biases = tensors
    assert x is not None
    assert w_ih is not None
    assert w_hh is not None
    there = [each for each in tensors if each is not None]
    if x.dtype not in DTYPES or any(each.dtype != x.dtype or each.device != x.device for each in there):
        raise NotPlannedError("dtypes or devices differ, or have no kernel")
    width, rows = w_hh.shape[-1], len(x)
    stated: list[tuple[Tensor, tuple[int, ...]]] = [
        (x, (rows, w_ih.shape[-1])),
        (w_ih, (gates * width, w_ih.shape[-1])),
        (w_hh, (gates * width, width)),
    ]
    stated += [(state, (rows, width)) for state in (h, c) if state is not None]
    stated += [(bias, (gates * width,)) for bias in biases if bias is not None]
    if any(tuple(each.shape) != shape for each, shape in stated) or not all(each.numel() for each in there):
        raise NotPlannedError("shapes do not go together")
    if any(state.stride(-1) != 1 and width > 1 for state in (h, c) if state is not None):
        raise NotPlannedError("units of a state have to follow each other")
    if any(not bias.is_contiguous() for bias in biases if bias is not None):
        raise NotPlannedError("a bias has to be contiguous")


def step_launch(
    cell: str, arguments: dict[str, Any], rows: int, width: int, h: Tensor | None, c: Tensor | None
) -> TritonLaunch:
    """The pointwise kernel: forward where `arguments` has `new_h`, else backward.

    Args:
        cell: The cell.
        arguments: The kernel's tensors by name.
        rows: Sequences.
        width: Units.
        h, c: The states before the step, for their strides.
    """
    from constrint.kernels.rnn.onestep.kernel import step_backward_kernel, step_forward_kernel

    kind, is_forward = CELLS[cell], "new_h" in arguments
    tile = min(MOST_TILE, 1 << max(width - 1, 0).bit_length())
    strides = {f"{name}_stride": width if t is None else t.stride(0) for name, t in (("h", h), ("c", c))}
    return TritonLaunch(
        step_forward_kernel if is_forward else step_backward_kernel,
        (rows, -(-width // tile)),
        {
            **arguments,
            **strides,
            "width": width,
            "cell": step_function(kind.step, "forward" if is_forward else "backward"),
            "num_gates": kind.num_gates,
            "num_slots": kind.num_slots,
            "tile": tile,
        },
        {"num_warps": max(1, tile // WARP_UNITS)},
    )


#: Slot of the library's workspace until all products are known.
_WORKSPACE = 1 << 16


def _recorded(
    tensors: tuple[Tensor | None, ...],
    results: list[Tensor],
    num_results: int,
    products: Sequence[tuple[Tensor, Tensor, Tensor, bool]],
    launch: TritonLaunch,
    *,
    products_first: bool,
) -> RecordedCall:
    """One plan of the products (a, b, out, whether out is added to) and the pointwise kernel.

    Raises:
        NotPlannedError: Where no plan can call the library for a product.
    """
    steps = [_product(*product, [*tensors, *results]) for product in products]
    recipe, direct, _ = recipe_of([launch], tensors, results, NotedScratch(), "onestep", may_spill=False)
    if not recipe.steps:
        raise NotPlannedError("there is no core to call the library")
    outputs = list(recipe.outputs)
    workspace_bytes = max(step.algorithm.workspace_bytes for step in steps) if steps else 0
    if workspace_bytes:
        outputs.append(output_of(torch.empty(workspace_bytes, dtype=torch.uint8, device="meta")))
    place = len(tensors) + len(results)
    steps = [_with_workspace(step, place) for step in steps]
    joined = [*steps, *recipe.steps] if products_first else [*recipe.steps, *steps]
    return RecordedCall(Recipe(joined, outputs, num_results, recipe.num_counters, recipe.note), direct)


def _product(a: Tensor, b: Tensor, out: Tensor, adds: bool, slots: Sequence[Tensor | None]) -> MatmulStep:
    """The library's product of matrices; calls it once.

    Raises:
        NotPlannedError: When cuBLASLt is not there, or does not take it.
    """
    end = Epilogue(source=out[None], beta=1.0) if adds else Epilogue()
    call = GemmCall(a[None], b[None], out[None], machine_of(a.device)[1], end, runtime_precision(a.dtype))
    places = {each.data_ptr(): slot for slot, each in enumerate(slots) if each is not None}
    at = [places[each.data_ptr()] for each in (a, b, out)]
    step = matmul_step(call, (at[0], at[1], -1, at[2]), at[2], _WORKSPACE)
    if not is_captured(a.device):
        FusedLaunch(call, step.algorithm).run()
    return step


def _with_workspace(step: MatmulStep, slot: int) -> MatmulStep:
    """The step with the slot of its workspace, where it takes one."""
    if step.slots[5] != _WORKSPACE:
        return step
    return MatmulStep(step.matmul, step.algorithm, (*step.slots[:5], slot))


FORWARD = PlanTable("rnn-step-forward", _build_forward, torch.get_float32_matmul_precision)
BACKWARD = PlanTable("rnn-step-backward", _build_backward, torch.get_float32_matmul_precision)
