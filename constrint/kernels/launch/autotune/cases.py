"""What candidates of one call are checked and timed on.

Where the kernel's spec has a reference, that is its own `Case` with fresh inputs. Else it is `CallCase`: copies of the
call's tensors, and what the reference of the call, or the first candidate that runs, makes of them. The call's own
tensors are only read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.autotune.call import Call
from constrint.kernels.launch.autotune.call_space import CallSpec, Reference
from constrint.select.candidate import Config
from constrint.select.spec import KernelSpec, Launch
from constrint.select.workload import Workload
from constrint.tune.check import Tolerance, error_over_bound, is_same, poison


class Checks(Protocol):
    """Data on which configurations are checked."""

    def launches(self, config: Config) -> Sequence[Launch]:
        """What runs one configuration."""

    def check(self, launches: Sequence[Launch]) -> float:
        """The largest error over its bound: right up to 1."""


@dataclass(frozen=True)
class Restored:
    """Names of arguments that a launch of a candidate finds as they were: zero, or as the call gave them."""

    to_zero: tuple[str, ...] = ()
    to_value: tuple[str, ...] = ()


@dataclass(frozen=True)
class CopiedLaunch:
    """One launch of the decorated function on copies of a call's tensors."""

    call: Call
    tensors: Mapping[str, Any]
    values: Mapping[str, Any]

    def run(self) -> None:
        """Enqueue it on the current stream."""
        launch(self.call, self.values, self.tensors)

    def compile(self, gpu: GpuModel) -> Any:
        """A call's own data cannot be compiled for another GPU.

        Raises:
            UsageError: Always; says what does it.
        """
        raise UsageError("compile a configuration by the kernel's `compile`, which takes the call's arguments.")


@dataclass(frozen=True)
class _Restore:
    """Makes tensors zero, or what they were, before a launch."""

    zeroed: Sequence[Any]
    copied: Sequence[tuple[Any, Any]]

    def run(self) -> None:
        """Enqueue it on the current stream."""
        for tensor in self.zeroed:
            tensor.zero_()
        for tensor, before in self.copied:
            tensor.copy_(before)

    def compile(self, gpu: GpuModel) -> Any:
        """There is nothing to compile.

        Raises:
            UsageError: Always.
        """
        raise UsageError("what restores tensors is no kernel.")


class CallCase:
    """Copies of a call's tensors, and what is expected of them once a configuration has run.

    Args:
        spec: The kernel as the call shows it.
        workload: What the call asks for.
        restored: What every launch finds as it was.
    """

    def __init__(self, spec: KernelSpec, workload: Workload, call: Call, restored: Restored) -> None:
        self.spec, self.call, self.restored = spec, call, restored
        #: The memory that each tensor covers, and a copy of it; `copies` are laid out as the call's tensors are.
        self._covered = {name: _covered(tensor) for name, tensor in call.tensors.items()}
        self._memory = {name: memory.clone() for name, memory in self._covered.items()}
        self.copies = {name: _laid_out(self._memory[name], tensor) for name, tensor in call.tensors.items()}
        self.tolerance = Tolerance.of(spec, workload)
        stated = spec.space if isinstance(spec, CallSpec) else None
        self.outputs: tuple[str, ...] = stated.outputs if stated is not None else ()
        self.expected = self._reference(stated.reference if stated is not None else None)

    def launches(self, config: Config) -> Sequence[Launch]:
        """What is restored, and the launch."""
        kernel = CopiedLaunch(self.call, self.copies, self.spec.values_of(config))
        to_zero, to_value = self.restored.to_zero, self.restored.to_value
        if not (to_zero or to_value):
            return [kernel]
        copied = [(self._memory[name], self._covered[name]) for name in to_value if name in self.copies]
        return [_Restore([self.copies[name] for name in to_zero if name in self.copies], copied), kernel]

    def check(self, launches: Sequence[Launch]) -> float:
        """Run on what the call gave, its outputs poisoned, and compare; the first to run says what is expected."""
        for name, memory in self._memory.items():
            memory.copy_(self._covered[name])
        poison({name: self.copies[name] for name in self.outputs if name in self.copies})
        for one in launches:
            one.run()
        if self.expected is None:
            self.expected = self._written()
            return 0.0
        compared = ((self.copies[name], value) for name, value in self.expected.items())
        return max((error_over_bound(output, value, self.tolerance) for output, value in compared), default=0.0)

    def _reference(self, reference: Reference | None) -> dict[str, Any] | None:
        """What the user's reference makes of copies of the arguments."""
        if reference is None:
            return None
        tensors = {name: _laid_out(self._covered[name].clone(), given) for name, given in self.call.tensors.items()}
        given = {**self.call.all_named, **tensors}
        expected = dict(reference(given))
        for name in expected:
            if name not in self.copies:
                raise UsageError(
                    f"{self.call.signature.name}: the reference gives {name!r}, which is no tensor of the call; it "
                    f"gives what outputs have to be, by name, such as {{{next(iter(self.copies), 'y')!r}: ...}}."
                )
        return {name: _exact(value) for name, value in expected.items()}

    def _written(self) -> dict[str, Any]:
        """The outputs, or else the tensors that are no longer what the call gave."""
        names = self.outputs or [
            name for name, memory in self._memory.items() if not is_same(memory, self._covered[name])
        ]
        return {name: _exact(self.copies[name]) for name in names}


def launch(call: Call, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """Call the function below the decorator with a configuration's values and with other tensors."""
    function, names = call.signature.function, call.signature.names
    args = [tensors.get(name, value) for name, value in zip(names, call.args, strict=False)]
    kwargs = {name: tensors.get(name, value) for name, value in call.kwargs.items()}
    return function[call.grid](*args, **kwargs, **values)


def _covered(tensor: Any) -> Any:
    """The memory from a tensor's first element to its last, in one dimension; rows may repeat or lie apart in it."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    extent = 1 + sum(steps) if tensor.numel() else 0
    return tensor.detach().as_strided((extent,), (1,))


def _laid_out(memory: Any, tensor: Any) -> Any:
    """Memory with the shape and strides of a tensor."""
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def _exact(tensor: Any) -> Any:
    """A copy in which differences are exact: floats in fp64."""
    return tensor.double() if tensor.is_floating_point() else tensor.clone()
