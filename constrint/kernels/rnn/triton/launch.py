"""Launches of the recurrent kernels: `launches_of` states their arguments, for a device or for a compiler alone.

The meaning of a configuration is in `spec.py`, the device code in `kernel_forward.py` and `kernel_backward.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import warn_of_version
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.fused import FusedBackend, Tensors, num_sms, required, workload_of_choice
from constrint.kernels.rnn.generated.triton import step_function
from constrint.kernels.rnn.spec import SUFFIX
from constrint.kernels.rnn.tensors import make_optional_inputs
from constrint.kernels.rnn.triton.kernel_backward import backward_kernel
from constrint.kernels.rnn.triton.kernel_forward import forward_kernel
from constrint.kernels.rnn.triton.layer import TritonLayer, padded_columns, padded_head_dim
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.toolchain import triton_version
from constrint.select.workload import Workload
from constrint.tune.compile import require_triton

if TYPE_CHECKING:
    from constrint.kernels.rnn.triton.spec import TritonSpec

#: Tensors that a kernel is given as they are, by the names of its arguments; those that are None are left out.
TENSORS = {
    "forward": ("wx", "r", "bias", "initial", "states", "saved", "rows", "lengths", "reset", "unit_params"),
    "backward": (
        *("grad0", "grad1", "grad2", "grad3", "grad_last", "wx", "r", "initial", "states", "saved"),
        *("grad_slots", "grad_initial", "rows", "lengths", "reset", "unit_params", "grad_params"),
    ),
}


def launches_of(
    layer: TritonLayer,
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
        layer: The time loop that is computed.
        config: A point of the direction's space; `exchange` forces the exchange with one program too (tests do).
        tensors: The kernel's tensors by the names of its arguments. On `meta` the launches can only be compiled.
        gpu: The hardware model; None where there is none of the device.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        only_h: Backward: whether h alone has gradients; by default whether `grad1` is missing.
        scratch: Gives the memory that programs meet in.
    """
    wx = required(tensors, "wx")
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
        arguments |= {"reads_h": layer.cell.reads_h, "reads_new": layer.cell.reads_new}
        arguments |= {"clip": float(clip), "has_clip": clip > 0, "shift_free": only_h and layer.element_bytes == 2}
    options: dict[str, Any] = {"num_warps": config["num_warps"]}
    at_once = groups
    if split > 1:
        # Programs that wait for each other are launched together or not at all.
        options["launch_cooperative_grid"] = True
        at_once = max(1, num_sms(wx.device, 1 if gpu is None else gpu.device.sm_count) // split)
    kernel = forward_kernel if layer.direction == "forward" else backward_kernel
    return [
        TritonLaunch(kernel, (min(at_once, groups - first) * split,), arguments | {"first_group": first}, options)
        for first in range(0, groups, at_once)
    ]


def constants_of(layer: TritonLayer, config: Config, *, has_ptx: bool) -> dict[str, Any]:
    """Compile-time arguments that both kernels have.

    Args:
        layer: The time loop that is computed.
        config: That of `launches_of`.
        has_ptx: Whether NVIDIA's instructions may be written out.
    """
    split, cell, is_wide = config["row_split"], layer.cell, layer.element_bytes > 2
    exchange = bool(split > 1 or config.get("exchange", 0))
    out = padded_columns(layer.head_dim, split)
    slices = config["num_warps"] if exchange and config["split_depth"] else 1
    main, rest = layer.exchanged_depth(slices) if exchange else (out, 0)
    return {
        "cell": step_function(cell.step, layer.direction),
        "num_gates": cell.num_gates,
        "num_slots": cell.num_slots,
        "num_states": cell.num_states,
        "num_params": cell.num_params,
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


def _has_ptx(gpu: GpuModel | None, device: torch.device) -> bool:
    """Whether kernels are compiled for NVIDIA: not for AMD, and not interpreted on the CPU."""
    if device.type == "meta":
        return gpu is not None and gpu.traits.has_inline_ptx
    return device.type == "cuda" and torch.version.hip is None


class TritonBackend(FusedBackend):
    """Runs the Triton kernels; heads are padded to multiples of 16."""

    alignment_bytes = 1
    writes_padding = False

    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """The next multiple of a matrix instruction's depth."""
        return padded_head_dim(head_dim)

    def loop(
        self, direction: str, choice: Decision, config: Config, tensors: Tensors, scratch: Scratch, **options: Any
    ) -> Sequence[TritonLaunch]:
        """See `FusedBackend.loop`."""
        warn_of_version(triton_version())
        workload = workload_of_choice(choice)
        cell = CELLS[workload.operation.removesuffix(SUFFIX[direction])]
        layer = TritonLayer.of(cell, direction, workload)
        return launches_of(layer, config, tensors, choice.gpu, scratch=scratch, **options)

    def bias_of(self, bias: Tensor, dtype: torch.dtype) -> Tensor:
        """In `dtype` where the bias is narrower: the narrowest load decides a dot's layout (`kernel_forward.py`)."""
        return bias.to(dtype) if bias.dtype.itemsize < dtype.itemsize else bias


def compile_with_inputs(
    spec: TritonSpec, gpu: GpuModel, workload: Workload, config: Config, optional: Collection[str]
) -> CompiledKernel:
    """Compile a configuration with the named optional inputs; see `TritonSpec.compile`."""
    require_triton()
    inputs = spec.inputs(gpu, workload)
    inputs |= make_optional_inputs(spec.cell, spec.direction, inputs["wx"], optional)
    outputs = spec.outputs(gpu, workload, inputs)
    return spec.launches(gpu, workload, config, inputs, outputs)[-1].compile(gpu)
