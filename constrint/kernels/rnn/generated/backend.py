"""Back-ends of defined cells with kernels: those of the built-in cells, with a generated step.

`auto` leaves the choice to `constrint.choose`, like the modules of built-in cells; the others are its implementations
by name. A call of a known signature runs by its launch plan (`rnn/plans.py`).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from constrint.errors import ConstrintError
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.dispatch import Dispatch, run_decided
from constrint.kernels.rnn.generated.register import obstacles, register_cell, specs_of
from constrint.kernels.rnn.gradients import stacked_ends
from constrint.kernels.rnn.interface import ForwardOutputs, RnnGradients, RnnInputs, RnnUpstream
from constrint.kernels.rnn.language.backends import CellCall, CellGradients, CellResults
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.op import last_states
from constrint.kernels.rnn.plans import BACKWARD, FORWARD, Forward, backward_of, gradients_of_call
from constrint.kernels.rnn.reference import accumulation_dtype
from constrint.kernels.rnn.spec import SUFFIX

#: Implementations by name; the first one takes what `constrint.choose` decides.
AUTO, NAMES = "auto", ("cuda", "wgmma", "wgmma_both", "wgmma_partial", "triton", "alternating")


class GeneratedBackend:
    """Runs cells by the kernels of recurrent layers, with a generated step.

    Args:
        name: Its name among the back-ends of cells.
        implementation: An implementation of recurrent layers, or `auto`.
    """

    def __init__(self, name: str, implementation: str) -> None:
        self.name, self.implementation = name, implementation

    def refusal(self, call: CellCall) -> str:
        """Why it cannot run the call; empty where it does."""
        reason = obstacle_of(call.cell)
        if reason:
            return reason
        if self.implementation not in (AUTO, *implementations_of(call.cell)):
            return f"{self.implementation} sums no gradients of elementwise parameters, which the cell has"
        if call.reset is not None and any(call.cell.initial):
            return "sequences start anew from zeros in fused kernels"
        if call.wx.dtype == torch.float64 and self.implementation not in (AUTO, "alternating"):
            return "fused kernels take float32, bfloat16 and float16"
        if not call.wx.is_cuda and self.implementation != "alternating":
            return f"fused kernels need a GPU, wx is on {call.wx.device}"
        return ""

    def forward(self, call: CellCall, *, saves: bool) -> CellResults:
        """Run all steps; see `CellBackend`."""
        cell, inputs = register_cell(call.cell), inputs_of(call)
        planned = None
        if call.lengths is None and call.reset is None and inputs.wx.is_cuda:
            planned = self._planned_forward(inputs, saves)
        if planned is not None:
            states, end_h, *others = planned
            ends = end_h[None] if cell.num_states == 1 else torch.cat([end_h[None], others[0]])
            return CellResults(states[0], states[1:], ends, others[-1] if saves else None)

        def run(dispatch: Dispatch) -> ForwardOutputs:
            return dispatch.backend.forward(inputs, dispatch.choice, save_gates=saves)

        made = run_decided(cell.name, inputs.wx, self.implementation, "forward", run, recompute=not saves)
        last = last_states(inputs, made.states)
        return CellResults(made.states[0], made.states[1:], last, made.gates)

    def backward(
        self,
        call: CellCall,
        results: CellResults,
        d_hidden: Tensor | None,
        d_rest: Tensor | None,
        d_last: Tensor | None,
    ) -> CellGradients:
        """Compute the gradients of the operands; see `CellBackend`."""
        cell, inputs = register_cell(call.cell), inputs_of(call)
        saved = ForwardOutputs(_stacked(results), results.saved)
        gradients = None
        if call.lengths is None and call.reset is None and inputs.wx.is_cuda and saved.gates is not None:
            gradients = self._planned_backward(cell, inputs, saved, d_hidden, d_rest, d_last, call.clip)
        if gradients is None:
            of_rest = (None,) * (cell.num_states - 1) if d_rest is None else d_rest.unbind(0)
            of_last = (None,) * cell.num_states if d_last is None else d_last.unbind(0)
            upstream = RnnUpstream((d_hidden, *of_rest), of_last)

            def run(dispatch: Dispatch) -> RnnGradients:
                return dispatch.backend.backward(inputs, saved, upstream, dispatch.choice, clip=call.clip)

            recompute = saved.gates is None
            gradients = run_decided(cell.name, inputs.wx, self.implementation, "backward", run, recompute=recompute)
        of_parameters = self.of_parameters(call, gradients.params)
        initial = None if call.initial is None else gradients.initial
        return CellGradients(gradients.wx, gradients.r, gradients.b, initial, of_parameters, ())

    @staticmethod
    def of_parameters(call: CellCall, given: Tensor | None) -> tuple[Tensor, ...]:
        """Gradients of a call's elementwise parameters from those of every unit, (P, N, D)."""
        if given is None:
            return ()
        pairs = zip(given.unbind(0), call.parameters, strict=True)
        return tuple(each.sum_to_size(parameter.shape).to(parameter.dtype) for each, parameter in pairs)

    def _planned_forward(self, inputs: RnnInputs, saves: bool) -> tuple[Tensor, ...] | None:
        """The results of a forward call by its plan; None where it has none."""
        extra = _forward_of(inputs.cell, self.implementation, saves)
        wx, initial = inputs.wx, inputs.initial
        start = None if initial is None else initial[0].to(wx.dtype)
        operands = wx, inputs.r, inputs.b, initial, start, *_params(inputs)
        planned: tuple[Tensor, ...] | None = FORWARD.run(extra, *operands)
        return planned

    def _planned_backward(
        self,
        cell: RecurrentCell,
        inputs: RnnInputs,
        saved: ForwardOutputs,
        d_hidden: Tensor | None,
        d_rest: Tensor | None,
        d_last: Tensor | None,
        clip: float,
    ) -> RnnGradients | None:
        """The gradients by the plan of the call; None where it has none."""
        of_h, of_all = None if d_hidden is None else d_hidden.contiguous(), None
        if d_rest is not None and cell.num_states > 1:
            first = torch.zeros_like(d_rest[0]) if of_h is None else of_h
            of_h, of_all = None, torch.cat([first[None], d_rest])
        last = None
        if d_last is not None:
            last = stacked_ends(d_last[0], d_last[1:] if cell.num_states > 1 else None, saved.states)
        only_h = of_all is None and (d_last is None or cell.num_states == 1)
        extra = backward_of(inputs.cell, self.implementation, clip, only_h, inputs.r, True, inputs.b)
        operands = of_h, of_all, last, inputs.wx, inputs.r, inputs.initial, saved.states, saved.gates, *_params(inputs)
        found = BACKWARD.run(extra, *operands)
        if found is None:
            return None
        found = list(found)
        of_params = found.pop().sum(1) if cell.num_params else None
        wx, r, b, initial = gradients_of_call(extra, found, inputs.r, True, inputs.b)
        assert r is not None
        return RnnGradients(wx, r, b, initial, of_params)


