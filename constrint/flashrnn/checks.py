"""Checks of the arguments of `rnn` and of modules: each message names the argument, the rule and the value."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.flashrnn.observers import autocast_dtype, is_exporting_onnx, is_symbolic
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.dispatch import AUTO, Configs, list_backends
from constrint.kernels.rnn.spec import SUFFIX

#: Back-end that is no operator: plain PyTorch under autograd.
REFERENCE = "reference"
#: Back-ends that run the whole time loop in one kernel.
FUSED = ("cuda", "triton")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_operands(
    cell: str, backend: str, wx: Any, r: Any, b: Any, states: Any, lengths: Any, reset: Any, *, is_own: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Check the arguments of `rnn`.

    Args:
        cell, backend, wx, r, b, states, lengths, reset: Those of `rnn`.
        is_own: Whether a module has checked `lengths`.

    Returns:
        The tensors as back-ends take them: wx and r in autocast's dtype, states (S, B, N, D), lengths as int32.

    Raises:
        UsageError: For a shape, dtype, device or value that does not fit.
    """
    kind = check_cell(cell)
    check_backend(backend, cell)
    wx, r = check_wx(wx, kind), check_tensor("r", r)
    dtype = autocast_dtype(wx.device)
    if dtype is not None and torch.float64 not in (wx.dtype, r.dtype):
        wx, r = wx.to(dtype), r.to(dtype)
    check_fused(backend, wx)
    batch, time, gates, heads, dim = wx.shape
    check_shape("r", r, (gates, heads, dim, dim), "(G, N, D, D)")
    check_like("r", r, wx, dtype=True)
    if b is not None:
        check_like("b", check_dtype("b", check_tensor("b", b)), wx)
        check_shape("b", b, (gates, heads, dim), "(G, N, D)")
    if states is not None:
        states = check_states(states, (kind.num_states, batch, heads, dim), kind, wx)
    if lengths is not None and not is_own:
        lengths = check_lengths(lengths, batch, time, wx.device)
    reset = None if reset is None else check_reset(reset, batch, time, wx)
    return wx, r, b, states, lengths, reset


def check_configs(config: Mapping[str, Mapping[str, int]] | None) -> Configs:
    """Configurations that a caller forces, by direction, as a hashable value.

    Raises:
        UsageError: When it is no mapping from a direction to a mapping of parameters.
    """
    if config is None:
        return ()
    if not isinstance(config, Mapping) or not config.keys() <= SUFFIX.keys():
        raise UsageError(f"config must map {' and '.join(SUFFIX)} to parameters and their values, got {config!r}.")
    return tuple((direction, tuple(sorted(values.items()))) for direction, values in sorted(config.items()))


def check_cell(cell: str) -> RecurrentCell:
    """The cell of that name.

    Raises:
        UnknownNameError: When there is none.
    """
    if cell not in CELLS:
        raise UnknownNameError("cell", cell, CELLS)
    return CELLS[cell]


def check_backend(backend: str, cell: str, *others: str) -> None:
    """Refuse an unknown back-end: the cell has no such implementation, and `others` do not name it.

    Under torch.compile the operator refuses it when it runs.
    """
    if backend in (AUTO, REFERENCE) or torch.compiler.is_compiling():
        return
    names = (AUTO, REFERENCE, *dict.fromkeys((*list_backends(cell), *others)))
    if backend not in names:
        raise UnknownNameError("backend", backend, names)


def check_fused(backend: str, wx: Tensor) -> None:
    """Refuse a fused back-end where its kernels cannot run."""
    if backend not in FUSED:
        return
    if wx.device.type != "cuda":
        seen = f"a GPU, wx is on {wx.device}"
    elif wx.dtype == torch.float64:
        seen = "float32, bfloat16 or float16, wx is float64"
    else:
        return
    raise UnsupportedError(f"backend {backend!r} needs {seen}. Use 'auto', or 'alternating', which runs anywhere.")


