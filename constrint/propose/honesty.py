"""The gate `honest`: it refuses a candidate with correct outputs that others computed, or that changed other state.

A time below the floor, the least time of a task on a named GPU, is dishonest, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from constrint.hwmodels import GpuModel
from constrint.propose.operands import Sizes
from constrint.propose.task import Task
from constrint.propose.wire import Watched
from constrint.tune import floor


def dishonest(calls: Sequence[Watched]) -> str:
    """The first observed act that an honest candidate does not commit; empty if there is none.

    Args:
        calls: The observations of each call.
    """
    for call in calls:
        returned = (call.returned,) if call.returned else ()
        for names, problem in (
            (call.patched, "it replaced {}, which belongs to who checks and times it."),
            (call.settings, "it changed {}, which every later computation of the process would use."),
            (call.changed_inputs, "it wrote its input {}; inputs are read only."),
            (call.library, "PyTorch did work in its place: {}. Its own kernels have to do all of it."),
            (call.foreign, "it launched {}, which its source does not define."),
            (returned, "it returned a {}; it has to write its outputs, and return nothing."),
        ):
            if names:
                return problem.format(", ".join(names))
        if not call.launches:
            return "a call launched no kernel of its own."
    return ""


def floor_s(task: Task, sizes: Sizes, dtype: str, gpu: GpuModel, num_calls: int = 1) -> float:
    """Least time of one of several calls in a row on different inputs: that of the task's bytes and operations."""
    return floor.floor_s(gpu, dtype, task.moved_bytes(sizes, dtype), task.flops(sizes), num_calls)
