"""Kernel source written by others: tasks to write for, gates in their order, a sandbox, and a score.

No candidate is executed in the caller's process: `examine` takes it through the gates, in a worker inside the sandbox.
`writing` asks a model or takes files, round by round. It earns its lines where a model or a person writes a kernel and
someone must decide whether to believe its result and its time.
"""

from constrint.propose.examination import GateSettings, examine
from constrint.propose.operands import Expected, Extent, Operand
from constrint.propose.sandbox import find_sandbox
from constrint.propose.score import Examined, fast_p, order
from constrint.propose.task import Task, find_task, list_tasks, register_task

__all__ = [
    "Examined",
    "Expected",
    "Extent",
    "GateSettings",
    "Operand",
    "Task",
    "examine",
    "fast_p",
    "find_sandbox",
    "find_task",
    "list_tasks",
    "order",
    "register_task",
]
