"""Registers the back-ends with the operator; importing it is enough."""

from __future__ import annotations

from constrint.flashrnn.backends.alternating import AlternatingBackend
from constrint.flashrnn.backends.triton import TritonBackend
from constrint.flashrnn.planner import choose_backend
from constrint.kernels.rnn.op import register_backend, register_chooser

register_backend(TritonBackend())
register_backend(AlternatingBackend())
register_chooser(choose_backend)
