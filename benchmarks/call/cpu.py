"""Layers on CPU tensors, beside torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.call.cases import Case, silent, training_step
from constrint import flashrnn

#: (module, options, (batch, steps)).
CPU_LAYERS: tuple[tuple[str, dict[str, Any], tuple[int, int]], ...] = (
    ("LSTM", {"input_size": 256, "hidden_size": 256}, (8, 64)),
    ("LSTM", {"input_size": 64, "hidden_size": 64}, (1, 1)),
    ("GRU", {"input_size": 256, "hidden_size": 256}, (8, 64)),
    ("LSTM", {"input_size": 128, "hidden_size": 128, "num_layers": 2, "bidirectional": True}, (4, 32)),
)


def cpu_layers() -> Iterator[Case]:
    """Forward, and forward and backward, on one thread: so wall time is the processor's."""
    torch.set_num_threads(1)
    for kind, options, (batch, steps) in CPU_LAYERS:
        theirs, ours = getattr(nn, kind)(**options), getattr(flashrnn, kind)(**options)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(steps, batch, options["input_size"])
        name = f"{kind} {options['hidden_size']} B{batch} T{steps} fp32"
        yield Case(f"{name}, forward", silent(theirs, x), silent(ours, x))
        yield Case(f"{name}, both", training_step(theirs, x), training_step(ours, x))
