"""Registers the back-ends with the operator; importing it is enough."""

from __future__ import annotations

from constrint.flashrnn.backends.alternating import AlternatingBackend
from constrint.kernels.rnn.op import register_backend

register_backend(AlternatingBackend())
