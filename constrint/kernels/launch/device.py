"""The hardware model of a torch device: the one look-up that all kernels share."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.detect import describe_torch_device

if TYPE_CHECKING:
    import torch


def gpu_of(device: torch.device) -> GpuModel | None:
    """The model of a GPU of this machine, by its name, else by target, SM count and memory; None if there is none."""
    import torch

    return _gpu_at(torch.cuda.current_device() if device.index is None else device.index)


@lru_cache(maxsize=64)
def _gpu_at(index: int) -> GpuModel | None:
    device = describe_torch_device(index)
    if device.model is None:
        warn_once(
            f"constrint has no hardware model of {device.name} ({device.target}): a conservative configuration or the "
            "back-end 'alternating' is used there. Add a model (see CONTRIBUTING.md) for a chosen one."
        )
        return None
    return load_gpu(device.model)


@lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Give a RuntimeWarning, once per process and message."""
    warnings.warn(message, RuntimeWarning, stacklevel=4)
