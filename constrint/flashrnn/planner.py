"""Which back-end runs a recurrent layer, with which configuration, and why: for a named GPU, or for a device here.

`plan` needs no device, and no torch for a named GPU. What decides stands in `kernels/rnn/plan.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.offer import Offer
from constrint.kernels.rnn.plan import RnnPlan, plan_for, plan_on
from constrint.kernels.rnn.spec import SUFFIX, workload_of

__all__ = ["RnnPlan", "plan"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp64")
#: What a plan calls torch's own layers on the CPU (`aten::lstm`, `gru`, `rnn_tanh`, `rnn_relu`).
LIBRARY = "torch"
TORCH_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def plan(
    cell: str = "lstm",
    *,
    batch: int,
    time: int,
    heads: int = 1,
    head_dim: int,
    dtype: Any = "bf16",
    gpu: str | None = None,
    device: Any = None,
    training: bool = True,
    projected: bool = False,
) -> RnnPlan:
    """Say which back-end runs a layer, how, and why.

    Args:
        cell: A key of `CELLS`.
        batch: Sequences B.
        time: Steps T.
        heads: Heads N.
        head_dim: Units per head D.
        dtype: `bf16`, `fp16`, `fp32`, `tf32` or `fp64`, or a torch dtype.
        gpu: A GPU's name, present or not; `device` otherwise.
        device: A torch device; without it the current GPU, or the CPU.
        training: Whether gradients will be wanted, too.
        projected: Whether the inputs are projected already, as `rnn` takes them. A module projects its own, and can
            leave a layer to a library that does the same; it is planned for as many inputs as units.

    Raises:
        UsageError: For a size, dtype or name that does not exist.
    """
    if cell not in CELLS:
        raise UnknownNameError("cell", cell, CELLS)
    if gpu is not None and device is not None:
        raise UsageError(f"give gpu or device, not both: got gpu={gpu!r} and device={device!r}.")
    for name, size in (("batch", batch), ("time", time), ("heads", heads), ("head_dim", head_dim)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, got {size}.")
    workload = workload_of(cell, (batch, time, heads, head_dim), _dtype_name(dtype))
    directions = tuple(SUFFIX) if training else ("forward",)
    if gpu is not None:
        return plan_for(workload, load_gpu(gpu), directions, projected=projected)
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    found = plan_on(workload, device, directions, projected=projected)
    return _with_library(found, projected=projected) if device.type == "cpu" else found


def _with_library(found: RnnPlan, *, projected: bool) -> RnnPlan:
    """A plan for the CPU, and what torch's own kernels say to it: modules alone run by them, since these project."""
    import torch

    from constrint.flashrnn.libraries.cpu import refusal

    names = {ours: torchs for torchs, ours in TORCH_NAMES.items()} | {"tf32": "float32"}
    sizes = found.workload.sizes
    reason = refusal(found.workload.operation, sizes["heads"], getattr(torch, names[found.workload.dtype]))
    offer = Offer(LIBRARY, refusal=reason, note="no name for backend=: 'auto' takes it, in modules", projects=True)
    if reason or projected:
        return replace(found, others=(*found.others, offer))
    why = "several times faster than a loop of calls for every step"
    return replace(found, chosen=offer, why=why, others=(found.chosen, *found.others))


def _dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    name = TORCH_NAMES.get(name, name)
    if name not in DTYPES:
        raise UnknownNameError("dtype", name, [*DTYPES, *TORCH_NAMES])
    return name
