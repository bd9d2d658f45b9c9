"""The least time of a task on a named GPU."""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.propose.operands import Sizes
from constrint.propose.task import Task
from constrint.tune import floor


def floor_s(task: Task, sizes: Sizes, dtype: str, gpu: GpuModel, num_calls: int = 1) -> float:
    """Least time of one of several calls in a row on different inputs: that of the task's bytes and operations."""
    return floor.floor_s(gpu, dtype, task.moved_bytes(sizes, dtype), task.flops(sizes), num_calls)
