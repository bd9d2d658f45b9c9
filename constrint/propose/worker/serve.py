"""Answers requests with a candidate: it is loaded, compiled, called, and called again by another process's clock."""

from __future__ import annotations

import ctypes
import linecache
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from constrint.errors import NoDeviceError
from constrint.propose import wire
from constrint.propose.worker.compiling import compile_launches, judge_loaded_kernels
from constrint.propose.worker.held import HeldTensor, namespace, poisons
from constrint.propose.worker.tensors import TensorMemory, array_of, torch_dtype, values_of
from constrint.propose.worker.watch import MAX_NAMES, Guard, Launches, library_calls

if TYPE_CHECKING:
    from constrint.propose.cuda.candidate import CudaCandidate

#: The name of the module that a candidate becomes.
MODULE = "candidate"
#: The driver's number of the limit of L2 lines that may be kept from being replaced.
CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6


class DrawnCall(NamedTuple):
    """A call that will be timed: its tensors, and what they are drawn from."""

    arguments: tuple[Any, ...]
    outputs: dict[str, Any]
    inputs: dict[str, Any]
    drawn: wire.Drawn


class Server:
    """The candidate of one process, and the memory of its calls.

    Args:
        uses_gpu: Whether it runs on a GPU rather than the CPU.

    Raises:
        NoDeviceError: When there is none for this process.
    """

    def __init__(self, uses_gpu: bool) -> None:
        import torch
        import triton
        import triton.language

        self._torch, self._triton = torch, triton
        self._device = "cuda" if uses_gpu else "cpu"
        if uses_gpu:
            if not torch.cuda.is_available():
                raise NoDeviceError("PyTorch sees no GPU in the candidate's process; may its user open the device?")
            torch.zeros(1, device=self._device)
            _forbid_persisting_lines()
        # What a candidate puts in its place is not called.
        self._wait: Any = torch.cuda.synchronize
        self._module = ModuleType(MODULE)
        self._entry: Any = None
        #: What a call is given in place of a tensor; only host functions in Python could compute with one.
        self._hold: Callable[[Any], Any] = _as_it_is
        self._cuda: CudaCandidate | None = None
        self._launches = Launches(self._is_own)
        self._outputs: list[TensorMemory] = []
        self._inputs: list[TensorMemory] = []
        self._prepared: list[DrawnCall] = []
        self._library: list[str] = []
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction

        self._jitted = (JITFunction, InterpretedFunction)
        for kind in self._jitted:
            self._launches.install(kind)
        judge_loaded_kernels()
        self._warm_up()
        self._guard = Guard()

    def answer(self, request: wire.Request) -> wire.Reply:
        """The answer to a request; an exception where the candidate raises one."""
        if isinstance(request, wire.Load):
            return self._load(request)
        if isinstance(request, wire.LoadCuda):
            return self._load_cuda(request)
        if isinstance(request, wire.LoadPlain):
            return self._load_plain(request)
        if isinstance(request, wire.Compile):
            return self._compile(request)
        if isinstance(request, wire.CallOnce):
            return self._call(request)
        if isinstance(request, wire.Prepare):
            return self._prepare(request)
        if isinstance(request, wire.RunWorker):
            return self._run(request)
        return self._sample(request)

    def _is_own(self, function: Any) -> bool:
        return getattr(getattr(function, "fn", None), "__globals__", None) is vars(self._module)

    def _globals(self) -> dict[str, Any]:
        """The names that a candidate finds."""
        return namespace()

    def _held(self, tensor: Any) -> Any:
        """A tensor as a candidate's launch code is given it."""
        return HeldTensor(tensor)

    def _warm_up(self) -> None:
        """Let PyTorch load what it loads when it is first used under a watch, and replace what it replaces then."""
        with library_calls():
            tensor = self._torch.empty((2, 2), dtype=self._torch.float32, device=self._device)
            tensor.t().contiguous().view(4)
            self._torch.zeros_like(tensor).new_empty(1)

    def _load(self, request: wire.Load) -> wire.Reply:
        # Triton reads the text of a kernel from its file.
        name = f"<{MODULE}>"
        linecache.cache[name] = (len(request.source), None, request.source.splitlines(keepends=True), name)
        sys.modules[MODULE] = self._module
        # This is what the process is for: a sandbox around it, and the text was read before.
        vars(self._module).update(self._globals())
        exec(compile(request.source, name, "exec"), vars(self._module))  # noqa: S102
        self._entry, self._hold = getattr(self._module, request.entry), self._held
        return wire.Acknowledged()

    def _load_cuda(self, request: wire.LoadCuda) -> wire.Reply:
        from constrint.propose.cuda.candidate import CudaCandidate

        self._entry = self._cuda = CudaCandidate(request, self._launches.launching)
        return wire.Acknowledged()

    def _load_plain(self, request: wire.LoadPlain) -> wire.Reply:
        from constrint.propose.task import find_task

        self._entry = find_task(request.task).plain_into
        return wire.Acknowledged()

    def _compile(self, request: wire.Compile) -> wire.Reply:
        tensors = [
            self._torch.empty_strided(layout.shape, layout.strides, dtype=torch_dtype(layout.dtype), device="meta")
            for layout in (*request.outputs, *request.inputs)
        ]
        # A candidate in CUDA C++ knows its launches; one in Triton is called, and asks for them.
        if self._cuda is not None:
            return wire.CompiledKernels(kernels=tuple(self._cuda.compiled(tensors, request.gpu)))
        return wire.CompiledKernels(
            kernels=tuple(compile_launches(self._entry, list(map(self._hold, tensors)), request.gpu))
        )

    def _call(self, request: wire.CallOnce) -> wire.Reply:
        layouts = [array.layout for array in request.inputs]
        if not request.in_same_memory:
            # The old memory is given back after the new one is taken, so that it is not the same.
            inputs = [TensorMemory(layout, self._device) for layout in layouts]
            outputs = [TensorMemory(layout, self._device) for layout in request.outputs]
            self._inputs, self._outputs = inputs, outputs
        for memory, array in zip(self._inputs, request.inputs, strict=True):
            memory.tensor.copy_(values_of(array))
        for memory in self._outputs:
            memory.poison()
        watched = self._watched_call(layouts, request.outputs, [array.data for array in request.inputs])
        outputs_now = [
            array_of(layout.name, memory.tensor) for layout, memory in zip(request.outputs, self._outputs, strict=True)
        ]
        return wire.Called(outputs=tuple(outputs_now), watched=watched)

    def _watched_call(
        self, layouts: list[wire.TensorLayout], outputs: tuple[wire.TensorLayout, ...], before: list[bytes]
    ) -> wire.Watched:
        # The candidate is given other tensor objects than those that are looked at afterwards.
        arguments = [
            self._hold(memory.tensor.as_strided(memory.tensor.shape, memory.tensor.stride()))
            for memory in (*self._outputs, *self._inputs)
        ]
        token = poisons.set(True)
        try:
            with self._launches.watched() as self._library:
                returned = self._entry(*arguments)
        finally:
            poisons.reset(token)
        self._synchronize()
        changed = [
            layout.name
            for layout, memory, data in zip(layouts, self._inputs, before, strict=True)
            if array_of(layout.name, memory.tensor).data != data
        ]
        overrun = [layout.name for layout, memory in zip(outputs, self._outputs, strict=True) if memory.is_overrun()]
        return self._observed(changed, overrun, "" if returned is None else type(returned).__name__)

    def _observed(self, changed: list[str], overrun: Sequence[str] = (), returned: str = "") -> wire.Watched:
        """Observations since counting began anew."""
        return wire.Watched(
            launches=self._launches.count,
            foreign=_names(self._launches.foreign),
            library=_names(self._library),
            changed_inputs=tuple(changed),
            overrun=tuple(overrun),
            patched=self._guard.patched(),
            settings=(*self._guard.settings(), *self._guard.other_streams(self._launches.streams)),
            returned=returned,
        )

    def _prepare(self, request: wire.Prepare) -> wire.Reply:
        from constrint.propose.task import find_task

        self._prepared.clear()
        if self._device == "cuda":
            _forbid_persisting_lines()
        for drawn in request.sets:
            task = find_task(drawn.task)
            inputs = task.draw(drawn.sizes, drawn.dtype, seed=drawn.seed, device=self._device)
            outputs = task.outputs(inputs)
            for output in outputs.values():
                output.fill_(math.nan)
            arguments = tuple(map(self._hold, (*outputs.values(), *inputs.values())))
            self._prepared.append(DrawnCall(arguments, outputs, inputs, drawn))
        self._synchronize()
        return wire.Acknowledged()

    def _run(self, request: wire.RunWorker) -> wire.Reply:
        # Plain PyTorch computes by operations of PyTorch, and is not slowed by a watch of them.
        is_watched = self._hold is not _as_it_is or self._cuda is not None
        watch: AbstractContextManager[list[str]] = self._launches.watched() if is_watched else nullcontext([])
        with watch as self._library:
            for prepared in self._prepared[: request.count]:
                self._entry(*prepared.arguments)
        self._synchronize()
        return wire.Acknowledged()

    def _sample(self, request: wire.TimeSample) -> wire.Reply:
        from constrint.propose.task import find_task

        _, outputs, inputs, drawn = self._prepared[request.index]
        values = {
            name: array_of(name, outputs[name].flatten()[self._torch.tensor(at, device=self._device)]).data
            for name, at in request.positions.items()
        }
        before = find_task(drawn.task).draw(drawn.sizes, drawn.dtype, seed=drawn.seed, device=self._device)
        changed = [name for name, value in before.items() if not self._torch.equal(value, inputs[name])]
        return wire.Sampled(values=values, watched=self._observed(changed))

    def _synchronize(self) -> None:
        if self._device == "cuda":
            self._wait()


def _as_it_is(tensor: Any) -> Any:
    return tensor


def _names(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MAX_NAMES]


def _forbid_persisting_lines() -> None:
    """Let no line of the L2 be kept from being replaced; where there is no such driver there are no such lines."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(0))
