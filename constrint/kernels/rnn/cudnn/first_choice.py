"""Whether a module's layers are left to cuDNN: where it can run them, and is predicted to be faster than the kernels.

Both are compared without the projection of the inputs, which takes the same time in either. What cuDNN is predicted to
take rests on measured layers; where our layers were measured, too, that is what it is compared with. The answer is
remembered for every signature.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from constrint.kernels.launch.device import gpu_of
from constrint.kernels.rnn.cudnn.algorithm import Shape
from constrint.kernels.rnn.cudnn.cost import layer_s, measured
from constrint.kernels.rnn.first_choice import USUAL_TIME, measured_s, predicted_s

if TYPE_CHECKING:
    import torch


class Layers(NamedTuple):
    """A dense call of a module.

    Args:
        cell: A key of `CELLS`.
        dtype: The spec's name of the operands' type.
        batch: Sequences.
        time: Steps.
        input_size: Features of the input of the first layer.
        dim: Units of each direction.
        num_layers: Layers.
        directions: 2 if each layer also runs backwards in time.
        trains: Whether gradients will be wanted.
    """

    cell: str
    dtype: str
    batch: int
    time: int
    input_size: int
    dim: int
    num_layers: int
    directions: int
    trains: bool

    def shapes(self) -> list[Shape]:
        """What decides about the algorithm of each layer."""
        inputs = [self.input_size] + [self.dim * self.directions] * (self.num_layers - 1)
        return [Shape(self.cell, self.dtype, self.batch, self.dim, size, self.directions) for size in inputs]


@lru_cache(maxsize=4096)
def prefers_cudnn(layers: Layers, device: torch.device) -> bool:
    """Whether cuDNN is predicted to run a module's layers faster than what `auto` runs on projected inputs."""
    gpu = gpu_of(device)
    if gpu is None or not measured(gpu.name):
        return False
    seconds = cudnn_s(gpu.name, layers)
    if seconds is None:
        return False
    # A layer's directions are heads of one recurrence.
    sizes = layers.batch, layers.directions, layers.dim
    ours = measured_s(layers.cell, sizes, layers.dtype, device, trains=layers.trains, time=layers.time)
    if ours is None:
        usual = predicted_s(layers.cell, sizes, layers.dtype, device, trains=layers.trains)
        ours = None if usual is None else usual * layers.time / USUAL_TIME
    return ours is not None and seconds < ours * layers.num_layers


def cudnn_s(gpu: str, layers: Layers) -> float | None:
    """Predicted seconds of a module's layers by cuDNN without their projections; None where nothing is predicted."""
    directions = ("forward", "backward") if layers.trains else ("forward",)
    parts = [layer_s(gpu, shape, layers.time, direction) for shape in layers.shapes() for direction in directions]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
