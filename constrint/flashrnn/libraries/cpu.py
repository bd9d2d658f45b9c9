"""Whole modules by torch's own CPU kernels, which are several times faster than the loop over steps.

`refusal_of_call` says whether they can run a kind of call, `run_dense` and `run_packed` run it. These return None for
operands that the kernels do not take (tensors of a subclass, weights of other shapes or dtypes): the module then runs
its recurrences. An ONNX export takes the kernels' operators on any device: ONNX has the same.

States and sums are fp32 for 16-bit inputs, as in `rnn`. Torch's 16-bit kernels round some of them at every step, so an
LSTM runs in fp32 on converted operands. The other cells do not: their fp32 kernels take longer than the loop does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import _VF, Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from constrint.flashrnn.checks import DTYPES
from constrint.flashrnn.observers import autocast_dtype, needs_plain_torch
from constrint.kernels.rnn.candidates import torch_refusal
from constrint.kernels.rnn.dispatch import dtype_name
from constrint.kernels.rnn.reference import accumulation_dtype

if TYPE_CHECKING:
    from constrint.flashrnn.decisions import CallKind
    from constrint.flashrnn.parameters import RecurrentParameters

States = tuple[Tensor, ...]
#: All outputs (or rows of a packed sequence), and the last states (layers * directions, B, size) each.
Results = tuple[Tensor, States]

#: Torch's kernel of each cell.
_KERNELS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "lstm": _VF.lstm,
    "gru": _VF.gru,
    "elman": _VF.rnn_tanh,
    "elman_relu": _VF.rnn_relu,
}
#: Subclasses of tensors have operators of their own.
PLAIN = (Tensor, nn.Parameter)
#: Names and shapes of a module's weights, in the order of `torch.nn`, by the options that they follow from.
_LAYOUTS: dict[tuple[Any, ...], tuple[tuple[str, tuple[int, ...]], ...]] = {}


def refusal_of_call(module: RecurrentParameters, x: Tensor, kind: CallKind) -> str:
    """Why torch's kernels do not run a kind of call; empty if they do."""
    if not x.is_cpu:
        return f"torch's layers run on the CPU, the input is on {x.device}"
    if module.gradient_recurrent_clip is not None or module.config is not None:
        return "torch's layers have no gradient_recurrent_clip and no config"
    if kind.has_resets:
        return "torch's layers take no reset"
    if needs_plain_torch() or torch._C._len_torch_dispatch_stack():
        return "transforms and modes of torch cannot look into it"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    return torch_refusal(module.cell, module.num_heads, dtype_name(x.dtype))


def run_dense(
    module: RecurrentParameters,
    x: Tensor,  # (T, B, features), or (B, T, features) if `module.batch_first`
    states: States | None,  # (layers * directions, B, size) each
    lengths: Tensor | None,  # (B,)
) -> Results | None:
    """Run all layers of a checked dense batch; None for operands that the kernels do not take."""
    weights = _weights(module, x, states)
    if weights is None:
        return None
    first = module.batch_first
    batch, time = x.shape[0 if first else 1], x.shape[1 if first else 0]
    shortest = time if lengths is None else int(lengths.min())
    if shortest == 0:
        return None  # A packed sequence holds none that is empty.
    hidden = _hidden(module, x, batch, states)
    if lengths is not None and shortest < time:
        return _run_padded(module, x, hidden, lengths, weights)
    output, last = _run(module, x, (), hidden, weights, (first,))
    return output.contiguous(), last


def run_packed(module: RecurrentParameters, packed: PackedSequence, states: States | None) -> Results | None:
    """Run all layers of a checked packed sequence, whose order `states` have; None as in `run_dense`."""
    weights = _weights(module, packed.data, states)
    if weights is None:
        return None
    hidden = _hidden(module, packed.data, int(packed.batch_sizes[0]), states)
    return _run(module, packed.data, (packed.batch_sizes,), hidden, weights, ())


def run_for_export(module: RecurrentParameters, x: Tensor, states: States | None) -> Results | None:
    """Run by the operator that ONNX translates into its own LSTM, GRU or RNN, on any tensors of any device.

    None where ONNX has no operator for the module, whatever its back-end: for projections, heads and sLSTM.
    """
    has_one = module.cell in _KERNELS and module.num_heads == 1 and not module.proj_size
    if not has_one or autocast_dtype(x.device) is not None:
        return None
    wide = accumulation_dtype(x.dtype)
    weights = [getattr(module, name).to(wide) for name, _ in layout_of(module)]
    hidden = _hidden(module, x, x.shape[0 if module.batch_first else 1], states)
    return _run(module, x, (), hidden, weights, (module.batch_first,))