@lru_cache(maxsize=256)
def obstacle_of(cell: CellDefinition) -> str:
    """Why fused kernels cannot compute a cell; empty if they can."""
    reason = next(obstacles(cell), "")
    if not reason:
        try:
            register_cell(cell)
        except ConstrintError as error:
            return str(error)
    return reason


@lru_cache(maxsize=256)
def implementations_of(cell: CellDefinition) -> frozenset[str]:
    """Names of the implementations of a cell that fused kernels can compute."""
    known = register_cell(cell)
    return frozenset(spec.name for direction in SUFFIX for spec in specs_of(known, direction))


@lru_cache(maxsize=256)
def _forward_of(cell: str, implementation: str, saves: bool) -> Forward:
    return Forward(cell, implementation, saves, False if saves else None)


def _params(inputs: RnnInputs) -> tuple[Tensor, ...]:
    return () if inputs.params is None else (inputs.params,)


def inputs_of(call: CellCall) -> RnnInputs:
    """The operands of a call as implementations of recurrent layers take them."""
    wx, cell = call.wx, call.cell
    _, _, _, heads, dim = wx.shape
    if wx.stride()[2:] != (heads * dim, dim, 1):
        wx = wx.contiguous()
    assert call.r is not None
    params = None
    if cell.parameters:
        params = torch.stack([each.expand(heads, dim) for each in call.parameters])
        params = params.to(accumulation_dtype(wx.dtype))
    initial = call.initial
    if initial is None and any(cell.initial):
        values = wx.new_tensor(cell.initial, dtype=accumulation_dtype(wx.dtype))
        initial = values[:, None, None, None].expand(-1, wx.shape[0], heads, dim).contiguous()
    return RnnInputs(
        cell.operation,
        wx,
        call.r.contiguous(),
        None if call.b is None else call.b.contiguous(),
        None if initial is None else initial.contiguous(),
        None if call.lengths is None else call.lengths.contiguous(),
        None if call.reset is None else call.reset.contiguous(),
        params,
    )


def _stacked(results: CellResults) -> Tensor:
    """All states (S, B, T, N, D): one tensor where a forward pass here left its parts beside each other."""
    hidden, rest = results.hidden, results.rest
    if not len(rest):
        return hidden[None]
    size, step = hidden.numel(), hidden.element_size()
    if hidden.is_contiguous() and rest.is_contiguous() and rest.data_ptr() == hidden.data_ptr() + size * step:
        same = hidden.untyped_storage().data_ptr() == rest.untyped_storage().data_ptr()
        if same:
            return hidden.as_strided((len(rest) + 1, *hidden.shape), (size, *hidden.stride()), hidden.storage_offset())
    return torch.cat([hidden[None], rest])


BACKENDS = (GeneratedBackend("fused", AUTO), *(GeneratedBackend(name, name) for name in NAMES))
