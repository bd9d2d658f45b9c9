"""Back-ends whose time loop is one kernel: a list of launches per call, recorded as a plan or run at once.

`FusedBackend._forward_launches` and `_backward_launches` list every launch of a pass: copies that pad heads, the time
loop, copies that crop. `plan_forward` and `plan_backward` return the list for tensors that kernels take as they are;
`forward` and `backward` convert tensors first (dtypes, strides, lengths, resets) and run the list. A back-end adds its
time loop and the conversions that its kernel needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.look import look
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.policy import launch_what_fits
from constrint.kernels.rnn.dispatch import refuse
from constrint.kernels.rnn.edges import HeadPadding, before_launch, ends_launch
from constrint.kernels.rnn.gradients import gradients_of, recompute_gates, states_before
from constrint.kernels.rnn.interface import BackwardTensors, ForwardOutputs, RnnGradients, RnnInputs, RnnUpstream
from constrint.select.candidate import Config
from constrint.select.spec import Launch
from constrint.select.workload import Workload

Tensors = Mapping[str, Tensor | None]
#: Kernels in CUDA C++ read vectors of this many bytes, which their tensors must be aligned to.
VECTOR_BYTES = 16
#: Initial value of each word of memory that blocks exchange states through: two NaNs that no result has.
UNWRITTEN = 0xFFFFFFFF


class FusedBackend(ABC):
    """A recurrence whose steps run inside one kernel; see `RnnBackend` for the methods.

    Attributes:
        alignment_bytes: Alignment of the tensors, and of the first two strides of wx.
        writes_padding: Whether the kernel also writes the steps past a sequence's length.
    """

    alignment_bytes = VECTOR_BYTES
    writes_padding = True

    @abstractmethod
    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """Head dimension that the kernel runs in the place of `head_dim`."""

    @abstractmethod
    def loop(
        self, direction: str, choice: Decision, config: Config, tensors: Tensors, scratch: Scratch, **options: Any
    ) -> Sequence[Launch]:
        """List the launches of the time loop.

        Args:
            direction: "forward" or "backward".
            choice: The choice, whose workload and GPU model count.
            config: Its configuration, with `recompute` as the call needs it.
            tensors: The kernel's tensors by the names of its arguments; forward also `start`, the initial h in the
                dtype of wx.
            scratch: Provides temporary memory.
            options: Backward: `clip` and `only_h` as in `RnnBackend.plan_backward`.
        """

    def bias_of(self, bias: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias in a dtype that the kernel takes beside wx of `dtype`."""
        return bias.to(dtype)

    # A plan: the launches on tensors as they are.

    def plan_forward(
        self, inputs: RnnInputs, start: Tensor | None, outputs: ForwardOutputs, choice: Decision, scratch: Scratch
    ) -> Sequence[Launch]:
        """See `RnnBackend.plan_forward`."""
        self._check_plannable(inputs, start, outputs.states, outputs.gates)
        return [*self._forward_launches(inputs, {}, start, outputs, choice, scratch), ends_launch(outputs)]

    def plan_backward(
        self,
        inputs: RnnInputs,
        tensors: BackwardTensors,
        choice: Decision,
        scratch: Scratch,
        *,
        clip: float,
        only_h: bool,
    ) -> Sequence[Launch]:
        """See `RnnBackend.plan_backward`."""
        every = (tensors.states, tensors.gates, *tensors.grad_states, tensors.grad_last, tensors.slots, tensors.initial)
        self._check_plannable(replace(inputs, b=None), *every)
        shift = [] if tensors.before is None else [before_launch(inputs, tensors)]
        options = {"clip": clip, "only_h": only_h}
        return [*shift, *self._backward_launches(inputs, {}, tensors, choice, scratch, **options)]

    def _check_plannable(self, inputs: RnnInputs, *others: Tensor | None) -> None:
        """Raise NotPlannedError where a tensor has to be converted first."""
        wx, r, b, initial = inputs.wx, inputs.r, inputs.b, inputs.initial
        heads, dim = wx.shape[3:]
        if not wx.numel():
            raise NotPlannedError("no step runs")
        if wx.stride()[2:] != (heads * dim, dim, 1) or not r.is_contiguous() or r.dtype != wx.dtype:
            raise NotPlannedError("the inputs or the weights have to be converted")
        if inputs.params is not None and (inputs.params.dtype != torch.float32 or not inputs.params.is_contiguous()):
            raise NotPlannedError("the elementwise parameters have to be converted")
        if b is not None and (self.bias_of(b, wx.dtype) is not b or not b.is_contiguous()):
            raise NotPlannedError("the bias has to be converted")
        if initial is not None and (initial.dtype != torch.float32 or not initial.is_contiguous()):
            raise NotPlannedError("the initial states have to be converted")
        if self.padded(dim, wx.dtype) != dim:
            return  # kernels read and write padded copies
        if not self._is_wx_aligned(wx) or not all(map(self._is_aligned, (r, b, initial, *others))):
            raise NotPlannedError(f"a tensor does not begin at a vector of {self.alignment_bytes} bytes")

    # A call outside of plans: tensors are converted, and the launches run.

    def forward(self, inputs: RnnInputs, choice: Decision, *, save_gates: bool) -> ForwardOutputs:
        """See `RnnBackend.forward`."""
        wx, (batch, time, _, heads, dim) = inputs.wx, inputs.wx.shape
        make = self._maker(inputs)
        states = make((inputs.kind.num_states, batch, time, heads, dim), dtype=wx.dtype, device=wx.device)
        gates = make(wx.shape, dtype=wx.dtype, device=wx.device) if save_gates else None
        outputs = ForwardOutputs(states, gates)
        operands, masks = self._converted(inputs)
        start = None if operands.initial is None else operands.initial[0].to(wx.dtype).contiguous()

        def launches(choice: Decision, scratch: Scratch) -> Sequence[Launch]:
            return self._forward_launches(operands, masks, start, outputs, choice, scratch)

        optional = {"bias": inputs.b, "initial": inputs.initial, "saved": gates, **masks}
        self._run(inputs, choice, launches, _names(optional))
        return outputs

    def backward(
        self, inputs: RnnInputs, saved: ForwardOutputs, upstream: RnnUpstream, choice: Decision, *, clip: float
    ) -> RnnGradients:
        """See `RnnBackend.backward`."""
        wx, kind, states = inputs.wx, inputs.kind, self._aligned(saved.states)
        batch, time, _, heads, dim = wx.shape
        operands, masks = self._converted(inputs)
        before = states_before(states[0], operands.initial, inputs.reset)
        gates = saved.gates
        if gates is None:
            gates = recompute_gates(kind, wx, operands.r, inputs.b, before)
        slots = self._maker(inputs)((batch, time, kind.num_slots, heads, dim), dtype=wx.dtype, device=wx.device)
        initial = torch.empty((kind.num_states, batch, heads, dim), dtype=torch.float32, device=wx.device)
        grad_states = tuple(None if grad is None else self._aligned(grad) for grad in upstream.states)
        has_last = any(grad is not None for grad in upstream.last)
        grad_last = upstream.stacked_last(initial) if has_last else None
        of_params = None
        if inputs.params is not None:
            of_params = self._maker(inputs)(
                (kind.num_params, *initial.shape[1:]), dtype=torch.float32, device=wx.device
            )
        gates = self._aligned(gates)
        tensors = BackwardTensors(states, gates, grad_states, grad_last, slots, initial, params=of_params)
        options = {"clip": clip, "only_h": all(g is None for g in (*upstream.states[1:], *upstream.last[1:]))}

        def launches(choice: Decision, scratch: Scratch) -> Sequence[Launch]:
            return self._backward_launches(operands, masks, tensors, choice, scratch, **options)

        optional = {"initial": inputs.initial, "grad_last": grad_last, **masks}
        optional |= {f"grad{state}": grad for state, grad in enumerate(grad_states)}
        self._run(inputs, choice, launches, [*_names(optional), *(name for name, value in options.items() if value)])
        of_initial = None if inputs.initial is None else initial
        return gradients_of(inputs, slots, before, of_initial, of_params, sums_by_sequence=wx.dtype == torch.float32)

    def _converted(self, inputs: RnnInputs) -> tuple[RnnInputs, Tensors]:
        """The operands in the kernel's dtypes and alignment, and the kernel's tensors for lengths and resets."""
        wx, lengths, reset = inputs.wx, inputs.lengths, inputs.reset
        wx = wx if self._is_wx_aligned(wx) else wx.contiguous().clone()
        r = self._aligned(inputs.r.to(wx.dtype))
        b = None if inputs.b is None else self._aligned(self.bias_of(inputs.b, wx.dtype))
        initial = inputs.initial
        initial = None if initial is None else self._aligned(initial.to(torch.float32))
        masks: dict[str, Tensor | None] = {}
        if lengths is not None:
            masks["lengths"] = self._aligned(lengths.to(torch.int32))
            # Rows by falling length, so that the sequences of one tile end at about the same time.
            masks["rows"] = torch.argsort(lengths, descending=True, stable=True).to(torch.int32)
        if reset is not None:
            masks["reset"] = self._aligned(reset.to(torch.int32))
        params = None if inputs.params is None else inputs.params.to(torch.float32).contiguous()
        return RnnInputs(inputs.cell, wx, r, b, initial, None, reset, params), masks

    def _run(
        self,
        inputs: RnnInputs,
        choice: Decision,
        launches_of: Callable[[Decision, Scratch], Sequence[Launch]],
        optional: list[str],
    ) -> None:
        """Run the launches of a choice; where one does not fit the device, those of the next choice."""
        wx = inputs.wx
        scratch = TORCH_SCRATCH if self._maker(inputs) is torch.empty else _ZeroedScratch()

        def launch(choice: Decision, /, *, may_spill: bool) -> None:
            launches = launches_of(choice, scratch)
            grids = [getattr(each, "grid", ()) for each in launches]
            key = choice.kernel, *choice.config.items(), wx.shape[2:], *grids, wx.dtype, wx.device, may_spill, *optional
            if key not in _LOOKED_AT and wx.is_cuda:
                look(launches, may_spill=may_spill)
                _LOOKED_AT.add(key)
            for each in launches:
                each.run()

        launch_what_fits(choice, launch, refuse, optional)

    def _maker(self, inputs: RnnInputs) -> Callable[..., Tensor]:
        """Allocates tensors that are zero past each sequence's length."""
        return torch.empty if self.writes_padding or inputs.lengths is None else torch.zeros

    def _is_aligned(self, tensor: Tensor | None) -> bool:
        return tensor is None or tensor.data_ptr() % self.alignment_bytes == 0

    def _is_wx_aligned(self, wx: Tensor) -> bool:
        steps = (stride * wx.element_size() for stride in wx.stride()[:2])
        return self._is_aligned(wx) and all(step % self.alignment_bytes == 0 for step in steps)

    def _aligned(self, tensor: Tensor) -> Tensor:
        """The tensor, or a contiguous copy at an aligned address."""
        tensor = tensor.contiguous()
        return tensor if self._is_aligned(tensor) else tensor.clone()

    # The list of launches that both share.

    def _forward_launches(
        self,
        inputs: RnnInputs,
        masks: Tensors,
        start: Tensor | None,
        outputs: ForwardOutputs,
        choice: Decision,
        scratch: Scratch,
    ) -> list[Launch]:
        padding = self._padding(inputs, scratch)
        tensors = self._operands(inputs, padding) | {"bias": padding.read(inputs.b), "start": padding.read(start)}
        tensors["unit_params"] = padding.read(inputs.params)
        tensors |= {"states": padding.written(outputs.states), "saved": padding.written(outputs.gates), **masks}
        config = {**choice.config, "recompute": int(outputs.gates is None)}
        loop = self.loop("forward", choice, config, tensors, scratch)
        return [*padding.before, *loop, *padding.after]

    def _backward_launches(
        self,
        inputs: RnnInputs,
        masks: Tensors,
        tensors: BackwardTensors,
        choice: Decision,
        scratch: Scratch,
        **options: Any,
    ) -> list[Launch]:
        padding = self._padding(inputs, scratch)
        named = self._operands(inputs, padding) | {"states": padding.saved_states(tensors.states, inputs.kind)}
        named |= {"saved": padding.read(tensors.gates), "grad_last": padding.read(tensors.grad_last), **masks}
        named |= {f"grad{state}": padding.read(grad) for state, grad in enumerate(tensors.grad_states)}
        named |= {"unit_params": padding.read(inputs.params), "grad_params": padding.written(tensors.params)}
        named |= {"grad_slots": padding.written(tensors.slots), "grad_initial": padding.written(tensors.initial)}
        loop = self.loop("backward", choice, {**choice.config, "recompute": 0}, named, scratch, **options)
        return [*padding.before, *loop, *padding.after]

    def _padding(self, inputs: RnnInputs, scratch: Scratch) -> HeadPadding:
        return HeadPadding(self.padded(inputs.wx.shape[-1], inputs.wx.dtype), inputs, scratch)

    def _operands(self, inputs: RnnInputs, padding: HeadPadding) -> dict[str, Tensor | None]:
        r, wx, initial = padding.weights(inputs.r), padding.read(inputs.wx), padding.read(inputs.initial)
        return {"wx": wx, "r": r, "initial": initial}


