"""`plan`: the decision for a layer of given sizes, for a named GPU or for a device of this machine.

It needs no device, and no torch for a named GPU. The candidates and their comparison are in
`kernels/rnn/candidates.py`.
"""

from __future__ import annotations

from typing import Any

from constrint.choose import FORWARD, Decision, Request, decide
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.candidates import LayerDetail
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.spec import SUFFIX, workload_of

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp64")
#: Names of dtypes by torch's names.
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
) -> Decision:
    """Decide which back-end runs a layer, with which configuration; the decision prints its reasons.

    Args:
        cell: A key of `CELLS`.
        batch: Sequences B.
        time: Steps T.
        heads: Heads N.
        head_dim: Units per head D.
        dtype: `bf16`, `fp16`, `fp32`, `tf32` or `fp64`, or a torch dtype.
        gpu: A GPU's name, present or not; `device` otherwise.
        device: A torch device; without it the current GPU, or the CPU.
        training: Whether the backward pass counts.
        projected: Whether the inputs are projected already, as `rnn` takes them. A module projects its own, and can
            leave a layer to a library that does the same; it is planned for input_size equal to its units.

    Returns:
        The decision. `program.name` is the back-end, `program.steps` are its directions; `passed_over` has the others.

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
    directions = tuple(SUFFIX) if training else (FORWARD,)
    detail = LayerDetail(is_projected=projected)
    model = None if gpu is None else load_gpu(gpu)
    if model is None:
        import torch

        from constrint.kernels.launch.device import gpu_of

        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        model = gpu_of(device) if device.type == "cuda" else None
    return decide(Request(cell, workload, model, device, directions, detail=detail))


def _dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    name = TORCH_NAMES.get(name, name)
    if name not in DTYPES:
        raise UnknownNameError("dtype", name, [*DTYPES, *TORCH_NAMES])
    return name
