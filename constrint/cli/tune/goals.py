"""What `constrint tune` is to tune: the usual workloads, those of a file, or the one that the sizes name."""

from __future__ import annotations

from pathlib import Path

from constrint.cli.asked.kernel_options import Choice
from constrint.cli.tune.workloads import of_sizes, read_workloads
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import DEFAULT_KERNEL, list_kernels, load_kernel
from constrint.tune.goals import goals_of, usual_goals
from constrint.tune.session import Goal


def goals_of_choice(choice: Choice, gpu: GpuModel, workloads: Path | None, *, install: bool) -> list[Goal]:
    """The goals of a command.

    Raises:
        ConstrintError: When a workload is none that the kernel or the GPU takes.
    """
    if install:
        names = (choice.kernel,) if choice.kernel else list_kernels()
        return usual_goals(map(load_kernel, names), gpu)
    if workloads is None:
        assert choice.operation is not None
        asked = [(choice.operation, of_sizes(choice.operation, gpu, choice.sizes, choice.dtype))]
    else:
        asked = read_workloads(workloads, choice.kernel or DEFAULT_KERNEL, gpu)
    goals: list[Goal] = []
    for operation, workload in asked:
        goals += [goal for goal in goals_of(operation, gpu, [workload]) if goal not in goals]
    return goals
