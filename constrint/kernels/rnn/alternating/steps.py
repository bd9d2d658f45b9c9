"""How many steps a CUDA graph of the `alternating` recurrence holds: what runs, and what the cost model counts."""

from __future__ import annotations

#: Steps per graph at most: enough that copying a chunk costs little beside running it.
MAX_STEPS = 128
#: Bytes of a chunk's largest buffer at most, and steps that a chunk has even so.
MAX_BUFFER_BYTES, FEWEST_STEPS = 32 << 20, 8


def steps_of_graph(time: int, step_bytes: int) -> int:
    """Steps of the graph that a sequence is copied through; a replay runs all of them.

    Sequences are cut into equal chunks. Their length is rounded up to a half or the whole of a power of two's octave
    (... 32, 48, 64, 96, 128), so that few graphs serve every length and few steps run for nothing.

    Args:
        time: Steps of the sequence, at least 1.
        step_bytes: Bytes of the projected inputs of one step.
    """
    most = min(MAX_STEPS, max(FEWEST_STEPS, MAX_BUFFER_BYTES // step_bytes))
    each = -(-time // -(-time // most))
    multiple = 1 << max(0, (each - 1).bit_length() - 2)
    return min(most, -(-each // multiple) * multiple)


def steps_that_run(time: int, step_bytes: int) -> int:
    """Steps of all replays for a sequence of so many."""
    steps = steps_of_graph(time, step_bytes)
    return -(-time // steps) * steps