def _run_padded(
    module: RecurrentParameters, x: Tensor, hidden: States, lengths: Tensor, weights: list[Tensor]
) -> Results:
    """Pack a batch whose sequences have at least one step, run it, and pad it again with zeros."""
    first, time = module.batch_first, x.shape[1 if module.batch_first else 0]
    packed = pack_padded_sequence(x, lengths.long(), first, enforce_sorted=False)
    sizes, order, back = packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
    assert order is not None
    assert back is not None
    hidden = tuple(state.index_select(1, order) for state in hidden)
    rows, last = _run(module, packed.data, (sizes,), hidden, weights, ())
    output, _ = pad_packed_sequence(PackedSequence(rows, sizes, order, back), first, total_length=time)
    return output.contiguous(), tuple(state.index_select(1, back) for state in last)


def _run(
    module: RecurrentParameters,
    x: Tensor,
    sizes: tuple[Tensor, ...],
    hidden: States,
    weights: list[Tensor],
    order: tuple[bool, ...],
) -> Results:
    """Call the kernel of the module's cell; `sizes` are those of packed rows, `order` is that of a dense batch."""
    dtype = x.dtype
    is_narrow = dtype != weights[0].dtype
    rows = x.to(weights[0].dtype) if is_narrow else x
    options = (module.bias, module.num_layers, module.dropout, module.training, module.bidirectional, *order)
    if module.proj_size:
        _silence_remark()
    start = hidden if module.cell == "lstm" else hidden[0]
    output, *last = _KERNELS[module.cell](rows, *sizes, start, weights, *options)
    return (output.to(dtype), tuple(state.to(dtype) for state in last)) if is_narrow else (output, tuple(last))


@lru_cache(maxsize=1)
def _silence_remark() -> None:
    """Torch remarks once per process that another of its kernels runs projections: let it do so unheard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (torch.zeros(1, 1, size, dtype=torch.float32, device="cpu") for size in (1, 2))
        weights = [two[0].expand(4, 2).reshape(8, 1)] * 2 + [two[0]]
        _VF.lstm(one, (one, two), weights, False, 1, 0.0, False, False, False)


def _hidden(module: RecurrentParameters, x: Tensor, batch: int, states: States | None) -> States:
    """The initial states in the accumulation dtype, zeros if none were given; h is as wide as the output."""
    dtype = accumulation_dtype(x.dtype)
    if states is not None:
        return tuple(state.to(dtype) for state in states)
    rows = module.num_layers * module.num_directions
    h = x.new_zeros((rows, batch, module.output_size), dtype=dtype)
    if module.cell != "lstm":
        return (h,)
    return h, x.new_zeros((rows, batch, module.hidden_size), dtype=dtype) if module.proj_size else h


def _weights(module: RecurrentParameters, x: Tensor, states: States | None) -> list[Tensor] | None:
    """The weights in the accumulation dtype, or None where the kernels do not take the operands.

    The kernels do not check the weights' shapes, so this does.
    """
    dtype = x.dtype
    if not _is_plain(x) or not x.numel():
        return None
    if states is not None and not all(_is_plain(state) and state.dtype in DTYPES for state in states):
        return None
    registered: Mapping[str, Tensor | None] = module._parameters
    weights = []
    for name, shape in layout_of(module):
        weight = registered.get(name)
        if weight is None:  # a parametrization computes it
            weight = getattr(module, name)
        if not _is_plain(weight) or weight.dtype != dtype or weight.shape != shape:
            return None
        weights.append(weight)
    wide = accumulation_dtype(dtype)
    return weights if dtype == wide else [weight.to(wide) for weight in weights]


def _is_plain(x: object) -> bool:
    """Whether it is a dense tensor on the CPU, of no subclass."""
    return type(x) in PLAIN and x.is_cpu and x.layout == torch.strided  # type: ignore[attr-defined]


def layout_of(module: RecurrentParameters) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names and shapes of a module's weights, in the order of `torch.nn`."""
    options = (module.cell, module.input_size, module.hidden_size, module.num_layers)
    key = (*options, module.bias, module.bidirectional, module.proj_size)
    layout = _LAYOUTS.get(key)
    if layout is None:
        places = [(layer, d) for layer in range(module.num_layers) for d in range(module.num_directions)]
        layout = _LAYOUTS[key] = tuple(item for place in places for item in module._shapes(*place).items())
    return layout
