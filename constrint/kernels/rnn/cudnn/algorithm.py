"""Which of cuDNN's algorithms torch asks for: the rules of `get_algo` in torch's `native/cudnn/RNN.cpp`.

Two layers are alike only where the same algorithm runs them: a persistent one keeps the weights on chip and takes about
2 us a step, the standard one launches kernels in every step and takes about 20 us. The rules are those for GPUs of
compute capability 8.0 and later with at least 98 SMs, 8.6 apart.
"""

from __future__ import annotations

from typing import NamedTuple

#: Widest layer that is kept on chip by the algorithm for small layers, by direction: with one state, and with gates.
SMALL_ELMAN = {"forward": 384, "backward": 256}
SMALL_GATED = {"forward": 192, "backward": 128}
#: The persistent algorithm takes multiples of this many units and inputs, up to this many units, and multiples of 8
#: sequences up to 128.
UNITS, MAX_UNITS = 128, 1024
SEQUENCES, MAX_SEQUENCES = 8, 128
#: From here on both torch leaves an Elman layer to the standard algorithm.
SLOW_ELMAN = (96, 896)


class Shape(NamedTuple):
    """What decides about the algorithm of a layer.

    Args:
        cell: A key of `CELLS`.
        dtype: The spec's name of the operands' type.
        batch: Sequences.
        dim: Units.
        input_size: Features of the input.
        directions: 2 if the layer also runs backwards in time.
    """

    cell: str
    dtype: str
    batch: int
    dim: int
    input_size: int
    directions: int = 1


class Algorithm(NamedTuple):
    """What torch may ask for.

    Args:
        is_small: Whether the layer is narrow enough for the algorithm for small layers; older torch knows none.
        is_persistent: Whether the persistent algorithm takes it.
    """

    is_small: bool
    is_persistent: bool


def algorithm_of(shape: Shape, direction: str) -> Algorithm:
    """The algorithm of one layer that is called by itself, "forward" or "backward"."""
    small = SMALL_ELMAN if shape.cell.startswith("elman") else SMALL_GATED
    return Algorithm(shape.dim <= small[direction], is_persistent(shape))


def is_persistent(shape: Shape) -> bool:
    """Whether the persistent algorithm takes a layer; it takes one layer at a time, in one direction, in fp16."""
    slow_batch, slow_dim = SLOW_ELMAN
    is_slow = shape.cell.startswith("elman") and shape.batch >= slow_batch and shape.dim >= slow_dim
    return (
        shape.dtype == "fp16"
        and shape.cell != "gru"
        and shape.directions == 1
        and shape.dim <= MAX_UNITS
        and shape.dim % UNITS == 0
        and shape.input_size % UNITS == 0
        and shape.batch % SEQUENCES == 0
        and shape.batch <= MAX_SEQUENCES
        and not is_slow
    )
