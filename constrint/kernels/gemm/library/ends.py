"""Activations that the library applies to its own sums. No torch."""

from __future__ import annotations

#: Activations that the library applies to its sums, and the most bytes of a result for which it does so exactly. Its
#: gelu is the tanh approximation, which nobody has checked on values that are not finite.
IN_PRODUCT = {"relu": 4}


def takes_activation(activation: str | None, output_bytes: int) -> bool:
    """Whether the library applies an activation to results of a size, to their accuracy."""
    return not activation or output_bytes <= IN_PRODUCT.get(activation, 0)
