"""The question of a command: the problems to solve, and the options that state them.

A problem is the space of one kernel on one GPU, or the problem of a file; a question about a kernel has one problem per
implementation that can take the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel
from constrint.model import Constraint, Problem
from constrint.select import Operation
from constrint.select.rank import KernelProblem, infeasible, nothing_fits, reason_of
from constrint.select.workload import Workload
from constrint.solve import Limits, SearchSpace, enumerate_space

#: The kind of a rule that the user added.
YOURS = "yours"


@dataclass(frozen=True)
class StatedProblem:
    """One problem of a question: the space of a kernel, or the problem of a file.

    Args:
        title: The line above an answer.
        problem: The rules of the kernel or the file, and the user's own.
        own: The rules that `--set` and `--where` added.
        request: The kernel, the GPU and the workload; None for a file.
    """

    title: str
    problem: Problem
    own: tuple[Constraint, ...] = ()
    request: KernelProblem | None = None

    @property
    def kernel(self) -> str:
        """The kernel's full name; empty for a file."""
        return "" if self.request is None else self.request.spec.full_name

    @property
    def has_none(self) -> str:
        """The sentence that the problem has no solution."""
        request = self.request
        return f"{self.title} has no solution." if request is None else nothing_fits(request.gpu, request.workload)


def kind_of(stated: StatedProblem, rule: Constraint) -> str:
    """The kind of a rule: certain, redundant or estimated; `YOURS` for a rule that the user added to a kernel."""
    return YOURS if any(rule is own for own in stated.own) and stated.request is not None else rule.kind


@dataclass(frozen=True)
class Question:
    """The problems that a command answers about, on one GPU or of one file.

    Args:
        title: The line above an answer.
        problems: One per implementation that can take the workload, or the problem of the file.
        operation: The operation; None for a file.
        refusals: Reasons of the implementations that cannot answer, by full name.
        notes: Those refusals that concern this GPU, a sentence each.
        several: Whether the GPU has several implementations of the operation, so that an answer names its kernel.
        started: The `time.perf_counter` when the question was read.
        arguments: The options that put the same question to another command: `--gpu h200 --m 64`.
        is_default: Whether no kernel was named, so that the default kernel is meant.
        gpu: The GPU; None for a file.
        refusal: The error that leaves the GPU without an answer; empty if it can answer.
    """

    title: str
    problems: tuple[StatedProblem, ...]
    operation: Operation | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    several: bool = False
    started: float = 0.0
    arguments: tuple[str, ...] = ()
    is_default: bool = False
    gpu: GpuModel | None = None
    refusal: str = ""

    @property
    def requests(self) -> list[KernelProblem]:
        """The kernel, GPU and workload of each problem; none for a file."""
        return [stated.request for stated in self.problems if stated.request is not None]

    @property
    def workload(self) -> Workload | None:
        """The workload; None for a file, and for a GPU that cannot take it."""
        return next((request.workload for request in self.requests), None)

    def title_of(self, kernels: set[str]) -> str:
        """The line above configurations of these kernels: the title of the only kernel, or of the question."""
        if not self.several or len(kernels) > 1:
            return self.title
        return next(stated.title for stated in self.problems if stated.kernel in kernels)

    def spaces(self, backend: str, limits: Limits | None = None) -> list[tuple[StatedProblem, SearchSpace]]:
        """Enumerate the problems; those without a solution are left out.

        Raises:
            InfeasibleError: When no problem has a solution; carries the conflict.
            LimitReachedError: When a limit ended the enumeration.
        """
        spaces = [(stated, enumerate_space(stated.problem, limits, backend)) for stated in self.problems]
        if not any(space.size for _, space in spaces):
            raise self.infeasible(limits)
        return [(stated, space) for stated, space in spaces if space.size]

    def infeasible(self, limits: Limits | None = None) -> InfeasibleError:
        """The error with the reason why each kernel, or the file, has no solution."""
        if self.requests:
            return infeasible(self.requests, limits)
        text, conflict = reason_of(self.problems[0].problem, is_kernel=False, limits=limits)
        return InfeasibleError(f"{self.problems[0].has_none} {text}", conflict)
