"""What a command has to answer: the spaces of all kernels that were asked about, or the problem of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from constrint.errors import InfeasibleError
from constrint.model import Constraint, Problem
from constrint.select import Operation
from constrint.select.rank import KernelProblem, infeasible, nothing_fits, reason_of
from constrint.solve import Limits, SearchSpace, enumerate_space


@dataclass(frozen=True)
class Asked:
    """One problem to answer about: one kernel's space, or a file's.

    Args:
        title: What it is, as printed above an answer.
        problem: Its rules and the user's own.
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
        """The sentence that there is no solution."""
        request = self.request
        return f"{self.title} has no solution." if request is None else nothing_fits(request.gpu, request.workload)


@dataclass(frozen=True)
class Question:
    """All that a command has to answer.

    Args:
        title: What was asked, as printed above an answer.
        asked: The problems: one per kernel that can answer, or the one of the file.
        operation: The kernels; None for a file.
        refusals: Why some of them cannot answer, by full name.
        notes: The refusals that a user wants to hear of, a sentence each.
        several: Whether this GPU has several kernels for it, so that an answer has to name its kernel.
        started: When stating it began, by `time.perf_counter`.
        arguments: What was asked as arguments of a command, to be repeated.
        is_default: Whether no kernel was named, so that the usual one is meant.
    """

    title: str
    asked: tuple[Asked, ...]
    operation: Operation | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    several: bool = False
    started: float = 0.0
    arguments: tuple[str, ...] = ()
    is_default: bool = False

    def title_of(self, kernels: set[str]) -> str:
        """What is printed above configurations of these kernels: the title of the one, or of all."""
        if not self.several or len(kernels) > 1:
            return self.title
        return next(asked.title for asked in self.asked if asked.kernel in kernels)

    @property
    def requests(self) -> list[KernelProblem]:
        """What is asked of each kernel."""
        return [asked.request for asked in self.asked if asked.request is not None]

    def spaces(self, backend: str, limits: Limits | None = None) -> list[tuple[Asked, SearchSpace]]:
        """The spaces that have solutions, with what was asked.

        Raises:
            InfeasibleError: When there is none; carries the conflict.
            LimitReachedError: When a limit came first.
        """
        spaces = [(asked, enumerate_space(asked.problem, limits, backend)) for asked in self.asked]
        if not any(space.size for _, space in spaces):
            raise self.infeasible(limits)
        return [(asked, space) for asked, space in spaces if space.size]

    def infeasible(self, limits: Limits | None = None) -> InfeasibleError:
        """Says of every kernel, or of the file, why there is no solution."""
        if self.requests:
            return infeasible(self.requests, limits)
        text, conflict = reason_of(self.asked[0].problem, is_kernel=False, limits=limits)
        return InfeasibleError(f"{self.asked[0].has_none} {text}", conflict)
