"""Fused recurrent layers: LSTM, GRU, Elman and sLSTM on every device, cells of one step, and cells written in Python.

Importing this package is light; torch is loaded when a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.flashrnn.cells import module
    from constrint.flashrnn.functional import rnn
    from constrint.flashrnn.modules import GRU, LSTM, RNN, SLSTM, Elman
    from constrint.flashrnn.nxai import flashrnn
    from constrint.flashrnn.planner import plan
    from constrint.flashrnn.stepcells import GRUCell, LSTMCell, RNNCell
    from constrint.flashrnn.steps import cell

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "SLSTM",
    "Elman",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "cell",
    "flashrnn",
    "module",
    "plan",
    "rnn",
]

__getattr__ = lazily(
    __name__,
    {
        "cells": ("module",),
        "functional": ("rnn",),
        "modules": ("GRU", "LSTM", "RNN", "SLSTM", "Elman"),
        "nxai": ("flashrnn",),
        "planner": ("plan",),
        "stepcells": ("GRUCell", "LSTMCell", "RNNCell"),
        "steps": ("cell",),
    },
)


def __dir__() -> list[str]:
    return list(__all__)
