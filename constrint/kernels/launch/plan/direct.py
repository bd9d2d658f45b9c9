"""Plans without the compiled core, or for a torch that the core cannot read: compiled kernels, launched from Python.

A table in Python replaces that of the core, and Triton's launcher or cuda-bindings replace its launches. Triton's
inspection of every argument is still saved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from constrint.kernels.launch.cuda.tensor_map import TensorMap
from constrint.kernels.launch.fill import fill_words
from constrint.kernels.launch.plan.arguments import Factor
from constrint.kernels.launch.plan.scratch import COUNTERS

#: Returns the slot of an address, and the offset in bytes.
Locate = Callable[[int], tuple[int, int]]
#: Types of tensors without overrides of their own.
PLAIN_TYPES = (Tensor, torch.nn.Parameter)
#: Loads and choices depend on addresses modulo this number of bytes alone.
ADDRESS_STEP = 128


@dataclass(frozen=True)
class Address:
    """Stand-in for a tensor of which only the address is needed."""

    address: int

    def data_ptr(self) -> int:
        """The address."""
        return self.address


@dataclass(frozen=True)
class Descriptor:
    """Stand-in for a tensor descriptor, with another base."""

    base: Address
    shape: Sequence[int]
    strides: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False


class DirectStep(Protocol):
    """One step of a call."""

    def run(self, tensors: Sequence[Any], addresses: Sequence[int]) -> None:
        """Enqueue the step on the current stream, given the tensors and the addresses of all slots."""


@dataclass(frozen=True)
class DirectFill:
    """Words of four bytes of a slot's tensor that all become `value`, from `shift` bytes on."""

    slot: int
    shift: int
    words: int
    value: int

    def run(self, tensors: Sequence[Any], addresses: Sequence[int]) -> None:
        """See `DirectStep.run`."""
        if self.words:
            fill_words(tensors[self.slot], self.shift, self.words, self.value)


@dataclass(frozen=True)
class DirectCuda:
    """A launch of a kernel in CUDA C++.

    Args:
        launch: The `CudaLaunch` of the first call.
        places: Its arguments that are addresses: place -> slot and bytes into it.
    """

    launch: Any
    places: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, launch: Any, locate: Locate) -> DirectCuda:
        """Load the kernel of a launch; keep the slots of its tensors instead of the tensors.

        Raises:
            DoesNotFitError: When it does not fit the device.
            NotPlannedError: When a tensor belongs to no slot.
        """
        launch.check_resident()
        given = enumerate(launch.arguments)
        places = {
            place: locate(value.data_ptr())
            for place, value in given
            if isinstance(value, TensorMap) or (isinstance(value, Tensor) and value.numel())
        }
        without_tensors = tuple(_without_tensor(value) for value in launch.arguments)
        return cls(replace(launch, arguments=without_tensors), places)

    def run(self, tensors: Sequence[Any], addresses: Sequence[int]) -> None:
        """See `DirectStep.run`."""
        values = list(self.launch.arguments)
        for place, (slot, shift) in self.places.items():
            address, seen = Address(addresses[slot] + shift), values[place]
            values[place] = replace(seen, tensor=address) if isinstance(seen, TensorMap) else address
        self.launch.enqueue(values)


def _without_tensor(value: Any) -> Any:
    """Return an argument that keeps no memory alive."""
    if isinstance(value, TensorMap):
        return replace(value, tensor=Address(0))
    return None if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class DirectLaunch:
    """A launch of one of Triton's compiled kernels.

    Args:
        kernel: Triton's CompiledKernel.
        grid: Blocks along each grid dimension.
        values: Every argument, in order.
        places: The arguments that are addresses or descriptors: place -> slot and bytes into it.
        factors: The arguments that every call gives anew: place -> slot.
    """

    kernel: Any
    grid: tuple[int, int, int]
    values: tuple[Any, ...]
    places: Mapping[int, tuple[int, int]]
    factors: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: Any, grid: tuple[int, ...], values: Mapping[str, Any], locate: Locate) -> DirectLaunch:
        """The launch of a compiled kernel with these arguments by name.

        Raises:
            NotPlannedError: When an address belongs to no slot.
        """
        places: dict[int, tuple[int, int]] = {}
        fixed: list[Any] = []
        factors: dict[int, int] = {}
        for place, name in enumerate(kernel.src.signature):
            value = values[name]
            if isinstance(value, Factor):
                factors[place] = value.slot
            if isinstance(value, Tensor):
                places[place] = locate(value.data_ptr())
                value = None
            elif hasattr(value, "block_shape"):
                places[place] = locate(value.base.data_ptr())
                padding = str(getattr(value, "padding", "zero"))
                value = Descriptor(Address(0), list(value.shape), list(value.strides), padding)
            fixed.append(value)
        whole = (*grid, 1, 1)[:3]
        return cls(kernel, (whole[0], whole[1], whole[2]), tuple(fixed), places, factors)

    def run(self, tensors: Sequence[Any], addresses: Sequence[int]) -> None:
        """See `DirectStep.run`."""
        values = list(self.values)
        for place, (slot, shift) in self.places.items():
            address = addresses[slot] + shift
            seen = values[place]
            values[place] = address if seen is None else replace(seen, base=Address(address))
        for place, slot in self.factors.items():
            values[place] = tensors[slot]
        self.kernel[self.grid](*values)


