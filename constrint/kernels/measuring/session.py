"""One measurement of this machine's GPU, from its detection to the written file."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from constrint.errors import NoDeviceError
from constrint.hwmodels.detection import DetectedDevice, detect
from constrint.hwmodels.load import load_gpu
from constrint.hwmodels.measured.model import in_words, measured_model, model_of_device, write_model
from constrint.hwmodels.measured.quantities import Bench, measure
from constrint.hwmodels.schema import GpuModel
from constrint.kernels.measuring.bench import TorchBench

#: Blocks that read at once, for each SM.
BLOCKS_PER_SM = 4


class WrittenModel(NamedTuple):
    """A model that was measured and written: the model as it loads, its file, the measurements in words."""

    gpu: GpuModel
    path: Path
    lines: list[str]


def measure_here() -> WrittenModel:
    """Measure the first GPU that torch sees, and write its model into the user's folder.

    Raises:
        NoDeviceError: When there is no GPU, or torch does not see it.
    """
    device = detect()[0]
    if device.source != "torch":
        raise NoDeviceError(
            f"{device.name} is there, but torch, which measures, does not see it; install torch for it."
        )
    gpu = model_of_device(device)
    bench = TorchBench(f"cuda:{device.index}", BLOCKS_PER_SM * (device.sm_count or gpu.device.sm_count))
    return measure_with(bench, device, gpu, tools())


def measure_with(bench: Bench, device: DetectedDevice, gpu: GpuModel, made_by: str) -> WrittenModel:
    """Measure with a bench and write; the file is loaded again, so that what is written is what will be used."""
    found = measure(bench, gpu)
    model = measured_model(gpu, found, f"{device.name}, {made_by}", date.today())
    path = write_model(model)
    return WrittenModel(load_gpu(path), path, [*in_words(found, gpu), *found.remarks])


def tools() -> str:
    """The versions of what measures, and of the driver."""
    import torch

    from constrint import __version__

    runtime: Any = torch.version
    parts = [f"constrint {__version__}", f"torch {torch.__version__}", f"driver {_driver()}"]
    parts.append(f"HIP {runtime.hip}" if runtime.hip is not None else f"CUDA {runtime.cuda}")
    return ", ".join(parts)


def _driver() -> str:
    """The driver's version, as its kernel module or its library states it."""
    for path in (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version")):
        try:
            words = path.read_text(encoding="utf-8", errors="replace").split()
        except OSError:
            continue
        return next((word for word in words if word[0].isdigit()), "unknown")
    return "unknown"
