"""Recurrent modules with the constructors, calls and state dicts of `torch.nn`: LSTM, GRU, RNN (Elman), and sLSTM.

A checkpoint of `torch.nn` loads unchanged. Added are the options `num_heads` (a block-diagonal recurrence), `backend`,
`config` and `gradient_recurrent_clip`, `lengths` and `reset` in the call, and `why`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from constrint.flashrnn.layers import Recurrent
from constrint.kernels.rnn.dispatch import AUTO

Config = Mapping[str, Mapping[str, int]] | None
#: The cell of an `RNN` by its nonlinearity.
_NONLINEARITIES = {"tanh": "elman", "relu": "elman_relu"}


class LSTM(Recurrent):
    """`torch.nn.LSTM` on fused kernels: same constructor, call and state dict.

    Args:
        input_size: Features of the input.
        hidden_size: Hidden units H of each direction.
        num_layers: Stacked layers.
        bias: Whether there are bias terms.
        batch_first: Input and output are (B, T, ...) instead of (T, B, ...).
        dropout: Probability of dropping an output between layers, in training.
        bidirectional: Also run backwards; both outputs are concatenated.
        proj_size: Size of a projection of h that feeds back and out; 0 for none. It runs as a recurrence of H units.
        device: Device of the parameters.
        dtype: Dtype of the parameters.
        num_heads: Heads, which split H and see only themselves; 1 is `torch.nn`.
        backend: That of `rnn`, or a library: `cudnn`, or `torch` on the CPU; `why` explains the choice of `auto`.
        config: That of `rnn`.
        gradient_recurrent_clip: That of `rnn`.
    """

    def __init__(
        self,
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
        config: Config = None,
        gradient_recurrent_clip: float | None = None,
    ) -> None:
        super().__init__(
            *("lstm", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional),
            *(proj_size, device, dtype),
            num_heads=num_heads,
            backend=backend,
            config=config,
            gradient_recurrent_clip=gradient_recurrent_clip,
        )

    check_forward_args = nn.LSTM.check_forward_args  # type: ignore[assignment]
    get_expected_cell_size = nn.LSTM.get_expected_cell_size
    permute_hidden = nn.LSTM.permute_hidden  # type: ignore[assignment]


class SLSTM(Recurrent):
    """sLSTM (exponential input gate, normaliser and stabiliser; xLSTM, arXiv 2405.04517) with the call of `LSTM`.

    `hx` is the tuple (h, c, n, m); zeros are an empty state. Arguments as in `LSTM`, without `proj_size`.
    """

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
        config: Config = None,
        gradient_recurrent_clip: float | None = None,
        proj_size: int = 0,
    ) -> None:
        _refuse_projection("SLSTM", proj_size)
        super().__init__(
            *("slstm", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional),
            *(0, device, dtype),
            num_heads=num_heads,
            backend=backend,
            config=config,
            gradient_recurrent_clip=gradient_recurrent_clip,
        )


class GRU(Recurrent):
    """`torch.nn.GRU` on fused kernels: same constructor, call and state dict.

    Arguments as in `LSTM`, without `proj_size`, which is refused as `torch.nn` refuses it.
    """

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
        config: Config = None,
        gradient_recurrent_clip: float | None = None,
        proj_size: int = 0,
    ) -> None:
        _refuse_projection("GRU", proj_size)
        super().__init__(
            *("gru", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional),
            *(0, device, dtype),
            num_heads=num_heads,
            backend=backend,
            config=config,
            gradient_recurrent_clip=gradient_recurrent_clip,
        )


class RNN(Recurrent):
    """`torch.nn.RNN` (Elman) on fused kernels: same constructor, call and state dict.

    Arguments as in `LSTM`, without `proj_size`; `nonlinearity`, after `num_layers`, is `tanh` or `relu`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        num_heads: int = 1,
        backend: str = AUTO,
        config: Config = None,
        gradient_recurrent_clip: float | None = None,
        proj_size: int = 0,
    ) -> None:
        _refuse_projection("RNN", proj_size)
        if nonlinearity not in _NONLINEARITIES:
            raise ValueError(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")
        super().__init__(
            *(_NONLINEARITIES[nonlinearity], input_size, hidden_size, num_layers, bias, batch_first, dropout),
            *(bidirectional, 0, device, dtype),
            num_heads=num_heads,
            backend=backend,
            config=config,
            gradient_recurrent_clip=gradient_recurrent_clip,
        )
        self.nonlinearity = nonlinearity


Elman = RNN


def _refuse_projection(name: str, proj_size: int) -> None:
    """Raise for `proj_size`, which only an LSTM has; other modules take the keyword for this error alone."""
    if proj_size:
        raise ValueError(f"proj_size argument is only supported for LSTM, not {name}, got {proj_size}")
