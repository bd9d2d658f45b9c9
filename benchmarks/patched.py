"""A plug-in of pytest that puts this package's recurrent layers in torch's place, for `benchmarks.projects`.

`pytest -p patched` replaces `torch.nn.LSTM`, `GRU`, `RNN`, their base and their cells before a test or a project is
imported, as if the project were written with these layers: it subclasses them, asks `isinstance`, and builds them by
name. With `CONSTRINT_PATCHED=none` the layers of torch stay, and are counted as well. The last line says how many were
made.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from torch import nn

NAMES = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
#: How many layers the tests made, by the names of their classes.
MADE: dict[str, int] = {}


def put_in() -> None:
    """Replace torch's classes."""
    from constrint import flashrnn
    from constrint.flashrnn.layers import Recurrent

    for name in NAMES:
        setattr(nn, name, getattr(flashrnn, name))
    setattr(nn, "RNNBase", Recurrent)  # noqa: B010 - classes of projects derive from it and from a layer at once


def count(base: Any, *, names: tuple[str, ...] = NAMES) -> None:
    """Count the instances that `base` and the classes derived from it initialise."""
    before = base.__init__

    @functools.wraps(before)
    def initialise(self: Any, *arguments: Any, **values: Any) -> None:
        before(self, *arguments, **values)
        name = next((one.__name__ for one in type(self).__mro__ if one.__name__ in names), type(self).__name__)
        MADE[name] = MADE.get(name, 0) + 1

    base.__init__ = initialise


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many layers were made."""
    made = " ".join(f"{name}={number}" for name, number in sorted(MADE.items()))
    terminalreporter.write_line(f"layers made: {made or 'none'}")


if os.environ.get("CONSTRINT_PATCHED") != "none":
    put_in()
    from constrint.flashrnn.parameters import RecurrentParameters

    count(RecurrentParameters)
else:
    count(nn.RNNBase)
count(nn.RNNCellBase)
