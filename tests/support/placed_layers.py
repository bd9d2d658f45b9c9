"""Layers on the recurrent CUDA kernels in a placement of one's choice, on the GPU of this machine.

python -m tests.support.placed_layers            # each placement in both directions, against fp64 on the CPU
python -m tests.support.placed_layers broken     # a kernel that writes past its memory, which a sanitizer must see
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.candidates import decide_layer
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID
from constrint.kernels.rnn.gradients import recompute_gates, states_before
from constrint.kernels.rnn.reference import rnn_reference
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, workload_of
from constrint.select import Config, Workload
from constrint.tune.check import Tolerance, error_over_bound, poison
from tests.support.decisions import choose_kernel

PLACEMENTS = {"block": BLOCK, "cluster": CLUSTER, "grid": GRID}
#: Units of a head that fit each placement with few blocks.
DIMS = {BLOCK: 64, CLUSTER: 128, GRID: 128}
#: Units of a head among which one is looked for that the model puts into a placement by itself.
USUAL_DIMS = (64, 128, 256, 512, 768, 1024, 2048)
#: Ragged sizes: tiles that are not full, and more than one head.
BATCH, TIME, HEADS = 11, 6, 2
BROKEN = CudaSource(
    'extern "C" __global__ void past_the_end(int* out, int size) { out[size + threadIdx.x] = 1; }', "past_the_end"
)


def gpu_here() -> GpuModel:
    """The model of the current GPU."""
    gpu = gpu_of(torch.device("cuda"))
    assert gpu is not None, "the GPU has no hardware model"
    return gpu


def config_in(gpu: GpuModel, spec: RnnSpec, workload: Workload, placement: int) -> Config:
    """The best configuration of a placement."""
    return choose_kernel(spec, gpu, spec.planned(workload), fixed={"placement": placement, "recompute": 0}).config


def streaming(config: Config) -> Config:
    """The same with weights in registers, in shared memory and in global memory, as a head has that fits no chip."""
    return {**config, "warps_depth": 1, "register_pairs": 1, "streamed_pairs": 2}


@cache
def usual_dims(gpu: str) -> dict[int, int]:
    """Units of a head of an LSTM in bf16 whose training the model puts into a placement, in both directions."""
    found: dict[int, int] = {}
    for dim in USUAL_DIMS:
        asked = workload_of("lstm", (16, 1024, 1, dim), "bf16")
        planned = decide_layer(asked, load_gpu(gpu), tuple(SUFFIX), projected=True)
        steps = planned.program_of("cuda").steps
        placements = {step.config.get("placement") for step in steps}
        if len(placements) == 1:
            found.setdefault(int(placements.pop() or 0), dim)
    return found


class PlacedLayer:
    """One direction of a layer with random operands, its launches, and what its outputs have to be.

    Args:
        cell: A key of `CELLS`.
        direction: "forward" or "backward".
        placement: Where its blocks are.
        gpu: The model of the current GPU.
        time: Steps.
        streams: Whether some of its weights are read again in every step.
    """

    def __init__(
        self, cell: str, direction: str, placement: int, gpu: GpuModel, *, time: int = TIME, streams: bool = False
    ) -> None:
        self.workload = workload_of(cell, (BATCH, time, HEADS, DIMS[placement]), "bf16", direction)
        self.spec = load_spec(f"{self.workload.operation}.cuda")
        assert isinstance(self.spec, RnnSpec)
        self._given = operands(gpu, self.spec, self.workload)
        config = config_in(gpu, self.spec, self.workload, placement)
        config = streaming(config) if streams else config
        inputs = {name: tensor.cuda() for name, tensor in self._given.items()}
        self.outputs = self.spec.outputs(gpu, self.workload, inputs)
        self.launches = self.spec.launches(gpu, self.workload, config, inputs, self.outputs)

    def run(self) -> dict[str, Tensor]:
        """Outputs, which were poisoned before."""
        poison(self.outputs)
        for launch in self.launches:
            launch.run()
        return self.outputs

    def error(self) -> float:
        """The largest error of the outputs over what rounding explains; 1 or less is right."""
        tolerance = Tolerance.of(self.spec, self.workload)
        exact = self.spec.reference(self.workload, self._given)
        return max(error_over_bound(self.outputs[name].cpu(), value, tolerance) for name, value in exact.items())


def operands(gpu: GpuModel, spec: RnnSpec, workload: Workload) -> dict[str, Tensor]:
    """Operands on the CPU, so that no kernel but ours runs on the GPU: with initial states, lengths and resets."""
    cell, generator = spec.cell, torch.Generator().manual_seed(0)
    inputs: dict[str, Tensor] = spec.inputs(gpu, workload, device="cpu")
    wx, r, bias = (inputs[name] for name in ("wx", "r", "bias"))
    batch, time, _, heads, dim = wx.shape
    initial = 0.5 * torch.randn((cell.num_states, batch, heads, dim), generator=generator)
    if cell.num_states > 2:
        initial[2] = initial[2].abs() + 1
    lengths = torch.randint(0, time + 1, (batch,), generator=generator, dtype=torch.int32)
    reset = (torch.rand((batch, time), generator=generator) < 0.2).to(torch.int32)
    rows = torch.argsort(lengths, descending=True, stable=True).to(torch.int32)
    inputs |= {"initial": initial, "lengths": lengths, "reset": reset, "rows": rows}
    if spec.direction == "backward":
        states, _ = rnn_reference(cell.name, wx, r, bias, initial, lengths=lengths, reset=reset.bool())
        before = states_before(states[0], initial, reset)
        inputs |= {"states": states, "saved": recompute_gates(cell, wx, r, bias, before)}
    return inputs


def check_all() -> None:
    """Run each placement in both directions and print how far off it is."""
    gpu, wrong = gpu_here(), 0
    for name, placement in PLACEMENTS.items():
        for direction in SUFFIX:
            layer = PlacedLayer("lstm", direction, placement, gpu)
            layer.run()
            error = layer.error()
            wrong += not error <= 1.0
            print(f"{name} {direction}: error {error:.2f} of the bound", flush=True)
    sys.exit(wrong)


def write_past_the_end() -> None:
    """Launch what a sanitizer has to report."""
    out: Any = torch.zeros(64, dtype=torch.int32, device="cuda")
    CudaLaunch(gpu_here(), BROKEN, (1,), (32,), (out, np.int32(64))).run()
    torch.cuda.synchronize()


if __name__ == "__main__":
    write_past_the_end() if sys.argv[1:] == ["broken"] else check_all()
