"""Fused recurrent layers: LSTM, GRU, Elman and sLSTM on every device.

Importing this package is light; torch is loaded when a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.flashrnn.functional import rnn
    from constrint.flashrnn.modules import GRU, LSTM, RNN, SLSTM, Elman
    from constrint.flashrnn.nxai import flashrnn
    from constrint.flashrnn.planner import plan

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "Elman", "flashrnn", "plan", "rnn"]

__getattr__ = lazily(
    __name__,
    {
        "functional": ("rnn",),
        "modules": ("GRU", "LSTM", "RNN", "SLSTM", "Elman"),
        "nxai": ("flashrnn",),
        "planner": ("plan",),
    },
)


def __dir__() -> list[str]:
    return list(__all__)
