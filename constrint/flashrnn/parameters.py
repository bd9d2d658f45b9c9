"""The parameters of a recurrent module, with `torch.nn`'s names, shapes and initial values, and its input checks."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from constrint.flashrnn.checks import check_backend, check_configs
from constrint.flashrnn.observers import autocast_dtype
from constrint.kernels.rnn.candidates import TORCH
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cudnn.spec import CUDNN
from constrint.kernels.rnn.dispatch import AUTO

#: Names of cells in `torch.nn`; sLSTM is ours.
MODES = {"lstm": "LSTM", "gru": "GRU", "elman": "RNN_TANH", "elman_relu": "RNN_RELU", "slstm": "SLSTM"}


class RecurrentParameters(nn.Module):
    """Holds the weights of all layers and directions.

    Per layer and direction: `weight_ih_l0` (G * H, inputs), `weight_hh_l0` (G * H, D), `bias_ih_l0` and `bias_hh_l0`
    (G * H), with suffix `_reverse` for the backward direction, and `weight_hr_l0` (P, H) with a projection. With heads,
    D = H / num_heads and row (g, n, d) of `weight_hh` belongs to gate g and unit d of head n, which sees its own head
    only; with one head this is `torch.nn`'s layout.
    """

    #: Default for stored modules that are older than the option.
    config: Mapping[str, Mapping[str, int]] | None = None

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        num_heads: int = 1,
        backend: str = AUTO,
        config: Mapping[str, Mapping[str, int]] | None = None,
        gradient_recurrent_clip: float | None = None,
    ) -> None:
        super().__init__()
        self.cell = cell
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout, self.proj_size, self.num_heads = dropout, proj_size, num_heads
        self.backend, self.config, self.gradient_recurrent_clip = backend, config, gradient_recurrent_clip
        self._check_options()
        self._check_backend()
        check_configs(config)
        self.dropout = float(dropout)
        for layer in range(num_layers):
            for direction in range(self.num_directions):
                for name, shape in self._shapes(layer, direction).items():
                    self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.flatten_parameters()
        self.reset_parameters()

    @property
    def mode(self) -> str:
        """The cell's name in `torch.nn`."""
        return MODES[self.cell]

    @property
    def num_directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def head_dim(self) -> int:
        """D, the units per head."""
        return self.hidden_size // self.num_heads

    @property
    def output_size(self) -> int:
        """Features of one direction's output: the projection's size if there is one, else the hidden size."""
        return self.proj_size or self.hidden_size

    def _check_options(self) -> None:
        for name in ("input_size", "hidden_size", "num_layers", "num_heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero, got {value}")
        for name in ("bias", "batch_first", "bidirectional"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
        probability: Any = self.dropout
        is_number = isinstance(probability, numbers.Real) and not isinstance(self.dropout, bool)
        if not is_number or not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout should be a number in range [0, 1], got {self.dropout}")
        if self.dropout > 0 and self.num_layers == 1:
            warnings.warn("dropout acts between layers: it does nothing with num_layers=1", UserWarning, stacklevel=4)
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} must divide hidden_size={self.hidden_size}")
        if not 0 <= self.proj_size < self.hidden_size:
            raise ValueError(f"proj_size must be within 0..hidden_size - 1, got {self.proj_size}")
        if self.proj_size and (self.cell != "lstm" or self.num_heads > 1):
            raise ValueError("proj_size is only there for LSTM with num_heads=1: heads do not see a projection of all.")

    def _check_backend(self) -> None:
        check_backend(self.backend, self.cell, CUDNN, TORCH)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the cell's states, in the order of `hx`."""
        return CELLS[self.cell].states

    def _shapes(self, layer: int, direction: int) -> dict[str, tuple[int, ...]]:
        rows = CELLS[self.cell].num_gates * self.hidden_size
        inputs = self.input_size if layer == 0 else self.output_size * self.num_directions
        suffix = self._suffix(layer, direction)
        shapes: dict[str, tuple[int, ...]] = {
            f"weight_ih_{suffix}": (rows, inputs),
            f"weight_hh_{suffix}": (rows, self.proj_size or self.head_dim),
        }
        if self.bias:
            shapes |= {f"bias_ih_{suffix}": (rows,), f"bias_hh_{suffix}": (rows,)}
        if self.proj_size:
            shapes[f"weight_hr_{suffix}"] = (self.proj_size, self.hidden_size)
        return shapes

    def _suffix(self, layer: int, direction: int) -> str:
        return f"l{layer}{'_reverse' if direction else ''}"

    def _weight(self, name: str, layer: int, direction: int) -> Tensor:
        full_name = f"{name}_l{layer}_reverse" if direction else f"{name}_l{layer}"
        weight = self._parameters.get(full_name)
        # A parametrization computes it.
        return getattr(self, full_name) if weight is None else weight

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """Parameters per layer and direction, in `torch.nn`'s order."""
        return [
            [getattr(self, name) for name in self._shapes(layer, direction)]
            for layer in range(self.num_layers)
            for direction in range(self.num_directions)
        ]

    @property
    def _flat_weights_names(self) -> list[str]:
        """Names of all weights in `torch.nn`'s order, for code that reads this attribute of its modules."""
        places = [(layer, direction) for layer in range(self.num_layers) for direction in range(self.num_directions)]
        return [name for place in places for name in self._shapes(*place)]

    @property
    def _flat_weights(self) -> list[Any]:
        """All weights in `torch.nn`'s order; assigning a list sets those that are others (weight dropping does it)."""
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Any]) -> None:
        for name, weight in zip(self._flat_weights_names, weights, strict=True):
            if getattr(self, name, None) is not weight:
                setattr(self, name, weight)

    # torch's own checks, which code calls before a layer; they read the options and weights above.
    check_input = nn.RNNBase.check_input
    check_hidden_size = nn.RNNBase.check_hidden_size
    check_forward_args = nn.RNNBase.check_forward_args
    get_expected_hidden_size = nn.RNNBase.get_expected_hidden_size
    permute_hidden = nn.RNNBase.permute_hidden

    def reset_parameters(self) -> None:
        """Draw every parameter uniformly from +-1/sqrt(hidden_size), as `torch.nn` does."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Lay the weights into one buffer of cuDNN's where it may run the layers, as `torch.nn` does.

        That is done when the module is made, moved, copied or loaded; weights elsewhere are only slower by a copy.
        """
        from constrint.flashrnn.libraries import cudnn  # imports this module's users

        cudnn.lie_flat(self)

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        moved = super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self.flatten_parameters()
        return moved

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.flatten_parameters()

    def extra_repr(self) -> str:
        """The options that differ from their defaults."""
        parts = [str(self.input_size), str(self.hidden_size)]
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "num_heads": 1,
            "backend": AUTO,
            "config": None,
            "gradient_recurrent_clip": None,
        }
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join(parts)

    def _check_input(self, x: Tensor) -> None:
        """Refuse other feature sizes and dtypes, with the exceptions that `torch.nn` raises."""
        weight = self._weight("weight_ih", 0, 0)
        if x.dtype != weight.dtype and autocast_dtype(x.device) is None:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            )
        if x.device != weight.device:
            raise RuntimeError(
                f"Input and parameter tensors are not at the same device, found input tensor at {x.device} and "
                f"parameter tensor at {weight.device}"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )

    def _states_of(self, hx: Any, batch: int, device: torch.device, *, is_batched: bool) -> tuple[Tensor, ...] | None:
        """Initial states as a tuple of (layers * directions, B, size), one for each state; None for zeros."""
        if hx is None:
            return None
        names = self.state_names
        passed = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        if len(passed) != len(names) or not all(isinstance(state, Tensor) for state in passed):
            raise RuntimeError(f"hx must hold one tensor for each of {', '.join(names)}, got {len(passed)} of them")
        rank = 3 if is_batched else 2
        if any(state.dim() != rank for state in passed):
            raise RuntimeError(
                f"hx must be {rank}-D for {'batched 3-D' if is_batched else 'unbatched 2-D'} input, "
                f"got {', '.join(f'{state.dim()}-D' for state in passed)}"
            )
        states = passed if is_batched else tuple(state.unsqueeze(1) for state in passed)
        for name, state in zip(names, states, strict=True):
            size = self.output_size if name == "h" else self.hidden_size
            expected = (self.num_layers * self.num_directions, batch, size)
            if state.device != device:
                raise RuntimeError(
                    f"Input and hidden tensors are not at the same device, found input tensor at {device} and hidden "
                    f"tensor {name} at {state.device}"
                )
            if tuple(state.shape) != expected:
                raise RuntimeError(f"Expected hidden {name} size {expected}, got {list(state.shape)}")
        return states
