"""Launches of the recurrent kernels: `launches_of` states their arguments, for a device or for a compiler alone.

What a configuration means is in `spec.py`; the device code is in `kernel_forward.py` and `kernel_backward.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.launch.policy import launch_what_fits, look
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn import kernel_cells
from constrint.kernels.rnn.first_choice import refuse
from constrint.kernels.rnn.gradients import gradients_of, recompute_gates, states_before
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs, RnnSaved, RnnUpstream
from constrint.kernels.rnn.triton.kernel_backward import backward_kernel
from constrint.kernels.rnn.triton.kernel_forward import forward_kernel
from constrint.kernels.rnn.triton.layer import Layer, padded_columns
from constrint.select.first_choice import Choice
from constrint.select.spec import Config

Tensors = Mapping[str, Tensor | None]

#: Tensors that a kernel is given as they are, by the names of its arguments; those that are None are left out.
TENSORS = {
    "forward": ("wx", "r", "bias", "initial", "states", "saved", "rows", "lengths", "reset"),
    "backward": (
        *("grad0", "grad1", "grad2", "grad3", "grad_last", "wx", "r", "initial", "states", "saved"),
        *("grad_slots", "grad_initial", "rows", "lengths", "reset"),
    ),
}


def launches_of(
    layer: Layer,
    config: Config,
    tensors: Tensors,
    gpu: GpuModel | None,
    *,
    clip: float = 0.0,
    only_h: bool | None = None,
    scratch: Scratch = TORCH_SCRATCH,
) -> list[TritonLaunch]:
    """The launches of one direction; several where programs that wait for each other would not all be resident.

    Args:
        layer: What is computed.
        config: A point of the direction's space; `exchange` forces the exchange with one program too (tests do).
        tensors: The kernel's tensors by the names of its arguments. On `meta` the launches can only be compiled.
        gpu: The hardware model; None where there is none of the device.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        only_h: Backward: whether h alone has gradients; by default whether `grad1` is missing.
        scratch: Gives the memory that programs meet in.
    """
    wx = _given(tensors, "wx")
    batch, time, _, heads, _ = wx.shape
    constants = constants_of(layer, config, has_ptx=_has_ptx(gpu, wx.device))
    groups, split = heads * -(-batch // config["tile_batch"]), config["row_split"]
    arguments: dict[str, Any] = {name: tensors.get(name) for name in TENSORS[layer.direction]}
    arguments |= {"batch": batch, "time": time, "num_heads": heads}
    arguments |= {"wx_stride_b": wx.stride(0), "wx_stride_t": wx.stride(1), "arrived": None, **constants}
    if constants["exchange"]:
        arguments["arrived"] = scratch.zeros(groups, wx.device)
    if layer.direction == "forward":
        initial, save_gates = tensors.get("initial"), not config["recompute"]
        gathered = initial if constants["exchange"] else None
        start = tensors.get("start") if gathered is not None else None
        if gathered is not None and start is None:
            start = gathered[0].to(wx.dtype).contiguous()
        arguments |= {"save_gates": save_gates, "start": start}
        if not save_gates:
            arguments["saved"] = tensors["states"]  # a pointer that is not written through
    else:
        only_h = tensors.get("grad1") is None if only_h is None else only_h
        arguments |= {"clip": float(clip), "has_clip": clip > 0, "shift_free": only_h and layer.element_bytes == 2}
    options: dict[str, Any] = {"num_warps": config["num_warps"]}
    at_once = groups
    if split > 1:
        # Programs that wait for each other are launched together or not at all.
        options["launch_cooperative_grid"] = True
        at_once = max(1, _num_sms(gpu, wx.device) // split)
    kernel = forward_kernel if layer.direction == "forward" else backward_kernel
    return [
        TritonLaunch(kernel, (min(at_once, groups - first) * split,), arguments | {"first_group": first}, options)
        for first in range(0, groups, at_once)
    ]


def constants_of(layer: Layer, config: Config, *, has_ptx: bool) -> dict[str, Any]:
    """Compile-time arguments that both kernels have.

    Args:
        layer: What is computed.
        config: As in `launches_of`.
        has_ptx: Whether NVIDIA's instructions may be written out.
    """
    split, cell, is_wide = config["row_split"], layer.cell, layer.element_bytes > 2
    exchange = bool(split > 1 or config.get("exchange", 0))
    out = padded_columns(layer.head_dim, split)
    slices = config["num_warps"] if exchange and config["split_depth"] else 1
    main, rest = layer.exchanged_depth(slices) if exchange else (out, 0)
    return {
        "cell": getattr(kernel_cells, f"{cell.name}_{layer.direction}"),
        "num_gates": cell.num_gates,
        "num_slots": cell.num_slots,
        "num_states": cell.num_states,
        "head_dim": layer.head_dim,
        "tile_batch": config["tile_batch"],
        "tile_out": out,
        "row_split": split,
        "exchange": exchange,
        "depth_main": main,
        "depth_rest": rest,
        "slices": slices,
        "num_stages": config["num_stages"],
        "fast": has_ptx and not is_wide,
        "has_asm": has_ptx,
        # Three tf32 products are as good as fp32, where fp32 on the plain units took 13 times as long on an H200 (LSTM
        # 12x64, 18.7 ms against 1.4 ms).
        "precision": ("tf32x3" if layer.num_products > 1 else "tf32") if has_ptx and is_wide else "ieee",
    }


def _given(tensors: Tensors, name: str) -> Tensor:
    tensor = tensors[name]
    if tensor is None:
        raise ConstrintError(f"the recurrent kernels need the tensor {name!r}, got None.")
    return tensor


def _has_ptx(gpu: GpuModel | None, device: torch.device) -> bool:
    """Whether kernels are compiled for NVIDIA: not for AMD, and not interpreted on the CPU."""
    if device.type == "meta":
        return gpu is not None and gpu.traits.has_inline_ptx
    return device.type == "cuda" and torch.version.hip is None


def _num_sms(gpu: GpuModel | None, device: torch.device) -> int:
    """SMs of the device itself, which may be fewer than those of its model."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return 1 if gpu is None else gpu.device.sm_count


