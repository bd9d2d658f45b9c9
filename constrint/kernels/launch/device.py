"""The hardware model of a torch device: the look-up that all kernels share."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.detection import describe_torch_device
from constrint.select.toolchain import caution

if TYPE_CHECKING:
    import torch

    from constrint.hwmodels.detection import DetectedDevice


def gpu_of(device: torch.device) -> GpuModel | None:
    """The model of a GPU of this machine, by its name, else by target, SM count and memory; None if there is none."""
    seen = describe(device)
    if seen.model is not None:
        return load_gpu(seen.model)
    warn_once(
        f"constrint has no hardware model of {seen.name} ({seen.target}): matmul uses a conservative configuration "
        "there, and recurrent layers the back-end 'alternating'. Add a model (see CONTRIBUTING.md) for a chosen one."
    )
    return None


def describe(device: torch.device) -> DetectedDevice:
    """Return the properties that a device reports, with the name of its hardware model."""
    import torch

    return _describe_index(torch.cuda.current_device() if device.index is None else device.index)


@lru_cache(maxsize=64)
def _describe_index(index: int) -> DetectedDevice:
    return describe_torch_device(index)


def warn_of_version(version: str) -> None:
    """Warn once of a version of Triton that the resource rules are not checked with."""
    other = caution(version)
    if other:
        warn_once(other)


@lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Give a RuntimeWarning, once per process and message."""
    warnings.warn(message, RuntimeWarning, stacklevel=4)
