"""Launches the recurrent kernels: `forward` and `backward` over whole sequences, with tiles from the solver.

Strides, dtypes and optional inputs are settled here; what a configuration means is in `spec.py`. It needs torch and
triton.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn.build import constants_of, options_of, precision_of
from constrint.kernels.rnn.cells import CELLS, Cell
from constrint.kernels.rnn.kernel_backward import backward_kernel
from constrint.kernels.rnn.kernel_forward import forward_kernel
from constrint.kernels.rnn.planned import PLANNED_TIME, planned_batch
from constrint.kernels.rnn.resources import Layer
from constrint.kernels.rnn.spec import Refusal, best_config, recompute_pays, refuse
from constrint.select.spec import Config


@dataclass(frozen=True)
class Shape:
    """Sizes of one call."""

    batch: int
    time: int
    num_gates: int
    num_heads: int
    head_dim: int
    device: torch.device


def _shape(wx: Tensor) -> Shape:
    batch, time, gates, heads, dim = wx.shape
    return Shape(batch, time, gates, heads, dim, wx.device)


def _on_nvidia() -> bool:
    """Whether kernels are compiled for NVIDIA (not for AMD, and not interpreted)."""
    return torch.version.hip is None and type(forward_kernel).__name__ != "InterpretedFunction"


def _constants(cell: Cell, shape: Shape, dtype: torch.dtype, config: Config, direction: str) -> dict[str, Any]:
    """Compile-time arguments of either kernel."""
    layer = Layer(cell, direction, shape.head_dim, dtype.itemsize)
    name = "bf16" if dtype.itemsize == 2 else "tf32" if config.get("tf32", 0) else "fp32"
    precision = precision_of(name, on_nvidia=_on_nvidia())
    return constants_of(layer, config, precision=precision, on_nvidia=_on_nvidia())


def _launch(kernel: Any, arguments: tuple[Any, ...], shape: Shape, config: Config, constants: dict[str, Any]) -> None:
    """Enqueue the grid, in several launches where programs that wait for each other would not all be resident."""
    groups = shape.num_heads * triton.cdiv(shape.batch, config["tile_batch"])
    split = constants["row_split"]
    at_once = groups
    if split > 1:
        sms = torch.cuda.get_device_properties(shape.device).multi_processor_count
        at_once = max(1, sms // split)
    options = options_of(config, constants)
    for first in range(0, groups, at_once):
        number = min(at_once, groups - first)
        kernel[(number * split,)](*arguments[:-2], first, *arguments[-2:], **constants, **options)


@dataclass(frozen=True)
class Call:
    """A kernel and its arguments, but for those that the configuration decides: those stand between two groups.

    Args:
        kernel: The jitted function.
        cell, direction, shape, dtype: What is computed.
        recompute: Whether gates are computed again.
        before, after: Arguments on either side of those that the configuration decides.
        constants: Compile-time arguments that the configuration does not decide.
        start: Initial h, (B, N, D), of a forward pass.
    """

    kernel: Any
    cell: str
    direction: str
    shape: Shape
    dtype: torch.dtype
    recompute: bool
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    constants: dict[str, Any]
    start: Tensor | None = None


def _run(call: Call, config: Config | None) -> None:
    """Launch with a configuration; with None the first choice, and if it does not fit after all, the next ones."""
    if config is not None:
        return _run_config(call, config)
    chosen = choose(call.cell, call.shape, call.dtype, call.direction, recompute=call.recompute)
    while True:
        try:
            return _run_config(call, chosen)
        except OutOfResources as error:
            # Nothing ran: Triton looks at the limits before it enqueues the first grid.
            chosen = _next_choice(call, chosen, error)


def _run_config(call: Call, config: Config) -> None:
    constants = _constants(CELLS[call.cell], call.shape, call.dtype, config, call.direction) | call.constants
    between = [_counters(call.shape, config, call.shape.device, exchange=constants["exchange"])]
    if call.direction == "forward":
        between.insert(0, _optional(call.start, call.dtype) if constants["exchange"] else None)
    _launch(call.kernel, (*call.before, *between, *call.after), call.shape, config, constants)


def _next_choice(call: Call, config: Config, error: OutOfResources) -> Config:
    """Remember that a choice does not fit, say so, and choose again."""
    gpu, name, sizes = _asked(call.shape, call.dtype)
    refusal = Refusal(dict(config), str(error.name), int(error.required), int(error.limit))
    found = refuse(gpu, call.cell, sizes, name, call.direction, refusal=refusal, recompute=call.recompute)
    warnings.warn(
        f"{call.cell} {call.direction}, {name}, head_dim {call.shape.head_dim}: {dict(config)} does not fit {gpu.name} "
        f"after all: it takes {error.required} of {error.name}, the limit is {error.limit}. From now on "
        f"{dict(found)} is used. Please report this with the version of Triton ({triton.__version__}).",
        RuntimeWarning,
        stacklevel=4,
    )
    return _named(found, name)


@lru_cache(maxsize=16)
def device_model(device: torch.device) -> GpuModel:
    """The hardware model of a torch device.

    Raises:
        UnknownNameError: When there is none; carries the nearest names.
    """
    return load_gpu(torch.cuda.get_device_name(device))


def precision_name(dtype: torch.dtype) -> str:
    """The spec's name of a dtype: fp32 products are tf32 ones where torch's own may be."""
    if dtype == torch.float32:
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]


def choose(cell: str, shape: Shape, dtype: torch.dtype, direction: str, *, recompute: bool | None = None) -> Config:
    """The configuration with the least predicted time; the same for every time and for many batch sizes.

    Raises:
        ConstrintError: When the kernels cannot take the layer on this device; says why.
    """
    gpu, name, sizes = _asked(shape, dtype)
    return _named(best_config(gpu, cell, sizes, name, direction, recompute=recompute), name)


def _asked(shape: Shape, dtype: torch.dtype) -> tuple[GpuModel, str, tuple[int, int, int, int]]:
    """GPU, name of the dtype and planned sizes: what the spec is asked for."""
    sizes = (planned_batch(shape.batch), PLANNED_TIME, shape.num_heads, shape.head_dim)
    return device_model(shape.device), precision_name(dtype), sizes


def _named(config: Config, name: str) -> Config:
    """A configuration of the spec with how its products are computed."""
    return dict(config) | {"tf32": int(name == "tf32")}


def saves_gates(cell: str, shape: Shape, dtype: torch.dtype) -> bool:
    """Whether training is predicted to be faster if the forward pass stores gates for the backward one."""
    gpu, name, sizes = _asked(shape, dtype)
    return not recompute_pays(gpu, cell, sizes, name)


def supports(cell: str, dtype: torch.dtype, head_dim: int, device: torch.device) -> str | None:
    """Why these kernels cannot run a layer on a device; None if they can."""
    if device.type != "cuda":
        return f"the Triton kernels need a GPU, the tensors are on {device.type}"
    if dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the Triton kernels take bfloat16, float16 and float32, not {str(dtype).removeprefix('torch.')}"
    shape = Shape(16, PLANNED_TIME, CELLS[cell].num_gates, 1, head_dim, device)
    try:
        for direction in ("forward", "backward"):
            choose(cell, shape, dtype, direction)
    except ConstrintError as error:
        return str(error)
    return None


def _optional(tensor: Tensor | None, dtype: torch.dtype | None = None) -> Tensor | None:
    if tensor is None:
        return None
    return tensor.to(dtype or tensor.dtype).contiguous()


def _bias(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A bias no narrower than the inputs: the narrowest load decides the layout of a dot (see `kernel_forward.py`)."""
    narrow = bias is not None and bias.dtype.itemsize < dtype.itemsize
    return _optional(bias, dtype if narrow else None)


