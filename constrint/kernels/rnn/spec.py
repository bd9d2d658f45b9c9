"""What all implementations of a recurrent layer share: its sizes, its data, and what they say to a layer.

Each direction of a cell is an operation of its own: `lstm`, `lstm-backward`. An implementation is a subclass in a
folder beside this file, with its own parameters, rules and cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import Cell
from constrint.kernels.rnn.measured import Between
from constrint.select.candidate import Config
from constrint.select.rank import predict
from constrint.select.spec import KernelSpec
from constrint.select.workload import ELEMENT_BYTES, Size, Workload

if TYPE_CHECKING:
    import torch

    from constrint.kernels.rnn.interface import RnnBackend

#: What follows a cell's name in the name of an operation.
SUFFIX = {"forward": "", "backward": "-backward"}
#: The largest of a million normally distributed errors, in standard deviations.
LARGEST_OF_MANY = 5.3
SIZES = (
    Size("batch", 16, "sequences"),
    Size("time", 1024, "steps of each sequence"),
    Size("heads", 12, "heads, which do not see each other"),
    Size("head_dim", 64, "units of a head"),
)


class RnnSpec(KernelSpec):
    """One implementation of one direction of a recurrent layer.

    Forward it computes the states of all steps from projected inputs, backward the gradients of both.

    Args:
        cell: The cell.
        direction: "forward" or "backward".
    """

    sizes = SIZES
    #: For sums and steps together: after 13 steps on an H200 errors were under a third of what this allows.
    num_roundings = 8
    #: How it computes, in a phrase.
    how: str
    #: Whether the forward pass may leave pre-activations to be computed again: parameter `recompute`.
    may_recompute = False

    def __init__(self, cell: Cell, direction: str) -> None:
        self.cell, self.direction = cell, direction
        self.operation = cell.name + SUFFIX[direction]
        self.summary = f"{cell.name.upper()} over time, {direction}, {self.how}"

    def default_workload(self, gpu: GpuModel) -> Workload:
        """In bf16, or in fp16 on a GPU without units for bf16."""
        sizes = {size.name: size.default for size in self.sizes}
        return Workload(self.operation, sizes, "bf16" if gpu.matrix_shapes("bf16") else "fp16")

    def check_memory(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse what the GPU's memory cannot hold."""
        batch, time, heads, dim = (workload.sizes[name] for name in self.size_names)
        rows = batch * time * heads * dim * ELEMENT_BYTES[workload.dtype]
        gates = self.cell.num_gates * (2 if self.direction == "backward" else 1)
        needed, there = rows * (gates + self.cell.num_states), gpu.memory.dram.size_bytes
        if needed > there:
            raise InfeasibleError(
                f"{workload} does not fit {gpu.name}: inputs, states and gates take {needed / 1e9:,.1f} GB, "
                f"the device has {there / 1e9:,.1f} GB. Split the batch or choose a larger GPU."
            )

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes that all steps read and write, where pre-activations are not stored."""
        batch, time, heads, dim = (workload.sizes[name] for name in self.size_names)
        rows = batch * time * heads * dim * ELEMENT_BYTES[workload.dtype]
        written = self.cell.num_states if self.direction == "forward" else self.cell.num_slots
        return rows * (self.cell.num_loads(self.direction) + written)

    def roundings(self, workload: Workload) -> float:
        """Those of `num_roundings`; with exponential gates one for each step, which add up like a random walk.

        An exponential turns the error of its gate into a relative error of the states, and these forget little. After T
        steps, or T there and T back, the errors have a spread of as many roundings as the root of their number, and the
        largest of a million is 5.3 times as large.
        """
        steps = workload.sizes["time"] * (2 if self.direction == "backward" else 1)
        return max(self.num_roundings, LARGEST_OF_MANY * steps**0.5) if self.cell.is_exponential else self.num_roundings

    def num_operations(self, workload: Workload) -> int:
        """Those of the products with the recurrent weights: 2 x batch x time x heads x gates x head_dim^2."""
        batch, time, heads, dim = (workload.sizes[name] for name in self.size_names)
        return 2 * batch * time * heads * self.cell.num_gates * dim * dim

    def unusual_inputs(self, workload: Workload, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Inputs that saturate gates (forward), are mostly zero, or tiny; gradients that are mostly zero (backward)."""
        if "wx" not in inputs:
            return dict(inputs)
        from constrint.kernels.rnn.tensors import unusual_inputs

        return unusual_inputs(self.cell, self.direction, inputs, number)

    # What an implementation says to a layer whose operator calls it.

    def measured(self, gpu: GpuModel, workload: Workload) -> Between | None:
        """Time of a whole layer with all that runs around its loop, where it was measured; else it is predicted."""
        return None

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """Why it cannot run on a torch device, whose model is `gpu` if there is one; empty if it can."""
        return ""

    def run_as(self, workload: Workload) -> Workload:
        """The workload that is run in the place of one, padded perhaps."""
        return workload

    def planned(self, workload: Workload) -> Workload:
        """The workload whose configuration is chosen for one: few of them, so that few kernels are compiled."""
        return self.run_as(workload)

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """What its prediction rests on, or what it does to the layer."""
        return ""

    def backend(self) -> RnnBackend:
        """The code that runs it; imports torch."""
        raise NotImplementedError


def workload_of(cell: str, sizes: tuple[int, int, int, int], dtype: str, direction: str = "forward") -> Workload:
    """The workload of a layer with sizes (batch, time, heads, head_dim)."""
    names = (size.name for size in SIZES)
    return Workload(cell + SUFFIX[direction], dict(zip(names, sizes, strict=True)), dtype)


def with_sizes(workload: Workload, **sizes: int) -> Workload:
    """The same workload with other sizes."""
    return replace(workload, sizes={**workload.sizes, **sizes})


def predict_s(spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Config) -> float:
    """Predicted seconds of one configuration."""
    columns = {name: np.array([value]) for name, value in config.items()}
    return float(predict(spec, gpu, workload, columns).seconds[0])
