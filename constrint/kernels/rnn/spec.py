"""Base classes of the implementations of a recurrent layer.

Each direction of a cell is an operation of its own: `lstm`, `lstm-backward`. An implementation is a subclass in a
folder beside this file, with its own parameters, rules and cost. `FusedSpec` is the base of implementations whose time
loop is one kernel, `NvrtcSpec` of those of them in CUDA C++.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.select.candidate import Config
from constrint.select.cost import LAUNCH_S
from constrint.select.rank import predict
from constrint.select.spec import Columns, KernelSpec
from constrint.select.workload import ELEMENT_BYTES, Size, Workload

if TYPE_CHECKING:
    import torch

    from constrint.kernels.rnn.interface import RnnBackend

#: Suffix of an operation's name after the cell's, by direction.
SUFFIX = {"forward": "", "backward": "-backward"}
#: Largest of a million normally distributed errors, in standard deviations.
LARGEST_OF_MANY = 5.3
SIZES = (
    Size("batch", 16, "sequences"),
    Size("time", 1024, "steps of each sequence"),
    Size("heads", 12, "heads, which do not see each other"),
    Size("head_dim", 64, "units of a head"),
)


class RnnSpec(KernelSpec):
    """One implementation of one direction of a recurrent layer.

    Forward computes the states of all steps from projected inputs, backward the gradients of both.

    Args:
        cell: The cell.
        direction: "forward" or "backward".

    Attributes:
        how: The method, in a phrase.
        step_language: The language in which the cell's step is written out: "cuda" or "triton"; empty for a library.
        may_recompute: Whether the forward pass may leave pre-activations to be recomputed: parameter `recompute`.
        backward_by: For an implementation of the forward pass alone, the implementation whose backward pass follows.
            Every implementation saves the same tensors (`ForwardOutputs`), so any backward pass can follow.
        forward_by: For an implementation of the backward pass alone, the implementation whose forward pass it follows.
        projects: Whether it takes inputs as a module gets them and projects them itself, so that modules alone run it.
            Its predicted time leaves the projection out, which takes the same time in every implementation.
    """

    sizes = SIZES
    #: For sums and steps together: after 13 steps on an H200 errors were under a third of this bound.
    num_roundings = 8
    how: str
    step_language = ""
    may_recompute = False
    backward_by = ""
    forward_by = ""
    projects = False

    def __init__(self, cell: RecurrentCell, direction: str) -> None:
        self.cell, self.direction = cell, direction
        self.operation = cell.name + SUFFIX[direction]
        self.summary = f"{cell.name.upper()} over time, {direction}, {self.how}"

    @property
    def text_key(self) -> str:
        """The cell and the direction, on which the text of a step depends."""
        return f"{self.cell.name} {self.direction}" if self.step_language else ""

    def device_texts(self) -> Sequence[str]:
        """The cell's step."""
        if self.step_language == "cuda":
            from constrint.kernels.rnn.generated.cuda import cuda_step_texts

            return cuda_step_texts(self.cell.step, self.direction)
        if self.step_language == "triton":
            from constrint.kernels.rnn.generated.triton import triton_step_texts

            return triton_step_texts(self.cell.step, self.direction)
        return ()

    def default_workload(self, gpu: GpuModel) -> Workload:
        """In bf16, or in fp16 on a GPU without units for bf16."""
        sizes = {size.name: size.default for size in self.sizes}
        return Workload(self.operation, sizes, "bf16" if gpu.matrix_shapes("bf16") else "fp16")

    def check_memory(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise for a layer that the GPU's memory cannot hold."""
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
        """Roundings of the result: `num_roundings`; with exponential gates one per step, adding up like a random walk.

        An exponential turns the error of its gate into a relative error of the states, and these forget little. After T
        steps, or T there and T back, the errors spread by the root of the number of roundings, and the
        largest of a million is 5.3 times as large.
        """
        steps = workload.sizes["time"] * (2 if self.direction == "backward" else 1)
        return max(self.num_roundings, LARGEST_OF_MANY * steps**0.5) if self.cell.is_exponential else self.num_roundings

    def num_operations(self, workload: Workload) -> int:
        """Operations of the products with the recurrent weights: 2 x batch x time x heads x gates x head_dim^2."""
        batch, time, heads, dim = (workload.sizes[name] for name in self.size_names)
        return 2 * batch * time * heads * self.cell.num_gates * dim * dim

    def unusual_inputs(self, workload: Workload, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Inputs that saturate gates (forward), are mostly zero, or tiny; gradients that are mostly zero (backward)."""
        if "wx" not in inputs:
            return dict(inputs)
        from constrint.kernels.rnn.tensors import unusual_inputs

        return unusual_inputs(self.cell, self.direction, inputs, number)

    # Facts for the choice of an implementation.

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """Why it cannot run on a torch device, whose model is `gpu` if there is one; empty if it can."""
        return ""

    def uncalibrated(self) -> str:
        """Why `auto` does not take it, where its predicted times rest on no measurement; empty if it may."""
        return ""

    def left_out_errors(self) -> tuple[float, float] | None:
        """Median and nine-in-ten error of its predicted times, as shares, where `auto` adds the median to them."""
        return None

    def run_as(self, workload: Workload) -> Workload:
        """The workload that runs in the place of `workload`: with padded heads, perhaps."""
        return workload

    def planned(self, workload: Workload) -> Workload:
        """The workload whose configuration is chosen for `workload`: one of few, so that few kernels are compiled."""
        return self.run_as(workload)

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """A remark for people: the basis of its prediction, or a change of the layer."""
        return ""

    def backend(self) -> RnnBackend:
        """The code that runs it; imports torch."""
        raise NotImplementedError

    @property
    def modules_alone(self) -> str:
        """Error message for projected inputs, where it projects its inputs itself."""
        return (
            f"backend {self.name!r} projects its inputs itself, so it runs in the modules LSTM, GRU and RNN alone. Use "
            "'auto' with projected inputs."
        )


class FusedSpec(RnnSpec):
    """One direction of a layer whose time loop is one kernel.

    Attributes:
        kernels: The kernels, as error messages call them.
        max_head_dim: Largest head dimension.
        planned_batches: Batch sizes that configurations are chosen for.
        usual_heads: Heads and units of each that are tuned by default.
    """

    kernels: str
    may_recompute = True
    max_head_dim: int
    planned_batches: tuple[int, ...]
    usual_heads: tuple[tuple[int, int], ...] = ((1, 256), (1, 512), (1, 1024), (12, 64))
    #: Steps that a configuration is chosen for: from a few dozen steps on, the choice does not depend on their number.
    planned_time = 1024
    #: Most steps that a candidate is checked over: rounding grows with them, and the code of a step is the same.
    checked_time = 32

    @abstractmethod
    def padded_dim(self, head_dim: int, dtype: str) -> int:
        """The least head dimension of at least `head_dim` units that the kernel takes."""

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse unknown sizes and dtypes, head dimensions that the kernel does not take, and too much memory."""
        super().check_workload(gpu, workload)
        dim, padded = workload.sizes["head_dim"], self._padded(workload)
        if dim != padded or dim > self.max_head_dim:
            fit = f"Pad each head to {padded}" if padded <= self.max_head_dim else "Split it into several heads"
            raise UsageError(
                f"head_dim must be a multiple of {self._multiple(workload.dtype)} up to {self.max_head_dim}, got "
                f"{dim}. {fit}, or use the back-end 'alternating', which takes any size."
            )

    def _multiple(self, dtype: str) -> str:
        return str(self.padded_dim(1, dtype))

    def _padded(self, workload: Workload) -> int:
        return self.padded_dim(workload.sizes["head_dim"], workload.dtype)

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """The kernel needs a GPU with a model, and Triton, if only for the copies at a sequence's edges."""
        if device.type != "cuda":
            return f"{self.kernels} need a GPU, the device is {device.type}"
        if gpu is None:
            return "no configuration without a model of the GPU"
        return "" if find_spec("triton") else "triton is not installed (pip install constrint[torch])"

    def run_as(self, workload: Workload) -> Workload:
        """With padded heads."""
        return with_sizes(workload, head_dim=self._padded(workload))

    def planned_batch(self, batch: int) -> int:
        """The batch size whose configuration `batch` sequences run with."""
        return next((size for size in self.planned_batches if batch <= size), self.planned_batches[-1])

    def planned(self, workload: Workload) -> Workload:
        """With padded heads, `planned_batch` sequences and `planned_time` steps."""
        batch = self.planned_batch(workload.sizes["batch"])
        return with_sizes(self.run_as(workload), batch=batch, time=self.planned_time)

    def bucket(self, workload: Workload) -> Workload:
        """The same as `planned`: one tuning serves all workloads of one choice."""
        return self.planned(workload)

    def ways(self, workload: Workload) -> tuple[dict[str, int], ...]:
        """Both values of `recompute`, which forward and backward have in common."""
        return tuple({"recompute": value} for value in (0, 1))

    def checked_as(self, workload: Workload) -> Workload:
        """The workload with no more than `checked_time` steps."""
        return with_sizes(workload, time=min(workload.sizes["time"], self.checked_time))

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Layers of `usual_heads`."""
        usual = self.default_workload(gpu)
        for heads, dim in self.usual_heads:
            yield self.bucket(with_sizes(usual, heads=heads, head_dim=dim))

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """Whether heads are padded, and which implementation runs the backward pass where it is another."""
        dim, padded = workload.sizes["head_dim"], self._padded(workload)
        notes = [] if dim == padded else [f"heads are padded from {dim} to {padded} units"]
        if self.backward_by and "backward" in directions:
            notes.append(f"the backward pass is that of {self.backward_by}")
        return "; ".join(notes)

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """Inputs of a layer with bias; backward also the saved tensors and the gradient of h."""
        from constrint.kernels.rnn.tensors import make_inputs

        return make_inputs(self.cell, self.direction, workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States and pre-activations; or gradients of the slots (those of wx among them) and of the initial states."""
        from constrint.kernels.rnn.tensors import make_outputs

        return make_outputs(self.cell, self.direction, inputs["wx"])

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States, or gradients of wx and of the initial states, in fp64."""
        from constrint.kernels.rnn.tensors import exact_outputs

        return exact_outputs(self.cell, self.direction, inputs)


class NvrtcSpec(FusedSpec):
    """A time loop in CUDA C++, compiled by NVRTC."""

    kernels = "the CUDA kernels"
    step_language = "cuda"

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC's version."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """Why it cannot run: beside the conditions of every fused kernel it needs NVRTC; empty if it can."""
        from constrint.kernels.launch.cuda import obstacle

        return super().refusal_on(device, gpu) or obstacle()

    def compiled_as(self, workload: Workload) -> Workload:
        """One sequence, step and head: these sizes are values of the run."""
        return with_sizes(workload, batch=1, time=1, heads=1)


def workload_of(cell: str, sizes: tuple[int, int, int, int], dtype: str, direction: str = "forward") -> Workload:
    """The workload of one direction of a layer with sizes (batch, time, heads, head_dim)."""
    names = (size.name for size in SIZES)
    return Workload(cell + SUFFIX[direction], dict(zip(names, sizes, strict=True)), dtype)


def with_sizes(workload: Workload, **sizes: int) -> Workload:
    """The same workload with other sizes."""
    return replace(workload, sizes={**workload.sizes, **sizes})


def row_bytes(workload: Workload) -> float:
    """Bytes of one tensor (B, T, N, D)."""
    return float(np.prod([float(size) for size in workload.sizes.values()])) * ELEMENT_BYTES[workload.dtype]


def after_s(gpu: GpuModel, cell: RecurrentCell, workload: Workload, columns: Columns) -> NDArray[np.float64]:
    """Seconds before and after a backward loop: gates that are computed again, sums, gradients of the weights."""
    recompute = np.asarray(columns["recompute"], dtype=np.float64)
    moved = row_bytes(workload) * (2.0 * cell.num_slots + 4.0 + recompute * 5.0 * cell.num_gates)
    return np.asarray(moved / (0.5 * gpu.memory.dram.bandwidth_bytes_per_s) + 10.0 * LAUNCH_S)


def predict_s(spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Config) -> float:
    """Predicted seconds of one configuration."""
    columns = {name: np.array([value]) for name, value in config.items()}
    return float(predict(spec, gpu, workload, columns).seconds[0])
