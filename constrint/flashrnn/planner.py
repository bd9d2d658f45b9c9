"""Which back-end runs a recurrent layer, with which configuration, and why: for a named GPU, or for a device here.

`plan` needs no device, and no torch for a named GPU. Every candidate makes an offer, a predicted time or a reason why
it cannot; the least time wins. A further back-end (CUDA C++, say) registers with the operator and adds its offer to
`OFFERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from constrint.errors import ConstrintError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, load_gpu, roofline
from constrint.kernels.rnn.cells import CELLS, Cell
from constrint.kernels.rnn.planned import PLANNED_TIME, planned_batch

if TYPE_CHECKING:
    from torch import Tensor

    from constrint.kernels.rnn.op import RnnInputs

DTYPES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp64": 8}
TORCH_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
#: Head dimensions of the fused kernels are padded to multiples of this.
MULTIPLE = 16
#: Time of one of the two kernels of an alternating step, and bytes of device memory that a gate of a unit moves in a
#: step, copies included: fitted on one H200 (`benchmarks/results/h200/rnn.csv`: LSTM in bf16, B 16 to 256, 64 to 2048
#: units per head, within 30 %); for other GPUs the time is assumed.
NODE_S = {"forward": 2.15e-6, "backward": 3.8e-6}
GATE_BYTES = {"forward": 45.0, "backward": 90.0}


@dataclass(frozen=True)
class Layer:
    """What is to be run: (batch, time, heads, head_dim) of a cell in a dtype."""

    cell: str
    batch: int
    time: int
    heads: int
    head_dim: int
    dtype: str

    @property
    def kind(self) -> Cell:
        """The cell's gates and states."""
        return CELLS[self.cell]

    def __str__(self) -> str:
        """Render as `lstm batch=16 time=1024 heads=12 head_dim=64 bf16`."""
        sizes = f"batch={self.batch} time={self.time} heads={self.heads} head_dim={self.head_dim}"
        return f"{self.cell} {sizes} {self.dtype}"


