"""Fused recurrent layers: LSTM, GRU, Elman and sLSTM on every device.

Importing this package is light; torch is loaded when a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrint.flashrnn.functional import flashrnn, rnn
    from constrint.flashrnn.modules import GRU, LSTM, RNN, SLSTM, Elman
    from constrint.flashrnn.planner import RnnPlan, plan

_HOMES = {
    "GRU": "modules",
    "LSTM": "modules",
    "RNN": "modules",
    "SLSTM": "modules",
    "Elman": "modules",
    "RnnPlan": "planner",
    "flashrnn": "functional",
    "plan": "planner",
    "rnn": "functional",
}

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "Elman", "RnnPlan", "flashrnn", "plan", "rnn"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
