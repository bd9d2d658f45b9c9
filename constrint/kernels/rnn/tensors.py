"""Tensors to check, time and compile the recurrent kernels with, by the names of their arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.gradients import recompute_gates, states_before
from constrint.kernels.rnn.reference import rnn_reference
from constrint.select.workload import Workload

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
#: Standard deviation of a random bias.
BIAS_SCALE = 0.3
#: Factors of projected inputs that leave their bits as they are: beyond where an exponential of twice a pre-activation
#: is finite in fp32, and so small that the recurrence decides.
SATURATING, TINY = 2.0**5, 2.0**-8


def make_inputs(
    cell: RecurrentCell, direction: str, workload: Workload, *, device: Any, seed: int
) -> dict[str, Tensor]:
    """Random inputs of a layer with bias; backward also the saved tensors of a forward pass, and the gradient of h."""
    batch, time, heads, dim = (workload.sizes[name] for name in ("batch", "time", "heads", "head_dim"))
    is_meta, dtype = torch.device(device).type == "meta", DTYPES[workload.dtype]
    generator = None if is_meta else torch.Generator(device=device).manual_seed(seed)

    def draw(*sizes: int) -> Tensor:
        if is_meta:
            return torch.empty(sizes, dtype=dtype, device=device)
        return torch.randn(sizes, generator=generator, device=device).to(dtype)

    wx, r = draw(batch, time, cell.num_gates, heads, dim), draw(cell.num_gates, heads, dim, dim) / dim**0.5
    bias = BIAS_SCALE * draw(cell.num_gates, heads, dim)
    inputs = {"wx": wx, "r": r, "bias": bias}
    if cell.num_params:
        inputs["unit_params"] = BIAS_SCALE * draw(cell.num_params, heads, dim).float()
    if direction == "forward":
        return inputs
    inputs["grad0"] = draw(batch, time, heads, dim)
    if is_meta:
        return inputs | {"states": draw(cell.num_states, batch, time, heads, dim), "saved": torch.empty_like(wx)}
    return inputs | _left_behind(cell, inputs)


def unusual_inputs(cell: RecurrentCell, direction: str, inputs: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Inputs that show faults of layers which random inputs hide, derived from random ones.

    Args:
        cell: The cell.
        direction: Forward, or backward, where the tensors of a forward pass are computed anew. Saturated gates are left
            out there: one less the square of a rounded 1 is no gradient that a bound could be derived for.
        inputs: Random inputs.
        number: 0 for the inputs themselves; 1: pre-activations of up to a hundred, which saturate every gate, and
            backward hardly any gradient that is not 0; 2: hardly any projected input is not 0; 3: tiny ones. 4 is 0
            again.
    """
    kind = number % 4
    if kind == 1 and direction == "backward":
        return {**inputs, "grad0": _scattered(inputs["grad0"])}
    wx = inputs["wx"]
    changed = {1: SATURATING * wx, 2: _scattered(wx), 3: TINY * wx}.get(kind, wx)
    unusual = {**inputs, "wx": changed}
    return unusual | _left_behind(cell, unusual) if kind and direction == "backward" else unusual


def _left_behind(cell: RecurrentCell, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that a forward pass saves for the backward one: states, and gates."""
    wx, r, bias = (inputs[name] for name in ("wx", "r", "bias"))
    states = rnn_reference(cell.name, wx, r, bias, params=inputs.get("unit_params"))[0]
    return {"states": states, "saved": recompute_gates(cell, wx, r, bias, states_before(states[0], None, None))}


def _scattered(t: Tensor) -> Tensor:
    """Every 37th element, and zeros: no tile is a multiple of 37."""
    index = torch.arange(t.numel(), device=t.device).reshape(t.shape)
    return torch.where(index % 37 == 0, t, torch.zeros_like(t))


def make_optional_inputs(cell: RecurrentCell, direction: str, wx: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """Zeros for inputs that a launch may have besides.

    Raises:
        UsageError: When the kernel has no such input.
    """
    batch, time, _, heads, dim = wx.shape
    ends, every = (cell.num_states, batch, heads, dim), (batch, time, heads, dim)
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "initial": (ends, torch.float32),
        "rows": ((batch,), torch.int32),
        "lengths": ((batch,), torch.int32),
        "reset": ((batch, time), torch.int32),
    }
    if direction == "backward":
        shapes |= {f"grad{state}": (every, wx.dtype) for state in range(1, cell.num_states)}
        shapes["grad_last"] = (ends, torch.float32)
    for name in names:
        if name not in shapes:
            raise UsageError(f"{cell.name}, {direction}, has no optional input {name!r}; it has {', '.join(shapes)}.")
    return {name: torch.zeros(shapes[name][0], dtype=shapes[name][1], device=wx.device) for name in names}


def make_outputs(cell: RecurrentCell, direction: str, wx: Tensor) -> dict[str, Tensor]:
    """Empty outputs; backward the gradient of wx is a view of those of the slots."""
    batch, time, gates, heads, dim = wx.shape
    if direction == "forward":
        return {"states": wx.new_empty((cell.num_states, batch, time, heads, dim)), "saved": torch.empty_like(wx)}
    slots = wx.new_empty((batch, time, cell.num_slots, heads, dim))
    initial = wx.new_empty((cell.num_states, batch, heads, dim), dtype=torch.float32)
    outputs = {"grad_slots": slots, "grad_initial": initial, "grad_wx": slots[:, :, :gates]}
    if cell.num_params:
        outputs["grad_params"] = initial.new_empty((cell.num_params, *initial.shape[1:]))
    return outputs


def exact_outputs(cell: RecurrentCell, direction: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The right outputs in fp64: states, or gradients of wx and of the initial states.

    States that a step rounds on purpose are rounded here, too: an sLSTM's m, rounded down in every step, drifts, and c
    and n have their scale from it.
    """
    exact = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    lengths, reset, params = exact.get("lengths"), exact.get("reset"), exact.get("unit_params")
    options: dict[str, Any] = {
        "lengths": lengths,
        "reset": None if reset is None else reset.bool(),
        "params": params,
    }
    if direction == "forward":
        options["stored"] = inputs["wx"].dtype
        out, _ = rnn_reference(cell.name, exact["wx"], exact["r"], exact["bias"], exact.get("initial"), **options)
        return {"states": out}
    batch, _, _, heads, dim = exact["wx"].shape
    wx = exact["wx"].requires_grad_()
    initial = exact.get("initial", wx.new_zeros((cell.num_states, batch, heads, dim))).requires_grad_()
    out, _ = rnn_reference(cell.name, wx, exact["r"], exact["bias"], initial, **options)
    grad_wx, grad_initial = torch.autograd.grad((out[0] * exact["grad0"]).sum(), (wx, initial))
    return {"grad_wx": grad_wx, "grad_initial": grad_initial}
