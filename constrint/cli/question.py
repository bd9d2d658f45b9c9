"""What a command has to answer: the spaces of all kernels that were asked about, or the problem of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from constrint.errors import InfeasibleError

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.model import Constraint, Problem
    from constrint.select import Operation, Workload
    from constrint.select.rank import Request
    from constrint.solve import SearchSpace


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
    request: Request | None = None

    @property
    def kernel(self) -> str:
        """The kernel's full name; empty for a file."""
        return "" if self.request is None else self.request.spec.full_name

    def space(self, backend: str = "native") -> SearchSpace:
        """All solutions.

        Raises:
            InfeasibleError: When there is none; carries the conflict.
        """
        from constrint.solve import enumerate_space

        space = enumerate_space(self.problem, backend=backend)
        if space.size == 0:
            raise self.infeasible()
        return space

    def infeasible(self) -> InfeasibleError:
        """Says why there is no solution."""
        from constrint.select.rank import reason_of

        text, conflict = reason_of(self.problem, is_kernel=self.request is not None)
        return InfeasibleError(f"{self.has_none} {text}", conflict)

    @property
    def has_none(self) -> str:
        """The sentence that there is no solution."""
        from constrint.select.rank import nothing_fits

        if self.request is None:
            return f"{self.title} has no solution."
        return nothing_fits(self.request.gpu, self.request.workload)


@dataclass(frozen=True)
class KernelQuestion:
    """What was asked of which kernels.

    Args:
        operation: The kernels.
        gpu, workload: What for.
        refusals: Why some of them cannot answer, by full name.
        notes: The refusals that a user wants to hear of, a sentence each.
        several: Whether this GPU has several kernels for it, so that an answer has to name its kernel.
    """

    operation: Operation
    gpu: GpuModel
    workload: Workload
    refusals: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    several: bool = False


@dataclass(frozen=True)
class Question:
    """All that a command has to answer.

    Args:
        title: What was asked, as printed above an answer.
        asked: The problems: one per kernel that can answer, or the one of the file.
        kernels: What was asked of which kernels; None for a file.
        started: When stating it began, by `time.perf_counter`.
    """

    title: str
    asked: tuple[Asked, ...]
    kernels: KernelQuestion | None = None
    started: float = 0.0

    def __iter__(self) -> Iterator[Asked]:
        return iter(self.asked)

    def asked_of(self, kernel: str) -> Asked:
        """The problem of the kernel with this full name."""
        return next(asked for asked in self.asked if asked.kernel == kernel)

    @property
    def several(self) -> bool:
        """Whether answers have to name their kernel."""
        return self.kernels is not None and self.kernels.several

    @property
    def notes(self) -> tuple[str, ...]:
        """Which kernels are left out and why, as far as a user wants to hear of it."""
        return () if self.kernels is None else self.kernels.notes

    def spaces(self, backend: str) -> list[tuple[Asked, SearchSpace]]:
        """The spaces that have solutions, with what was asked.

        Raises:
            InfeasibleError: When there is none.
        """
        from constrint.solve import enumerate_space

        if len(self.asked) == 1:
            return [(self.asked[0], self.asked[0].space(backend))]
        spaces = [(asked, enumerate_space(asked.problem, backend=backend)) for asked in self.asked]
        filled = [(asked, space) for asked, space in spaces if space.size]
        if not filled:
            raise self.infeasible()
        return filled

    def infeasible(self) -> InfeasibleError:
        """Says of every kernel why it has no valid configuration."""
        from constrint.select.rank import infeasible

        if self.kernels is None or len(self.asked) == 1:
            return self.asked[0].infeasible()
        return infeasible([asked.request for asked in self.asked if asked.request is not None])