@dataclass(frozen=True)
class Offer:
    """What a back-end says to a layer.

    Args:
        backend: Its name.
        refusal: Why it cannot run the layer; empty if it can.
        seconds: Predicted time by direction; empty where nothing is predicted.
        configs: Kernel configuration by direction; empty where there is nothing to configure.
        note: What its prediction rests on, or what it does to the layer.
    """

    backend: str
    refusal: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    note: str = ""

    @property
    def total_s(self) -> float:
        """Predicted time of all directions."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class RnnPlan:
    """The chosen back-end for a layer, beside what the others offered; times are modelled, not measured.

    Args:
        layer: What is to be run.
        target: The GPU's model name, or `cpu`.
        chosen: The offer that is taken.
        why: Why that one.
        others: The offers that are not.
    """

    layer: Layer
    target: str
    chosen: Offer
    why: str
    others: tuple[Offer, ...]

    @property
    def backend(self) -> str:
        """Name of the chosen back-end."""
        return self.chosen.backend

    def __str__(self) -> str:
        """Render back-end, configuration, reason and predicted time, one line each."""
        lines = [f"{self.layer} on {self.target}: {self.backend}", f"  why: {self.why}"]
        lines += _lines(self.chosen, "  ")
        for other in self.others:
            lines.append(f"  not {other.backend}: {other.refusal or _times(other)}")
        return "\n".join(line.replace("\n", "\n    ") for line in lines)


def _times(offer: Offer) -> str:
    if not offer.seconds:
        return "no prediction"
    parts = ", ".join(f"{direction} {1e3 * seconds:.3g} ms" for direction, seconds in offer.seconds.items())
    return f"modelled {parts}"


def _lines(offer: Offer, indent: str) -> list[str]:
    lines = [f"{indent}time: {_times(offer)}"]
    for direction, config in offer.configs.items():
        lines.append(f"{indent}{direction}: {' '.join(f'{name}={value}' for name, value in config.items())}")
    return [*lines, f"{indent}note: {offer.note}"] if offer.note else lines


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
    layer = Layer(cell, batch, time, heads, head_dim, _dtype_name(dtype))
    directions = ("forward", "backward") if training else ("forward",)
    if gpu is not None:
        return _plan_for(layer, load_gpu(gpu).name, directions)
    return plan_on(layer, device, directions)


def _dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    name = TORCH_NAMES.get(name, name)
    if name not in DTYPES:
        raise UnknownNameError("dtype", name, [*DTYPES, *TORCH_NAMES])
    return name


def plan_on(layer: Layer, device: Any, directions: tuple[str, ...]) -> RnnPlan:
    """The plan for a torch device of this machine; None is the current GPU, or the CPU where there is none."""
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type != "cuda":
        refusal = f"the fused kernels need a GPU, the device is {device.type}"
        return RnnPlan(
            layer, device.type, Offer("alternating"), "the only fast one without a GPU", (Offer("triton", refusal),)
        )
    if find_spec("triton") is None:
        refusal = "triton is not installed (pip install constrint[torch])"
        return RnnPlan(layer, str(device), Offer("alternating"), "it needs no triton", (Offer("triton", refusal),))
    from constrint.kernels.rnn.launch import device_model

    try:
        return _plan_for(layer, device_model(device).name, directions)
    except UnknownNameError as error:
        refusal = f"no configuration without a model of the GPU: {error}"
        return RnnPlan(layer, str(device), Offer("alternating"), "it needs no GPU model", (Offer("triton", refusal),))


@lru_cache(maxsize=256)
def _plan_for(layer: Layer, name: str, directions: tuple[str, ...]) -> RnnPlan:
    """The offer of the least predicted time."""
    gpu = load_gpu(name)
    offers = [offer(layer, gpu, directions) for offer in OFFERS.values()]
    able = sorted((offer for offer in offers if not offer.refusal), key=lambda offer: offer.total_s)
    chosen = able[0]
    others = tuple(offer for offer in offers if offer is not chosen)
    why = "the least predicted time" if len(able) > 1 else "the only one that can"
    return RnnPlan(layer, gpu.name, chosen, why, others)


def _offer_triton(layer: Layer, gpu: GpuModel, directions: tuple[str, ...]) -> Offer:
    from constrint.kernels.rnn.spec import best_config, predict_s, recompute_pays, workload_of

    dim = -(-layer.head_dim // MULTIPLE) * MULTIPLE
    sizes = (layer.batch, layer.time, layer.heads, dim)
    planned = (planned_batch(layer.batch), PLANNED_TIME, layer.heads, dim)
    configs, seconds = {}, {}
    try:
        trains = "backward" in directions
        again = recompute_pays(gpu, layer.cell, planned, layer.dtype) if trains else True
        for direction in directions:
            config = best_config(gpu, layer.cell, planned, layer.dtype, direction, recompute=again)
            configs[direction] = config
            seconds[direction] = predict_s(gpu, workload_of(layer.cell, sizes, layer.dtype, direction), config)
    except ConstrintError as error:
        return Offer("triton", refusal=str(error))
    note = "" if dim == layer.head_dim else f"heads are padded from {layer.head_dim} to {dim} units"
    return Offer("triton", seconds=seconds, configs=configs, note=note)


def _offer_alternating(layer: Layer, gpu: GpuModel, directions: tuple[str, ...]) -> Offer:
    """Two dependent kernels a step; each step reads the weights again, from the L2 if they fit."""
    weights = layer.kind.num_gates * layer.heads * layer.head_dim**2 * DTYPES[layer.dtype]
    try:
        peaks = roofline(gpu, layer.dtype)
    except ConstrintError:
        peaks = roofline(gpu, "fp32")
    bandwidths = peaks.bandwidth_bytes_per_s
    level = "l2" if bandwidths.get("l2") and weights <= (gpu.memory.l2.size_bytes or 0) else "dram"
    flop = 2.0 * layer.batch * weights / DTYPES[layer.dtype]
    product_s = max(weights / (bandwidths[level] or 1e12), flop / peaks.peak_flop_per_s)
    gates = layer.batch * layer.kind.num_gates * layer.heads * layer.head_dim
    wide = DTYPES[layer.dtype] / 2  # GATE_BYTES is for 16 bits
    seconds = {
        direction: layer.time
        * (2 * NODE_S[direction] + product_s + gates * wide * GATE_BYTES[direction] / (bandwidths["dram"] or 1e12))
        for direction in directions
    }
    if "backward" in directions:
        # The weight gradient is one product over all steps.
        seconds["backward"] += layer.time * flop / peaks.peak_flop_per_s
    times = ", ".join(f"{1e6 * NODE_S[direction]:.1f} us {direction}" for direction in directions)
    note = f"two kernels a step in a CUDA graph, {times} each (fitted on an H200), and the weights read in every step"
    return Offer("alternating", seconds=seconds, note=note)


#: Every back-end that `auto` can be, in order of preference among equals.
OFFERS: dict[str, Callable[[Layer, GpuModel, tuple[str, ...]], Offer]] = {
    "triton": _offer_triton,
    "alternating": _offer_alternating,
}


def choose_backend(inputs: RnnInputs) -> str:
    """What `auto` is for an operator's inputs."""
    wx = inputs.wx
    if not _can_fuse(wx):
        return "alternating"
    return _plan_of(inputs.cell, wx).backend


def saves_gates(cell: str, wx: Tensor, backend: str) -> bool:
    """Whether training stores pre-activations: yes, unless the fused kernels are predicted to recompute them faster."""
    if backend not in ("auto", "triton") or not _can_fuse(wx):
        return True
    chosen = _plan_of(cell, wx).chosen
    return chosen.backend != "triton" or not chosen.configs["forward"]["recompute"]


def _can_fuse(wx: Tensor) -> bool:
    return wx.device.type == "cuda" and find_spec("triton") is not None


def _plan_of(cell: str, wx: Tensor) -> RnnPlan:
    """The plan for an operator's input; cached, the same for all T and for every B up to the next power of two."""
    from constrint.kernels.rnn.launch import precision_name

    batch, _, _, heads, dim = wx.shape
    dtype = "fp64" if wx.element_size() == 8 else precision_name(wx.dtype)
    rounded = 1 << max(batch - 1, 0).bit_length()
    return _plan_here(Layer(cell, rounded, PLANNED_TIME, heads, dim, dtype), wx.device)


@lru_cache(maxsize=1024)
def _plan_here(layer: Layer, device: Any) -> RnnPlan:
    return plan_on(layer, device, ("forward", "backward"))
