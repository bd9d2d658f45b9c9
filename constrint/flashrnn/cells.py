"""Recurrent layers of any cell: `module` makes the `nn.Module` of a definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.utils.rnn import PackedSequence

from constrint.choose import Decision
from constrint.choose.explain import explained
from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.flashrnn.checks import (
    REFERENCE,
    check_clip,
    check_dtype,
    check_exported,
    check_lengths,
    check_like,
    check_reset,
    check_shape,
    check_tensor,
)
from constrint.flashrnn.layers import LayerDirection, Recurrent, backwards, merge
from constrint.flashrnn.observers import may_train, needs_plain_torch
from constrint.flashrnn.recurrence import Results
from constrint.flashrnn.sequences import Rows, flip
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.candidates import LayerDetail
from constrint.kernels.rnn.dispatch import dtype_name, layer_request
from constrint.kernels.rnn.generated.register import register_cell
from constrint.kernels.rnn.language.backends import AUTO, TORCH, CellCall, CellResults
from constrint.kernels.rnn.language.dispatch import provided
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.op import run_cell
from constrint.kernels.rnn.language.torch_code import input_gates, recurrent_gates, reference
from constrint.kernels.rnn.reference import accumulation_dtype


@dataclass(frozen=True)
class CellDirection(LayerDirection):
    """Operands of one direction of a layer: those of a built-in cell, and parameters and inputs of each step."""

    parameters: tuple[Tensor, ...] = ()
    inputs: tuple[Tensor, ...] = ()


class CellLayer(Recurrent):
    """A recurrent module of a definition; subclasses, which `module` makes, have it.

    Parameters are those of `RecurrentParameters`, with rows only for gates that have such a part, and per layer and
    direction `NAME_l0` for every elementwise parameter: (H,) for one per unit, (num_heads,) per head, (1,) per layer.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: Those of
            `torch.nn.LSTM`.
        num_heads: Heads that do not see each other's states.
        backend: `auto`, a back-end's name, `torch`, or `reference`.
        gradient_recurrent_clip: Limit of the gradient that reaches the state before through R; None for none.
    """

    definition: ClassVar[CellDefinition]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        num_heads: int = 1,
        backend: str = AUTO,
        gradient_recurrent_clip: float | None = None,
    ) -> None:
        super().__init__(
            *(self.definition.name, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional),
            *(0, device, dtype),
            num_heads=num_heads,
            backend=backend,
            gradient_recurrent_clip=gradient_recurrent_clip,
        )

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        **inputs: Tensor,
    ) -> tuple[Any, Any]:
        """Run all layers: arguments and results of `Recurrent.forward`, and the cell's inputs by name.

        Args:
            input, hx, lengths, reset: Those of `Recurrent.forward`; `hx` None is the cell's own first states, which a
                reset puts in, too.
            inputs: For each input of the definition a tensor (B, T), or (B, T, H) of one that differs from unit to
                unit, in this order always; all layers and directions read it, unless a first axis
                (layers * directions) gives each its own.
        """
        return self._forward(input, hx, lengths, reset, self._step_inputs(input, inputs))

    def why(
        self,
        input: Tensor,
        hx: Any = None,
        lengths: Any = None,
        reset: Tensor | None = None,
        *,
        gpu: str | None = None,
        **inputs: Tensor,
    ) -> Decision:
        """The decision among fused kernels for a call with these arguments; it prints. Nothing is run.

        Args:
            input, hx, lengths, reset, inputs: Those of `forward`; the input's shape and dtype alone matter.
            gpu: Name of a GPU that is not here, for the decision of a machine with it.

        Raises:
            UnsupportedError: When fused kernels cannot compute the cell, and there is nothing to decide; says why.
        """
        cell = register_cell(self.definition)
        x = input if input.dim() == 3 else input.unsqueeze(0 if self.batch_first else 1)
        sizes = max(1, x.shape[0 if self.batch_first else 1]), self.num_heads * self.num_directions, self.head_dim
        backend = AUTO if self.backend in (REFERENCE, TORCH) else self.backend
        request = layer_request(cell.name, sizes, dtype_name(x.dtype), x.device, backend, LayerDetail())
        return explained(request if gpu is None else replace(request, gpu=load_gpu(gpu), device=None))

    @property
    def mode(self) -> str:
        """The cell's name."""
        return self.definition.name

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the cell's states, in the order of `hx`."""
        return self.definition.states

    def reset_parameters(self) -> None:
        """Draw weights and biases as `torch.nn` does; elementwise parameters get their first values."""
        super().reset_parameters()
        with torch.no_grad():
            for layer in range(self.num_layers):
                for direction in range(self.num_directions):
                    for each in self.definition.parameters:
                        self._weight(each.name, layer, direction).fill_(each.initial)

    def __prepare_scriptable__(self) -> NoReturn:
        raise UnsupportedError(f"torch.jit.script does not know cell {self.definition.name!r}: use torch.export.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _blank, (self.definition,), self.__dict__

    def _check_backend(self) -> None:
        names = (AUTO, REFERENCE, TORCH, *(each.name for each in provided()))
        if self.backend not in names:
            raise UnknownNameError("backend", self.backend, names)

    def _shapes(self, layer: int, direction: int) -> dict[str, tuple[int, ...]]:
        cell, suffix = self.definition, self._suffix(layer, direction)
        inputs = self.input_size if layer == 0 else self.output_size * self.num_directions
        rows = {"ih": len(input_gates(cell)) * self.hidden_size, "hh": len(recurrent_gates(cell)) * self.hidden_size}
        columns = {"ih": inputs, "hh": self.head_dim}
        shapes: dict[str, tuple[int, ...]] = {
            f"weight_{part}_{suffix}": (count, columns[part]) for part, count in rows.items() if count
        }
        if self.bias:
            shapes |= {f"bias_{part}_{suffix}": (count,) for part, count in rows.items() if count}
        sizes = {"unit": self.hidden_size, "head": self.num_heads, "layer": 1}
        return shapes | {f"{each.name}_{suffix}": (sizes[each.kind],) for each in cell.parameters}

    def _step_inputs(self, x: Any, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The cell's inputs (layers * directions or 1, B, T, N or 1, D or 1), in the definition's order."""
        name = type(self).__name__
        declared = self.definition.inputs
        wrong = sorted(set(given) ^ {each.name for each in declared})
        if wrong:
            names = ", ".join(each.name for each in declared) or "none"
            raise UsageError(f"{name}: inputs of a step are {names}; {wrong[0]!r} is missing or not among them.")
        if not declared:
            return ()
        if isinstance(x, PackedSequence):
            batch, time = int(x.batch_sizes[0]), len(x.batch_sizes)
        elif x.dim() == 3:
            batch, time = (x.shape[0], x.shape[1]) if self.batch_first else (x.shape[1], x.shape[0])
        else:
            batch, time = 1, x.shape[0]
        made = []
        for each in declared:
            value = given[each.name]
            if not isinstance(value, Tensor):
                raise TypeError(f"{name}: {each.name} must be a torch.Tensor, got {type(value).__name__}.")
            shape: tuple[int, ...] = (batch, time, self.hidden_size) if each.kind == "unit" else (batch, time)
            several = self.num_layers * self.num_directions, *shape
            if tuple(value.shape) not in (shape, several):
                raise UsageError(f"{name}: {each.name} must be {shape} or {several}, got {tuple(value.shape)}.")
            value = value if value.dim() == len(several) else value.unsqueeze(0)
            heads = (self.num_heads, self.head_dim) if each.kind == "unit" else (1, 1)
            made.append(value.reshape(-1, batch, time, *heads))
        return tuple(made)

    def _sorted(self, extra: Any, packed: PackedSequence) -> Any:
        if packed.sorted_indices is None:
            return extra
        return tuple(value.index_select(1, packed.sorted_indices) for value in extra)

    def _by_library(self, *arguments: Any) -> None:
        return None

    def _packed_by_library(self, *arguments: Any) -> None:
        return None

    def _direction(
        self,
        layer: int,
        direction: int,
        rows: Rows,
        states: tuple[Tensor, ...] | None,
        reset: Tensor | None,
        extra: Any,
    ) -> CellDirection:
        cell = self.definition
        shape = self.num_heads, self.head_dim
        of_input, of_r = len(input_gates(cell)), len(recurrent_gates(cell))
        bias = self._weight("bias_ih", layer, direction) if self.bias and of_input else None
        b = self._weight("bias_hh", layer, direction) if self.bias and of_r else None
        if bias is not None and b is not None and not any(g.is_apart for g in cell.gates) and may_train(bias, b):
            # The input carries both biases: their gradient is summed once.
            bias, b = bias + b, None
        wx = rows.project(self._weight("weight_ih", layer, direction), bias, is_reverse=bool(direction))
        own = layer * self.num_directions + direction
        inputs = tuple(value[own if len(value) > 1 else 0] for value in extra)
        if direction:
            inputs = tuple(flip(value, rows.lengths) for value in inputs)
            reset = None if reset is None else backwards(reset, rows.lengths)
        kinds = {"unit": shape, "head": (self.num_heads, 1), "layer": (1, 1)}
        return CellDirection(
            wx.view(*wx.shape[:2], of_input, *shape),
            self._weight("weight_hh", layer, direction).view(of_r, *shape, self.head_dim) if of_r else wx.new_empty(0),
            None if b is None else b.view(of_r, *shape),
            None if states is None else torch.stack([state[own] for state in states]).view(len(states), -1, *shape),
            reset,
            tuple(self._weight(p.name, layer, direction).view(kinds[p.kind]) for p in cell.parameters),
            inputs,
        )

    def _is_one_call(self, rows: Any) -> bool:
        """Never: `layer_node.py` has the built-in cells alone."""
        return False

    def _merge(self, directions: Any) -> CellDirection:
        both = merge(directions) if len(recurrent_gates(self.definition)) else _without_r(directions)
        heads = self.num_heads
        return CellDirection(
            *(both.wx, both.r, both.b, both.states, both.reset),
            tuple(
                torch.cat([value.expand(heads, -1) for value in parts])
                for parts in zip(*(one.parameters for one in directions), strict=True)
            ),
            tuple(
                torch.cat([value.expand(-1, -1, heads, -1) for value in parts], 2)
                for parts in zip(*(one.inputs for one in directions), strict=True)
            ),
        )

    def _recur(self, operands: Any, lengths: Tensor | None) -> Results:
        wx = operands.wx
        call = CellCall(
            self.definition,
            wx,
            operands.r.to(wx.dtype) if len(recurrent_gates(self.definition)) else None,
            operands.b,
            operands.states,
            operands.parameters,
            operands.inputs,
            lengths,
            operands.reset,
            check_clip(self.gradient_recurrent_clip),
        )
        results = _results(call, self.backend)
        return results.hidden, results.last[0], results.last[1:] if len(self.state_names) > 1 else None


def module(cell: CellDefinition, name: str | None = None) -> type[CellLayer]:
    """The `nn.Module` class of a cell.

    Args:
        cell: The definition.
        name: The class's name; else that of the cell in capitals, `PeepholeLstm` of `peephole_lstm`.

    Raises:
        UsageError: When `cell` is no definition, or has no gate that reads the layer's input.
    """
    if not isinstance(cell, CellDefinition):
        raise UsageError(f"module takes a cell that constrint.flashrnn.cell has defined, got {type(cell).__name__}.")
    if not input_gates(cell):
        raise UsageError(f"module: no gate of cell {cell.name!r} uses its input's part, so it would read no input.")
    return _class_of(cell, name or "".join(part.title() for part in cell.name.split("_")))


@lru_cache(maxsize=256)
def _class_of(cell: CellDefinition, name: str) -> type[CellLayer]:
    return type(name, (CellLayer,), {"definition": cell, "__doc__": CellLayer.__doc__, "__module__": __name__})


def run(
    cell: CellDefinition,
    wx: Tensor,  # (B, T, X, N, D)
    r: Tensor | None,  # (G, N, D out, D in)
    b: Tensor | None = None,  # (G, N, D)
    states: Tensor | None = None,  # (S, B, N, D)
    *,
    parameters: Mapping[str, Tensor] | None = None,
    inputs: Mapping[str, Tensor] | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    reset: Tensor | None = None,
    backend: str = AUTO,
) -> tuple[Tensor, Tensor]:
    """Run a cell over projected inputs, as `rnn` does for built-in cells.

    Args:
        cell: The definition.
        wx: Projected inputs of the X gates with an input's part, in the definition's order.
        r, b: Recurrent weights and biases of the G gates with a recurrent part; None where there is none.
        states: States before the first step; None for the cell's own.
        parameters: By name (N, D), or (N, 1) of one per head, or (1, 1).
        inputs: By name (B, T, N, D), or (B, T, 1, 1) of one per sequence.
        lengths, reset: Those of `rnn`; a reset puts the cell's own first states in.
        backend: `auto`, a back-end's name, `torch`, or `reference`.

    Returns:
        The first state of all steps (B, T, N, D), and all states at the end of each sequence (S, B, N, D).

    Raises:
        UsageError: For a shape, dtype, device or name that does not fit.
    """
    if not isinstance(cell, CellDefinition):
        raise UsageError(f"run takes a cell that constrint.flashrnn.cell has defined, got {type(cell).__name__}.")
    wx = check_dtype("wx", check_tensor("wx", wx))
    if wx.dim() != 5 or wx.shape[2] != len(input_gates(cell)):
        raise UsageError(f"wx must be (B, T, {len(input_gates(cell))}, N, D), got {tuple(wx.shape)}.")
    batch, time, _, heads, dim = wx.shape
    gates, kind = len(recurrent_gates(cell)), accumulation_dtype(wx.dtype)
    for name, value, shape in (
        ("r", r, (gates, heads, dim, dim) if gates else None),
        ("b", b, (gates, heads, dim) if b is not None else None),
        ("states", states, (len(cell.states), batch, heads, dim) if states is not None else None),
    ):
        if shape is not None:
            check_like(name, check_tensor(name, value), wx)
            check_shape(name, value, shape, name)  # type: ignore[arg-type]
        elif value is not None:
            raise UsageError(f"{name} must be None: no gate of the cell has a recurrent part.")
    sizes = {"unit": (heads, dim), "head": (heads, 1), "layer": (1, 1)}
    steps = {"unit": (batch, time, heads, dim), "sequence": (batch, time, 1, 1)}
    call = CellCall(
        cell,
        wx,
        None if r is None else r.to(wx.dtype),
        b,
        None if states is None else states.to(kind),
        _named("parameters", parameters, {each.name: sizes[each.kind] for each in cell.parameters}, wx),
        _named("inputs", inputs, {each.name: steps[each.kind] for each in cell.inputs}, wx),
        None if lengths is None else check_lengths(lengths, batch, time, wx.device),
        None if reset is None else check_reset(reset, batch, time, wx),
    )
    results = _results(call, backend)
    return results.hidden, results.last


def _named(
    what: str, given: Mapping[str, Tensor] | None, shapes: Mapping[str, tuple[int, ...]], wx: Tensor
) -> tuple[Tensor, ...]:
    """Tensors by name, of these shapes, in the accumulation dtype."""
    given = given or {}
    if set(given) != set(shapes):
        raise UsageError(f"{what} must be {', '.join(shapes) or 'none'}; got {', '.join(given) or 'none'}.")
    for name, shape in shapes.items():
        check_like(name, check_tensor(name, given[name]), wx)
        check_shape(name, given[name], shape, what)
    return tuple(given[name].to(accumulation_dtype(wx.dtype)) for name in shapes)


def _results(call: CellCall, backend: str) -> CellResults:
    """The results of a checked call, whose states, parameters and inputs may be of any floating-point type."""
    if needs_plain_torch() or (backend == REFERENCE and not is_compiling()):
        check_exported(call.wx.shape[1])
        kind = accumulation_dtype(call.wx.dtype)
        initial = None if call.initial is None else call.initial.to(kind)
        parameters, inputs = (tuple(each.to(kind) for each in some) for some in (call.parameters, call.inputs))
        return reference(replace(call, initial=initial, parameters=parameters, inputs=inputs))
    trained = (call.wx, call.r, call.b, call.initial, *call.parameters, *call.inputs)
    return run_cell(call, TORCH if backend == REFERENCE else backend, trains=may_train(*trained))


def _blank(cell: CellDefinition) -> CellLayer:
    """A module of a cell without parameters, which unpickling fills in."""
    made = module(cell)
    return made.__new__(made)


def _without_r(directions: Sequence[CellDirection]) -> LayerDirection:
    """Both directions of a cell without recurrent products."""
    nothing = directions[0].r
    widened = [replace(one, r=nothing.new_empty(0, 1)) for one in directions]
    return replace(merge(list(widened)), r=nothing)
