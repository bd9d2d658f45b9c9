"""Candidates that are source: tasks that they are written for, a sandbox, gates in their order, and a score.

Nothing here executes a candidate in the caller's process. `examine` takes one through the gates.
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
