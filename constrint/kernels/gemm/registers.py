"""The form of the register estimate; its weights per instruction kind or AMD target are in `register_weights.py`."""

from __future__ import annotations

from typing import NamedTuple

#: Depth of one operand fragment, in bytes along K.
FRAGMENT_BYTES = 64


class RegisterModel(NamedTuple):
    """registers * 100 = base + accumulators * acc + words_a * A + words_b * B + fragment * F + persistent * p."""

    base: int
    accumulators: int
    words_a: int
    words_b: int
    fragment: int
    persistent: int