def forward(inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
    """Run a recurrent layer over a batch of sequences; see `RnnBackend.forward`."""
    saved = _results(inputs, save_gates=save_gates)
    layer = Layer.of(inputs.kind, "forward", _workload(choice))
    _launch(choice, layer, _forward_tensors(inputs, saved), recompute=not save_gates)
    return saved


def _results(inputs: RnnInputs, *, save_gates: bool) -> RnnSaved:
    wx, kind = inputs.wx, inputs.kind
    batch, time, _, heads, dim = wx.shape
    make = torch.empty if inputs.lengths is None else torch.zeros
    states = make((kind.num_states, batch, time, heads, dim), dtype=wx.dtype, device=wx.device)
    return RnnSaved(states, make(wx.shape, dtype=wx.dtype, device=wx.device) if save_gates else None)


def _forward_tensors(inputs: RnnInputs, saved: RnnSaved) -> Tensors:
    bias = inputs.b
    if bias is not None and bias.dtype.itemsize < inputs.wx.dtype.itemsize:
        bias = bias.to(inputs.wx.dtype)  # the narrowest load decides the layout of a dot (see `kernel_forward.py`)
    return _common(inputs) | {"bias": _optional(bias), "states": saved.states, "saved": saved.gates}


def backward(inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float) -> RnnGradients:
    """Gradients of the inputs; see `RnnBackend.backward`."""
    kind, states = inputs.kind, saved.states.contiguous()
    tensors = _common(inputs)
    before = states_before(states[0], tensors["initial"], inputs.reset)
    gates = saved.gates
    if gates is None:
        gates = recompute_gates(kind, inputs.wx, _given(tensors, "r"), inputs.b, before)
    slots, initial = _gradient_results(inputs)
    tensors |= _backward_tensors(RnnSaved(states, gates), upstream, slots, initial)
    layer = Layer.of(kind, "backward", _workload(choice))
    recompute, only_h = saved.gates is None, _only_h(upstream)
    _launch(choice, layer, tensors, recompute=recompute, clip=clip, only_h=only_h)
    return gradients_of(
        inputs,
        slots,
        before,
        None if inputs.initial is None else initial,
        sums_by_sequence=inputs.wx.dtype == torch.float32,
    )


def _gradient_results(inputs: RnnInputs) -> tuple[Tensor, Tensor]:
    """Memory for the gradients of the slots, (B, T, slots, N, D), and of the initial states, (S, B, N, D) in fp32."""
    wx, kind = inputs.wx, inputs.kind
    batch, time, _, heads, dim = wx.shape
    make = torch.empty if inputs.lengths is None else torch.zeros
    slots = make((batch, time, kind.num_slots, heads, dim), dtype=wx.dtype, device=wx.device)
    return slots, torch.empty((kind.num_states, batch, heads, dim), dtype=torch.float32, device=wx.device)


def _backward_tensors(
    saved: RnnSaved, upstream: RnnUpstream, slots: Tensor, initial: Tensor
) -> dict[str, Tensor | None]:
    tensors = {"states": saved.states, "saved": _optional(saved.gates), "grad_slots": slots, "grad_initial": initial}
    tensors |= {f"grad{state}": _optional(grad) for state, grad in enumerate(upstream.states)}
    if any(grad is not None for grad in upstream.last):
        tensors["grad_last"] = upstream.stacked_last(initial)
    return tensors


def _only_h(upstream: RnnUpstream) -> bool:
    return all(grad is None for grad in (*upstream.states[1:], *upstream.last[1:]))


def _launch(choice: Choice, layer: Layer, tensors: Tensors, *, recompute: bool, **options: Any) -> None:
    """Launch a choice, and if it does not fit after all, the next ones."""

    given = sorted(name for name, tensor in tensors.items() if tensor is not None)
    given += [f"{name}={value}" for name, value in options.items() if value]

    def launch(choice: Choice, /, *, may_spill: bool) -> None:
        config = {**choice.config, "recompute": int(recompute)}
        launches = launches_of(layer, config, tensors, choice.gpu, **options)
        wx = _given(tensors, "wx")
        key = choice.kernel, tuple(config.items()), layer, wx.dtype, wx.device, *given
        if key not in _CLEAN and not may_spill and wx.is_cuda:
            look(launches)
            _CLEAN.add(key)
        for each in launches:
            each.run()

    launch_what_fits(choice, launch, refuse, given)


#: Kernels that were looked at and do not spill, by everything that they are compiled for.
_CLEAN: set[tuple[object, ...]] = set()


def _workload(choice: Choice) -> Any:
    if choice.workload is None:
        raise ConstrintError(f"{choice.kernel} needs a choice with the workload that it was made for.")
    return choice.workload


def _common(inputs: RnnInputs) -> dict[str, Tensor | None]:
    """Tensors that both directions have, in the types that the kernels take."""
    lengths = _optional(inputs.lengths, torch.int32)
    # Rows by falling length, so that the sequences of one tile end at about the same time.
    rows = None if lengths is None else torch.argsort(lengths, descending=True, stable=True).to(torch.int32)
    return {
        "wx": inputs.wx,
        "r": _optional(inputs.r, inputs.wx.dtype),
        "initial": _optional(inputs.initial, torch.float32),
        "rows": rows,
        "lengths": lengths,
        "reset": _optional(inputs.reset, torch.int32),
    }


def _optional(tensor: Tensor | None, dtype: torch.dtype | None = None) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype or tensor.dtype).contiguous()