def check_tensor(name: str, value: object) -> Tensor:
    """Refuse a value that is no tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}.")
    return value


def check_shape(name: str, value: Tensor, expected: tuple[int, ...], letters: str) -> None:
    """Refuse another shape than `expected`, which is written in `letters`."""
    if tuple(value.shape) != expected:
        raise UsageError(f"{name} must be {letters} = {_show(expected)}, got {_show(value.shape)}.")


def _show(shape: Sequence[int]) -> str:
    return f"({', '.join(str(int(size)) for size in shape)})"


def check_wx(wx: object, cell: RecurrentCell) -> Tensor:
    """Refuse projected inputs that are not (B, T, G, N, D) of a floating dtype."""
    wx = check_tensor("wx", wx)
    if wx.dim() != 5:
        raise UsageError(f"wx must have 5 dimensions (B, T, G, N, D), got {wx.dim()}: {_show(wx.shape)}.")
    if wx.shape[2] != cell.num_gates:
        gates = ", ".join(cell.gates)
        raise UsageError(
            f"wx must be (B, T, G, N, D) with G = {cell.num_gates} for {cell.name} (gates {gates}), "
            f"got G = {int(wx.shape[2])} in {_show(wx.shape)}."
        )
    if wx.shape[3] == 0 or wx.shape[4] == 0:
        raise UsageError(f"wx must have at least one head and one unit (N, D >= 1), got {_show(wx.shape)}.")
    return check_dtype("wx", wx)


def check_dtype(name: str, value: Tensor) -> Tensor:
    """Refuse dtypes that no back-end takes."""
    if value.dtype not in DTYPES:
        raise UsageError(f"{name} must be {', '.join(map(str, DTYPES))}, got {value.dtype}.")
    return value


def check_like(name: str, value: Tensor, wx: Tensor, *, dtype: bool = False) -> None:
    """Refuse another device than that of `wx`, and if `dtype` another dtype."""
    if value.device != wx.device:
        raise UsageError(f"{name} must be on the device of wx, {wx.device}, got {value.device}.")
    if dtype and value.dtype != wx.dtype:
        raise UsageError(
            f"{name} must have the dtype of wx, {wx.dtype}, got {value.dtype}: convert one, or use torch.autocast."
        )


def check_states(states: object, shape: tuple[int, ...], cell: RecurrentCell, wx: Tensor) -> Tensor:
    """Initial states (S, B, N, D); (S, B, 1, N, D), as `rnn` returns the last ones, loses its 1."""
    states = check_dtype("states", check_tensor("states", states))
    check_like("states", states, wx)
    if states.dim() == 5 and states.shape[2] == 1:
        states = states.squeeze(2)
    names = ", ".join(cell.states)
    check_shape("states", states, shape, f"(S, B, N, D) or (S, B, 1, N, D) (states {names} of {cell.name})")
    return states


def check_lengths(lengths: object, batch: int, time: int, device: torch.device) -> Tensor:
    """Lengths (B,) on `device`, from a sequence of integers or a tensor.

    The range is checked here unless torch.compile traces, a CUDA graph is captured or they are on the meta device; then
    lengths beyond 0..T count as 0 or T. On the GPU the check waits for the device: lengths on the CPU do not.
    """
    if not isinstance(lengths, Tensor):
        if not isinstance(lengths, Sequence) or not all(isinstance(v, int) for v in lengths):
            raise TypeError(f"lengths must be a tensor or a sequence of integers, got {type(lengths).__name__}.")
        lengths = torch.tensor(lengths, dtype=torch.int64)
    if lengths.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise UsageError(f"lengths must hold integers, got {lengths.dtype}.")
    check_shape("lengths", lengths, (batch,), "(B,)")
    capturing = lengths.is_cuda and torch.cuda.is_current_stream_capturing()
    if batch and not torch.compiler.is_compiling() and not capturing and not lengths.is_meta:
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > time:
            raise UsageError(f"lengths must be within 0..T = 0..{time}, got {low if low < 0 else high}.")
    return lengths.to(device=device, dtype=torch.int32)


def check_reset(reset: object, batch: int, time: int, wx: Tensor) -> Tensor:
    """Resets (B, T) of booleans."""
    reset = check_tensor("reset", reset)
    if reset.dtype != torch.bool:
        raise UsageError(f"reset must hold booleans (torch.bool), got {reset.dtype}.")
    check_shape("reset", reset, (batch, time), "(B, T)")
    check_like("reset", reset, wx)
    return reset


def check_exported(time: int) -> None:
    """Refuse to export to ONNX by way of torch.export while the number of steps is not known.

    torch.onnx fixes the number of steps silently, even for `torch.nn.LSTM` (2.13). After an error it tries another way
    of exporting and drops the first reason, so a warning states the reason, too.
    """
    if is_exporting_onnx() and is_symbolic(time):
        message = (
            "the number of steps T must be fixed in an ONNX export with dynamo=True: leave it out of dynamic_shapes. "
            "With dynamo=False and dynamic_axes, LSTM, GRU and RNN with num_heads=1 take any T."
        )
        warnings.warn(message, UserWarning, stacklevel=2)
        raise UnsupportedError(message)


def check_clip(value: float | None) -> float:
    """The gradient's limit, 0 for none."""
    if value is None:
        return 0.0
    if not value > 0:
        raise UsageError(f"gradient_recurrent_clip must be positive, or None for no limit, got {value}.")
    return float(value)