class _ZeroedScratch(Scratch):
    """Temporary memory of zeros, for padded results whose steps past a sequence's length no kernel writes."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory of zeros."""
        return torch.zeros(tuple(shape), dtype=dtype, device=device)


#: Kernels that `look` has passed, by everything that they are compiled for.
_LOOKED_AT: set[tuple[object, ...]] = set()


def _names(optional: Tensors) -> list[str]:
    return sorted(name for name, tensor in optional.items() if tensor is not None)


def workload_of_choice(choice: Decision) -> Workload:
    """The workload of a choice.

    Raises:
        ConstrintError: When the choice has none.
    """
    if choice.workload is None:
        raise ConstrintError(f"{choice.kernel} needs a choice with a workload.")
    return choice.workload


def gpu_of_choice(choice: Decision) -> GpuModel:
    """The hardware model of a choice.

    Raises:
        ConstrintError: When the choice has none.
    """
    if choice.gpu is None:
        raise ConstrintError(f"{choice.kernel} needs a model of the device.")
    return choice.gpu


def required(tensors: Tensors, name: str) -> Tensor:
    """The tensor of that name.

    Raises:
        ConstrintError: When it is None.
    """
    tensor = tensors[name]
    if tensor is None:
        raise ConstrintError(f"the recurrent kernels need the tensor {name!r}, got None.")
    return tensor


def num_sms(device: torch.device, default: int) -> int:
    """SMs of a device, which may have fewer than its model; `default` where `device` is no GPU."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return default
