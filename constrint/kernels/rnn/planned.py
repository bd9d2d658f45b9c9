"""The sizes that a configuration is chosen for: few of them, so that few kernels are compiled."""

from __future__ import annotations

#: Steps: the choice does not depend on them from a few dozen on.
PLANNED_TIME = 1024
PLANNED_BATCHES = (16, 64, 256)


def planned_batch(batch: int) -> int:
    """The batch size that stands for `batch`."""
    return next((size for size in PLANNED_BATCHES if batch <= size), PLANNED_BATCHES[-1])