def _row_order(lengths: Tensor | None) -> Tensor | None:
    """Rows by falling length, so that the sequences of one tile end at about the same time."""
    if lengths is None:
        return None
    return torch.argsort(lengths, descending=True, stable=True).to(torch.int32)


def _counters(shape: Shape, config: Config, device: torch.device, *, exchange: bool) -> Tensor | None:
    if not exchange:
        return None
    groups = shape.num_heads * triton.cdiv(shape.batch, config["tile_batch"])
    return torch.zeros(groups, dtype=torch.int32, device=device)


def _time_contiguous(wx: Tensor) -> Tensor:
    """wx with (G, N, D) contiguous; strides of B and T are free."""
    _, _, _, heads, dim = wx.shape
    return wx if wx.stride()[2:] == (heads * dim, dim, 1) else wx.contiguous()


def forward(
    cell: str,
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor,  # (G, N, D, D): g[g, n] = r[g, n] @ h
    b: Tensor | None,  # (G, N, D)
    initial: Tensor | None,  # (S, B, N, D) fp32
    *,
    lengths: Tensor | None = None,  # (B,)
    reset: Tensor | None = None,  # (B, T)
    config: Config | None = None,
    save_gates: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Run a recurrent layer over a batch of sequences.

    Returns:
        States (S, B, T, N, D) in the dtype of `wx`, zero past a sequence's end; and what `backward` reads, or None.
    """
    kind, shape = CELLS[cell], _shape(wx)
    wx = _time_contiguous(wx)
    make = torch.empty if lengths is None else torch.zeros
    sizes = (kind.num_states, shape.batch, shape.time, shape.num_heads, shape.head_dim)
    states = make(sizes, dtype=wx.dtype, device=wx.device)
    saved = make(wx.shape, dtype=wx.dtype, device=wx.device) if save_gates else None
    lengths = _optional(lengths, torch.int32)
    before = (
        wx,
        r.to(wx.dtype).contiguous(),
        _bias(b, wx.dtype),
        _optional(initial, torch.float32),
        states,
        states if saved is None else saved,
        _row_order(lengths),
        lengths,
        _optional(reset, torch.int32),
    )
    after = (shape.batch, shape.time, shape.num_heads, wx.stride(0), wx.stride(1))
    constants = {"save_gates": save_gates}
    start = None if initial is None else initial[0]
    _run(
        Call(forward_kernel, cell, "forward", shape, wx.dtype, not save_gates, before, after, constants, start), config
    )
    return states, saved


def backward(
    cell: str,
    grad_states: Tensor | tuple[Tensor | None, ...] | None,  # (S, B, T, N, D), or one (B, T, N, D) for each state
    grad_last: Tensor | tuple[Tensor | None, ...] | None,  # (S, B, N, D), or one (B, N, D) for each state
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor,  # (G, N, D, D)
    b: Tensor | None,  # (G, N, D)
    initial: Tensor | None,  # (S, B, N, D)
    states: Tensor,  # (S, B, T, N, D)
    gates: Tensor | None,  # (B, T, G, N, D), or None to compute them again
    *,
    lengths: Tensor | None = None,
    reset: Tensor | None = None,
    clip: float | None = None,
    config: Config | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Gradients of wx, r, b and the initial states."""
    kind, shape = CELLS[cell], _shape(wx)
    recompute = gates is None
    wx, states = _time_contiguous(wx), states.contiguous()
    weights = r.to(wx.dtype).contiguous()
    initial = _optional(initial, torch.float32)
    before = _states_before(states[0], initial, reset)
    if gates is None:
        gates = _recompute(kind, wx, weights, b, before)
    make = torch.empty if lengths is None else torch.zeros
    slots = 4 if kind.num_gates == 3 else kind.num_gates
    sizes = (shape.batch, shape.time, slots, shape.num_heads, shape.head_dim)
    grad_slots = make(sizes, dtype=wx.dtype, device=wx.device)
    initial_sizes = (kind.num_states, shape.batch, shape.num_heads, shape.head_dim)
    grad_initial = torch.empty(initial_sizes, dtype=torch.float32, device=wx.device)
    grads = [None if g is None else g.contiguous() for g in _by_state(grad_states)]
    last = _by_state(grad_last)
    lengths = _optional(lengths, torch.int32)
    leading = (
        *grads,
        _last_gradient(last, initial_sizes, wx.device),
        wx,
        weights,
        initial,
        states,
        gates.contiguous(),
        grad_slots,
        grad_initial,
        _row_order(lengths),
        lengths,
        _optional(reset, torch.int32),
    )
    after = (float(clip or 0.0), shape.batch, shape.time, shape.num_heads, wx.stride(0), wx.stride(1))
    only_h = all(g is None for g in [*grads[1:], *last[1:]])
    constants = {"has_clip": bool(clip), "shift_free": only_h and wx.dtype != torch.float32}
    _run(Call(backward_kernel, cell, "backward", shape, wx.dtype, recompute, leading, after, constants), config)
    is_gru = kind.num_gates == 3
    grad_wx = grad_slots[:, :, :3].contiguous() if is_gru else grad_slots
    recurrent = (0, 1, 3) if is_gru else tuple(range(slots))
    grad_r = weight_gradient(grad_slots, before, recurrent).to(r.dtype)
    grad_b = None
    if b is not None:
        grad_b = grad_slots.sum((0, 1), dtype=torch.float32)[list(recurrent)].to(b.dtype)
    return grad_wx, grad_r, grad_b, grad_initial


def _by_state(grads: Tensor | tuple[Tensor | None, ...] | None) -> list[Tensor | None]:
    """One gradient for each of up to four states."""
    given = [] if grads is None else list(grads)
    return given + [None] * (4 - len(given))


def _last_gradient(last: list[Tensor | None], sizes: tuple[int, ...], device: torch.device) -> Tensor | None:
    """Gradients of the last states as one tensor (S, B, N, D); None if there are none."""
    if all(g is None for g in last):
        return None
    whole = torch.zeros(sizes, dtype=torch.float32, device=device)
    for into, grad in zip(whole, last, strict=False):
        if grad is not None:
            into.copy_(grad)
    return whole


def _states_before(
    h: Tensor,  # (B, T, N, D)
    initial: Tensor | None,  # (S, B, N, D)
    reset: Tensor | None,  # (B, T)
) -> Tensor:
    """The h that enters each step, (B, T, N, D)."""
    before = torch.empty_like(h)
    before[:, 1:] = h[:, :-1]
    before[:, 0] = 0.0 if initial is None else initial[0].to(h.dtype)
    if reset is not None:
        before.masked_fill_(reset.bool()[:, :, None, None], 0.0)
    return before


def _recompute(
    kind: Cell,
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor,  # (G, N, D, D)
    b: Tensor | None,  # (G, N, D)
    before: Tensor,  # (B, T, N, D)
) -> Tensor:
    """Pre-activations of all steps at once: the states are known, so one GEMM per gate replaces storing them."""
    batch, time, gates, heads, dim = wx.shape
    flat = before.reshape(batch * time, heads, dim).transpose(0, 1)  # (N, B*T, D)
    out = torch.empty((batch, time, gates, heads, dim), dtype=wx.dtype, device=wx.device)
    for gate in range(gates):
        added = None if b is None else b[gate].to(wx.dtype)[:, None, :]
        if not (kind.num_gates == 3 and gate == 2):
            x = wx[:, :, gate].reshape(batch * time, heads, dim).transpose(0, 1)
            added = x if added is None else x + added
        weights = r[gate].transpose(1, 2)
        product = torch.bmm(flat, weights) if added is None else torch.baddbmm(added, flat, weights)
        out[:, :, gate] = product.transpose(0, 1).reshape(batch, time, heads, dim)
    return out


def weight_gradient(
    grad_slots: Tensor,  # (B, T, slots, N, D)
    before: Tensor,  # (B, T, N, D)
    recurrent: tuple[int, ...],
) -> Tensor:
    """Gradient of r, (G, N, D, D): one GEMM per gate over all steps, batched over heads."""
    batch, time, slots, heads, dim = grad_slots.shape
    if grad_slots.dtype == torch.float32:
        # cuBLAS does not split so long a sum in fp32; a product for each sequence fills the device.
        parts = [torch.einsum("btnd,btne->bnde", grad_slots[:, :, slot], before).sum(0) for slot in recurrent]
        return torch.stack(parts)
    states = before.reshape(batch * time, heads, dim).transpose(0, 1)  # (N, B*T, D)
    flat = grad_slots.reshape(batch * time, slots, heads, dim)
    return torch.stack([torch.bmm(flat[:, slot].permute(1, 2, 0), states) for slot in recurrent])