@dataclass(frozen=True)
class PlanEntry:
    """A plan of one signature: launches, or a function of the call's tensors; with neither, such calls have no plan."""

    launches: Sequence[DirectStep]
    outputs: tuple[tuple[Any, ...], ...]
    num_results: int
    num_counters: int
    device: int
    function: Callable[..., Any] | None = None


class PlainTable:
    """The core's table in Python; see `table.PlanTable`."""

    def __init__(
        self, capacity: int, listeners: Sequence[Callable[[], Any]], precision: Callable[[], Hashable] | None
    ) -> None:
        self._capacity = capacity
        self._listeners = listeners
        self._precision = precision
        self._entries: OrderedDict[Hashable, PlanEntry] = OrderedDict()
        self._hits = self._misses = 0

    def call(self, is_inner: bool, extra: Hashable, *tensors: Tensor | float | None) -> Any:
        """The results, or `NO_PLAN`, `WANTS_GRAD` or `IS_NEW` of `table.py`."""
        present = [tensor for tensor in tensors if tensor is not None and not isinstance(tensor, float)]
        if not all(type(tensor) in PLAIN_TYPES and tensor.is_cuda and not tensor.is_neg() for tensor in present):
            return None
        if not is_inner:
            if any(listener() for listener in self._listeners):
                return None
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in present):
                return True
        try:
            key = self._key(extra, tensors)
        except RuntimeError:  # no strides, no address: sparse tensors and those of transforms
            return None
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return False
        self._hits += 1
        self._entries.move_to_end(key)
        if entry.function is not None:
            return entry.function(*tensors)
        if not entry.launches or entry.device != torch.cuda.current_device():
            return None
        return _run(entry, tensors)

    def insert(self, extra: Hashable, tensors: tuple[Tensor | float | None, ...], entry: PlanEntry) -> None:
        """Store the plan of a signature."""
        self._entries[self._key(extra, tensors)] = entry
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Drop all plans."""
        self._entries.clear()

    def state(self) -> tuple[int, int, int]:
        """Entries, hits, misses."""
        return len(self._entries), self._hits, self._misses

    def _key(self, extra: Hashable, tensors: tuple[Tensor | float | None, ...]) -> Hashable:
        seen: list[Hashable] = [extra]
        is_wide = False
        for tensor in tensors:
            if tensor is None or isinstance(tensor, float):
                seen.append(None if tensor is None else float)
                continue
            is_wide |= tensor.dtype == torch.float32
            place = tensor.get_device(), tensor.data_ptr() % ADDRESS_STEP
            seen += (tensor.shape, tensor.stride(), tensor.dtype, *place)
        return (*seen, self._precision()) if is_wide and self._precision is not None else tuple(seen)


def _run(entry: PlanEntry, tensors: tuple[Tensor | float | None, ...]) -> Any:
    outputs = [
        torch.empty_strided(shape, strides, dtype=dtype, device="cuda") for shape, strides, dtype in entry.outputs
    ]
    every = (*tensors, *outputs)
    addresses = [tensor.data_ptr() if isinstance(tensor, Tensor) else 0 for tensor in every]
    if entry.num_counters:
        stream = torch.cuda.current_stream().cuda_stream
        addresses.append(COUNTERS.address(entry.device, stream, entry.num_counters))
    for launch in entry.launches:
        launch.run(every, addresses)
    return outputs[0] if entry.num_results == 1 else tuple(outputs[: entry.num_results])
