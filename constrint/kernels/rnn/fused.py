"""What both fused implementations of a recurrence do around their time loops: results, conversions, what follows.

An implementation says in a `FusedLoop` how its launches are stated. The plans of calls that need no conversion are
stated by the implementations themselves (`planned.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from constrint.errors import ConstrintError
from constrint.kernels.launch.look import look
from constrint.kernels.launch.policy import launch_what_fits
from constrint.kernels.rnn.first_choice import refuse
from constrint.kernels.rnn.gradients import gradients_of, recompute_gates, states_before
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs, RnnSaved, RnnUpstream
from constrint.select.first_choice import Choice
from constrint.select.spec import Config, Launch, Workload

Tensors = Mapping[str, Tensor | None]


class Stated(Protocol):
    """States the launches of one direction."""

    def __call__(
        self, choice: Choice, config: Config, direction: str, tensors: Tensors, **options: Any
    ) -> Sequence[Launch]:
        """The launches of a choice whose configuration is `config`.

        Backward `options` are `clip` and `only_h`, as in `RnnBackend.plan_backward`.
        """


@dataclass(frozen=True)
class FusedLoop:
    """What tells one fused implementation from another.

    Args:
        stated: States the launches of one direction.
        bias_of: The bias in the dtype that the kernel takes, from the bias and the dtype of wx.
        ready: A tensor as the kernel takes it: contiguous, at the address that it wants.
        writes_all: Whether the kernel writes the steps past a sequence's length, too.
    """

    stated: Stated
    bias_of: Callable[[Tensor, torch.dtype], Tensor]
    ready: Callable[[Tensor], Tensor]
    writes_all: bool

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """Run a recurrent layer over a batch of sequences; see `RnnBackend.forward`."""
        wx, bias = inputs.wx, inputs.b
        batch, time, _, heads, dim = wx.shape
        make = self._make(inputs)
        states = make((inputs.kind.num_states, batch, time, heads, dim), dtype=wx.dtype, device=wx.device)
        gates = make(wx.shape, dtype=wx.dtype, device=wx.device) if save_gates else None
        tensors = self._common(inputs) | {"states": states, "saved": gates}
        tensors["bias"] = None if bias is None else self.ready(self.bias_of(bias, wx.dtype))
        self._launch(choice, "forward", tensors, recompute=not save_gates)
        return RnnSaved(states, gates)

    def backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """Gradients of the inputs; see `RnnBackend.backward`."""
        kind, states = inputs.kind, self.ready(saved.states)
        tensors = self._common(inputs)
        before = states_before(states[0], tensors["initial"], inputs.reset)
        gates = saved.gates
        if gates is None:
            gates = recompute_gates(kind, inputs.wx, given(tensors, "r"), inputs.b, before)
        slots, initial = self._gradient_results(inputs)
        tensors |= {"states": states, "saved": self.ready(gates), "grad_slots": slots, "grad_initial": initial}
        tensors |= {f"grad{state}": self._optional(grad) for state, grad in enumerate(upstream.states)}
        if any(grad is not None for grad in upstream.last):
            tensors["grad_last"] = upstream.stacked_last(initial)
        only_h = all(grad is None for grad in (*upstream.states[1:], *upstream.last[1:]))
        recompute = saved.gates is None
        self._launch(choice, "backward", tensors, recompute=recompute, clip=clip, only_h=only_h)
        kept = None if inputs.initial is None else initial
        return gradients_of(inputs, slots, before, kept, sums_by_sequence=inputs.wx.dtype == torch.float32)

    def _make(self, inputs: RnnInputs) -> Callable[..., Tensor]:
        return torch.empty if self.writes_all or inputs.lengths is None else torch.zeros

    def _gradient_results(self, inputs: RnnInputs) -> tuple[Tensor, Tensor]:
        """Memory for the gradients of the slots, (B, T, slots, N, D), and of the initial states, (S, B, N, D) fp32."""
        wx, kind = inputs.wx, inputs.kind
        batch, time, _, heads, dim = wx.shape
        slots = self._make(inputs)((batch, time, kind.num_slots, heads, dim), dtype=wx.dtype, device=wx.device)
        return slots, torch.empty((kind.num_states, batch, heads, dim), dtype=torch.float32, device=wx.device)

    def _common(self, inputs: RnnInputs) -> dict[str, Tensor | None]:
        """Tensors that both directions have, in the types that the kernels take."""
        lengths = self._optional(inputs.lengths, torch.int32)
        # Rows by falling length, so that the sequences of one tile end at about the same time.
        rows = None if lengths is None else torch.argsort(lengths, descending=True, stable=True).to(torch.int32)
        return {
            "wx": inputs.wx,
            "r": self._optional(inputs.r, inputs.wx.dtype),
            "initial": self._optional(inputs.initial, torch.float32),
            "rows": rows,
            "lengths": lengths,
            "reset": self._optional(inputs.reset, torch.int32),
        }

    def _optional(self, tensor: Tensor | None, dtype: torch.dtype | None = None) -> Tensor | None:
        return None if tensor is None else self.ready(tensor.to(dtype or tensor.dtype))

    def _launch(self, choice: Choice, direction: str, tensors: Tensors, *, recompute: bool, **options: Any) -> None:
        """Launch a choice, and if it does not fit after all, the next ones."""
        named = sorted(name for name, tensor in tensors.items() if tensor is not None)
        named += [f"{name}={value}" for name, value in options.items() if value]
        wx = given(tensors, "wx")

        def launch(choice: Choice, /, *, may_spill: bool) -> None:
            config = {**choice.config, "recompute": int(recompute)}
            launches = self.stated(choice, config, direction, tensors, **options)
            grids = [getattr(each, "grid", ()) for each in launches]
            key = choice.kernel, *config.items(), wx.shape[2:], *grids, wx.dtype, wx.device, may_spill, *named
            if key not in _LOOKED_AT and wx.is_cuda:
                look(launches, may_spill=may_spill)
                _LOOKED_AT.add(key)
            for each in launches:
                each.run()

        launch_what_fits(choice, launch, refuse, named)


#: Kernels that were looked at: they do not spill where they may not, and blocks that wait for each other are resident
#: together. By everything that they are compiled for.
_LOOKED_AT: set[tuple[object, ...]] = set()


def workload_of_choice(choice: Choice) -> Workload:
    """The workload that a choice was made for."""
    if choice.workload is None:
        raise ConstrintError(f"{choice.kernel} needs a choice with the workload that it was made for.")
    return choice.workload


def given(tensors: Tensors, name: str) -> Tensor:
    """A tensor that a launch cannot do without."""
    tensor = tensors[name]
    if tensor is None:
        raise ConstrintError(f"the recurrent kernels need the tensor {name!r}, got None.")
    return tensor


def num_sms(device: torch.device, usual: int) -> int:
    """SMs of the device itself, which may be fewer than those of its model; those where there is no device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return usual
