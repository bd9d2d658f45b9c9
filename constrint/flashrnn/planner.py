"""Which back-end runs a recurrent layer, with which configuration, and why: for a named GPU, or for a device here.

`plan` needs no device, and no torch for a named GPU. What decides stands in `kernels/rnn/plan.py`.
"""

from __future__ import annotations

from typing import Any

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.plan import RnnPlan, plan_for, plan_on
from constrint.kernels.rnn.spec import SUFFIX, workload_of

__all__ = ["RnnPlan", "plan"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp64")
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
    return plan_on(workload, torch.device(device), directions, projected=projected)


def _dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    name = TORCH_NAMES.get(name, name)
    if name not in DTYPES:
        raise UnknownNameError("dtype", name, [*DTYPES, *TORCH_NAMES])
    return name
