"""Where candidates are measured: GPUs of this machine, its CPU, or nowhere, where the cost model stands in."""

from __future__ import annotations

from dataclasses import dataclass

from constrint.cli.propose.asked import Asked
from constrint.errors import NoDeviceError, UsageError
from constrint.hwmodels import GpuModel, load_gpu


@dataclass(frozen=True)
class Target:
    """What is proposed for.

    Args:
        gpu: The GPU's model.
        devices: Indices of the devices that measure; empty where nothing is measured.
        note: Why nothing is measured; empty where it is.
    """

    gpu: GpuModel
    devices: tuple[int, ...]
    note: str = ""


def target_of(asked: Asked) -> Target:
    """The GPU that is named, or that of this machine, and whether it is here.

    Raises:
        UsageError: When no GPU is named and none is here.
    """
    named = None if asked.choice.gpu is None else load_gpu(asked.choice.gpu)
    if named is not None and asked.is_modelled:
        return Target(named, (), "nothing is measured: --modelled")
    if asked.device == "cpu":
        if named is None:
            raise UsageError("--device cpu needs --gpu NAME: the model by which configurations are chosen.")
        return Target(named, (0,))
    from constrint.hwmodels import detect
    from constrint.tuning import devices_of

    try:
        found = detect()
    except NoDeviceError:
        found = []
    if named is None:
        if not found:
            raise UsageError("there is no GPU here: say which one is meant with --gpu NAME.")
        gpu, devices = devices_of(None)
        return Target(gpu, () if asked.is_modelled else devices, "nothing is measured: --modelled")
    here = tuple(device.index for device in found if device.model == named.name)
    if here:
        return Target(named, here)
    models = sorted({device.model or device.name for device in found})
    seen = f"this machine has {', '.join(models)}" if found else "this machine has no GPU"
    return Target(named, (), f"{seen}, so the cost model stands in for {named.name}: neither checked nor timed")
