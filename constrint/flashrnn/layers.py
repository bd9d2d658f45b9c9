"""The forward pass of all recurrent modules: check the input, decide, and run.

`decisions.library_of` says whether a library runs the whole call. Otherwise each layer projects its input
(`sequences.py`) and runs one recurrence for both directions (`recurrence.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.nn.utils.rnn import PackedSequence

from constrint.choose import Decision
from constrint.choose.explain import explained
from constrint.flashrnn import calls, checks, layer_node
from constrint.flashrnn.compiled import Outside, is_alone
from constrint.flashrnn.decisions import DENSE, LIBRARIES, PACKED, CallKind, library_of, request_of, unsupported
from constrint.flashrnn.layer_node import LayerShape, shape_of
from constrint.flashrnn.libraries import cpu, onestep
from constrint.flashrnn.libraries.scripting import torch_module
from constrint.flashrnn.observers import is_exporting_onnx, may_train
from constrint.flashrnn.parameters import RecurrentParameters
from constrint.flashrnn.recurrence import Results, RnnOptions, recur, through_operator
from constrint.flashrnn.sequences import AnyRows, DenseRows, PackedRows, Rows, flip, time_first
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import AUTO
from constrint.kernels.rnn.reference import accumulation_dtype


@dataclass(frozen=True)
class LayerDirection:
    """Operands of one direction of a layer, in the terms of `rnn`; the second direction runs backwards in time."""

    wx: Tensor  # (B, T, G, N, D)
    r: Tensor  # (G, N, D, D)
    b: Tensor | None  # (G, N, D)
    states: Tensor | None  # (S, B, N, D)
    reset: Tensor | None  # (B, T)


class Recurrent(RecurrentParameters):
    """A recurrent module of any cell; `modules` has one class for each."""

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Run all layers.

        Args:
            input: (T, B, input_size), (B, T, input_size) if `batch_first`, (T, input_size), or a PackedSequence.
            hx: Initial states as `torch.nn` takes them: a tensor (layers * directions, B, size), or a tuple of such
                tensors, one for each state (LSTM: h, c; sLSTM: h, c, n, m).
            lengths: (B,) steps of each sequence of a padded batch; outputs past the end are zero.
            reset: (B, T), in this order always; true where a sequence starts anew.

        Returns:
            The output of the last layer, shaped as `input`, and the states at the end of each sequence, as `hx`.
        """
        if is_dynamo_compiling() and is_alone():
            return Outside.run(self, input, hx, lengths, reset, None)  # type: ignore[misc, no-any-return]
        return self._forward(input, hx, lengths, reset, None)

    def _forward(self, input: Any, hx: Any, lengths: Any, reset: Tensor | None, extra: Any) -> tuple[Any, Any]:
        """`forward`; `extra` is what a cell reads at every step besides its input, for `_direction`."""
        if hx is None and lengths is None and reset is None and extra is None:
            known = calls.seen_before(self, input)
            if known is not None:
                return known
        if isinstance(input, PackedSequence):
            if lengths is not None or reset is not None:
                raise ValueError("lengths and reset go with a dense input: a PackedSequence carries its own lengths.")
            return self._forward_packed(input, hx, extra)
        if input.dim() not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        is_batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        x = input if is_batched else input.unsqueeze(batch_dim)
        batch, time = x.shape[batch_dim], x.shape[1 - batch_dim]
        is_step = is_batched and time == 1 and lengths is None and reset is None and extra is None
        if is_step and x.is_cuda and not is_compiling() and onestep.is_plain(self):
            # A plan's look-up compares shapes and dtypes: only calls without a plan are checked below.
            results = onestep.run(self, x, hx)
            if results is not None:
                return results[0], self._hidden(results[1])
        self._check_input(x)
        if not is_compiling() and time == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        checks.check_exported(time)
        states = self._states_of(hx, batch, x.device, is_batched=is_batched)
        steps = None if lengths is None else checks.check_lengths(lengths, batch, time, x.device)
        reset = None if reset is None else checks.check_reset(reset, batch, time, x)
        results = self._by_library(x, batch, time, states, steps, reset)
        if results is None:
            rows, last = self._layers(DenseRows(x, self.batch_first, steps), states, reset, extra)
            results = (rows.x if self.batch_first else time_first(rows.x)), last
        output, last = results
        if not is_batched:
            return output.squeeze(batch_dim), self._hidden(tuple(state.squeeze(1) for state in last))
        return output, self._hidden(last)

    def why(
        self,
        input: Tensor,
        hx: Any = None,
        lengths: Any = None,
        reset: Tensor | None = None,
        *,
        gpu: str | None = None,
    ) -> Decision:
        """The decision for a call with these arguments; it prints. Nothing is run.

        Args:
            input, hx, lengths, reset: Those of `forward`; `hx` makes no difference.
            gpu: Name of a GPU that is not here, for the decision of a machine with it.

        Raises:
            UnsupportedError: When the module names a library that cannot run the call.
            InfeasibleError: When no valid configuration has the values of the module's `config`; carries the conflict.
        """
        x = input if input.dim() == 3 else input.unsqueeze(0 if self.batch_first else 1)
        batch, time = x.shape[0 if self.batch_first else 1], x.shape[1 if self.batch_first else 0]
        kind = CallKind(lengths is not None, reset is not None)
        return explained(request_of(self, x, batch, time, kind, gpu))

    def as_torch(self) -> nn.Module:
        """The module of `torch.nn` that computes the same on the same parameters; nothing is copied.

        For code that takes `torch.nn`'s classes alone, `torch.ao.quantization.quantize_dynamic` say.

        Raises:
            UnsupportedError: When `torch.nn` has no such module.
        """
        return torch_module(self)

    def __prepare_scriptable__(self) -> nn.Module:
        """The module that torch.jit.script compiles in the place of this one."""
        return torch_module(self)

    def _forward_packed(self, packed: PackedSequence, hx: Any, extra: Any) -> tuple[PackedSequence, Any]:
        if packed.data.dim() != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {packed.data.dim()}")
        self._check_input(packed.data)
        states = self._states_of(hx, int(packed.batch_sizes[0]), packed.data.device, is_batched=True)
        if states is not None and packed.sorted_indices is not None:
            states = tuple(state.index_select(1, packed.sorted_indices) for state in states)
        results = self._packed_by_library(packed, states)
        if results is None:
            rows, last = self._layers(PackedRows.of(packed), states, None, self._sorted(extra, packed))
            results = rows.data, last
        data, last = results
        if packed.unsorted_indices is not None:
            last = tuple(state.index_select(1, packed.unsorted_indices) for state in last)
        output = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return output, self._hidden(last)

    def _by_library(
        self,
        x: Tensor,
        batch: int,
        time: int,
        states: tuple[Tensor, ...] | None,
        lengths: Tensor | None,
        reset: Tensor | None,
    ) -> Any:
        """The output and the last states of a dense batch by a library; None where the recurrences run."""
        if is_exporting_onnx():
            return cpu.run_for_export(self, x, states) if lengths is None and reset is None else None
        kind = DENSE if lengths is None and reset is None else CallKind(lengths is not None, reset is not None)
        library = library_of(self, x, batch, time, kind)
        return None if library is None else self._required(library.run_dense(self, x, states, lengths))

    def _packed_by_library(self, packed: PackedSequence, states: tuple[Tensor, ...] | None) -> Any:
        """The output rows and the last states of packed rows by a library; None where the recurrences run."""
        if is_exporting_onnx():
            return None
        batch, time = int(packed.batch_sizes[0]), len(packed.batch_sizes)
        library = library_of(self, packed.data, batch, time, PACKED)
        return None if library is None else self._required(library.run_packed(self, packed, states))

    def _required(self, results: Any) -> Any:
        """The results of a library; raises where a module names the library and it gave none."""
        if results is None and self.backend in LIBRARIES:
            raise unsupported(self.backend, "it takes plain dense tensors on the CPU, of the shapes of torch.nn")
        return results

    def _sorted(self, extra: Any, packed: PackedSequence) -> Any:
        """`extra` with the sequences in the order of a packed input."""
        return extra

    def _hidden(self, last: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        return last[0] if len(last) == 1 else last

    def _layers(
        self, rows: AnyRows, states: tuple[Tensor, ...] | None, reset: Tensor | None, extra: Any
    ) -> tuple[AnyRows, tuple[Tensor, ...]]:
        """Every layer in turn; each state is (layers * directions, B, size)."""
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                rows = rows.drop(self.dropout)
            hidden = []
            results = self._directions(layer, rows, states, reset, extra)
            for direction, (h, last) in enumerate(results):
                if self.proj_size:
                    weight = self._weight("weight_hr", layer, direction)
                    start = None if states is None else states[0][layer * self.num_directions + direction]
                    h, last = _project_out(weight, h, last, rows.lengths, start)
                hidden.append(h)
                ends.append(last)
            rows = rows.follow(hidden[0], hidden[1] if self.bidirectional else None)
        if len(ends) == 1:
            return rows, ends[0]
        return rows, tuple(torch.cat(parts) for parts in zip(*ends, strict=True))

    def _directions(
        self, layer: int, rows: Rows, states: tuple[Tensor, ...] | None, reset: Tensor | None, extra: Any
    ) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
        """Per direction all h (B, T, H), and the last states (1, B, H) each.

        Both directions run at once, as heads that do not see each other, unless `reset` sets them apart.
        """
        if states is None and reset is None and extra is None and self._is_one_call(rows):
            shape = self.shape_of_layer(batch_first=rows.batch_first)  # type: ignore[union-attr]
            weights = self._weight("weight_ih", layer, 0), self._weight("weight_hh", layer, 0)
            biases = (
                (self._weight("bias_ih", layer, 0), self._weight("bias_hh", layer, 0)) if self.bias else (None,) * 2
            )
            h, last_h, last_rest = layer_node.run(shape, rows.x, *weights, *biases)  # type: ignore[union-attr]
            return [(h, layer_node.ends_of(last_h, last_rest))]
        recurrences = [self._direction(layer, d, rows, states, reset, extra) for d in range(self.num_directions)]
        if self.bidirectional and reset is None:
            recurrences = [self._merge(recurrences)]
        results = []
        copies = self.num_directions // len(recurrences)
        for operands in recurrences:
            hidden, end_h, end_rest = self._recur(operands, rows.lengths)
            if copies == 1:
                results.append((hidden.flatten(2), layer_node.ends_of(end_h, end_rest)))
                continue
            rest = (None,) * copies if end_rest is None else end_rest.chunk(copies, 2)
            for h, last_h, last_rest in zip(hidden.chunk(copies, 2), end_h.chunk(copies, 1), rest, strict=True):
                results.append((h.flatten(2), layer_node.ends_of(last_h, last_rest)))
        return results

    def _is_one_call(self, rows: Rows) -> bool:
        """Whether a layer without initial states and resets runs in one call (`layer_node.py`)."""
        if not isinstance(rows, DenseRows) or rows.lengths is not None or self.bidirectional or self.proj_size:
            return False
        return self.backend != checks.REFERENCE and layer_node.takes(rows.x)

    def is_usual(self) -> bool:
        """Whether the class runs its layers as this one does."""
        own = type(self)
        return all(getattr(own, name) is getattr(Recurrent, name) for name in ("_directions", "_direction", "_recur"))

    def shape_of_layer(self, *, batch_first: bool) -> LayerShape:
        """Everything that a layer's node depends on beside its tensors."""
        return shape_of(self._options(), self.num_heads, self.head_dim, batch_first)

    def _merge(self, directions: Any) -> Any:
        """Both directions as one recurrence of twice the heads."""
        return merge(directions)

    def _recur(self, operands: Any, lengths: Tensor | None) -> Results:
        """h of all steps (B, T, N, D), the last h (B, N, D), the other last states (S - 1, B, N, D)."""
        wx, r, b, states = operands.wx, operands.r, operands.b, operands.states
        options = self._options()
        if is_compiling() and options.backend == AUTO and not is_exporting_onnx():
            initial = None if states is None else states.to(accumulation_dtype(wx.dtype))
            return through_operator(options, wx, r.to(wx.dtype), b, initial, lengths, operands.reset)
        return recur(options, wx, r, b, states, lengths, operands.reset, is_own=True)

    def _options(self) -> RnnOptions:
        clip = checks.check_clip(self.gradient_recurrent_clip)
        configs = () if self.config is None else checks.check_configs(self.config)
        backend = AUTO if self.backend in LIBRARIES else self.backend
        return RnnOptions(self.cell, backend, clip, configs=configs)

    def _direction(
        self,
        layer: int,
        direction: int,
        rows: Rows,
        states: tuple[Tensor, ...] | None,
        reset: Tensor | None,
        extra: Any,
    ) -> Any:
        shape = (CELLS[self.cell].num_gates, self.num_heads, self.head_dim)
        bias, b = None, None
        if self.bias:
            bias, b = self._weight("bias_ih", layer, direction), self._weight("bias_hh", layer, direction)
            if not CELLS[self.cell].keeps_parts_apart and may_train(bias, b):
                # The input carries both biases: their gradient is summed once.
                bias, b = bias + b, None
            else:
                b = b.view(shape)
        wx = rows.project(self._weight("weight_ih", layer, direction), bias, is_reverse=bool(direction))
        weight = self._weight("weight_hh", layer, direction)
        if self.proj_size:
            # r @ h of the unprojected h is weight_hh @ (weight_hr @ h).
            weight = weight @ self._weight("weight_hr", layer, direction)
        if reset is not None and direction:
            reset = backwards(reset, rows.lengths)
        operands = LayerDirection(wx.view(*wx.shape[:2], *shape), weight.view(*shape, self.head_dim), b, None, reset)
        if states is None:
            return operands
        own = [state[layer * self.num_directions + direction] for state in states]
        if self.proj_size:
            operands, own[0] = self._project_in(layer, direction, operands, own[0])
        return replace(operands, states=torch.stack(own).view(len(own), -1, *shape[1:]))

    def _project_in(
        self, layer: int, direction: int, operands: LayerDirection, h: Tensor
    ) -> tuple[LayerDirection, Tensor]:
        """Let the projected initial h (B, P) act on the first step's inputs; the unprojected h starts at zero."""
        first = (h @ self._weight("weight_hh", layer, direction).t()).view(-1, *operands.wx.shape[2:])
        if operands.reset is not None and operands.reset.shape[1]:
            first = torch.where(operands.reset[:, 0, None, None, None], 0.0, first)
        wx = torch.cat([operands.wx[:, :1] + first[:, None], operands.wx[:, 1:]], 1)
        return replace(operands, wx=wx), h.new_zeros(h.shape[0], self.hidden_size)


Outside.layer = Recurrent


def _project_out(
    weight: Tensor,  # (P, H)
    h: Tensor,  # (B, T, H)
    last: tuple[Tensor, ...],  # (1, B, H) each
    lengths: Tensor | None,
    initial: Tensor | None,  # (B, P)
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Project all h and the last one; where no step ran the last one is the initial one."""
    end = last[0] @ weight.t()
    if initial is not None and lengths is not None:
        end = torch.where((lengths == 0)[:, None], initial.to(end.dtype), end)
    return h @ weight.t(), (end, *last[1:])


def backwards(reset: Tensor, lengths: Tensor | None) -> Tensor:
    """Resets (B, T) of the backward direction: a sequence starts anew at the step before the one where it does."""
    return flip(torch.cat([reset[:, 1:], torch.zeros_like(reset[:, :1])], 1), lengths)


def merge(directions: list[LayerDirection]) -> LayerDirection:
    """Both directions as one recurrence of twice the heads."""

    def join(tensors: list[Tensor | None], dim: int) -> Tensor | None:
        there = [tensor for tensor in tensors if tensor is not None]
        return torch.cat(there, dim) if there else None

    return LayerDirection(
        torch.cat([one.wx for one in directions], 3),
        torch.cat([one.r for one in directions], 1),
        join([one.b for one in directions], 1),
        join([one.states for one in directions], 2),
        None,
    )
