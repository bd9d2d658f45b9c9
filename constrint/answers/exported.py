"""The subject of an export: the rows of a ranking or a space under their new names, and their provenance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from constrint import __version__
from constrint.errors import InfeasibleError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.select.candidate import Candidate
from constrint.select.rank import KernelProblem, Ranking
from constrint.select.workload import Workload
from constrint.solve import SearchSpace, best_solutions

#: Most rows of a space in a file; a longer list needs a `top`.
MAX_ROWS = 1_000_000


@dataclass(frozen=True)
class Row:
    """One configuration.

    Args:
        kernel: The implementation's full name; empty for a user's own problem.
        config: The value of each parameter under its new name.
        candidate: The estimates; None for a row of a space.
    """

    kernel: str
    config: Mapping[str, Any]
    candidate: Candidate | None = None


@dataclass(frozen=True)
class Export:
    """The subject that a format writes: a ranking or a space.

    Args:
        ranking: The best configurations of a kernel with their modelled times.
        space: All valid configurations, with their rules.
        about: The kernel, the GPU and the workload of a space; None for a user's own problem.
        top: Most configurations to write; None writes all.
        rename: New names of parameters by their own names; an empty name leaves the parameter out.
        name: The title of a user's own problem; the problem's name if empty.
        is_raw: Whether CSV has text as it is, even where a spreadsheet would compute it.
    """

    ranking: Ranking | None = None
    space: SearchSpace | None = None
    about: KernelProblem | None = None
    top: int | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    is_raw: bool = False

    @property
    def gpu(self) -> GpuModel | None:
        """The GPU; None for a user's own problem."""
        subject = self.ranking or self.about
        return None if subject is None else subject.gpu

    @property
    def workload(self) -> Workload | None:
        """The workload; None for a user's own problem."""
        subject = self.ranking or self.about
        return None if subject is None else subject.workload

    @property
    def title(self) -> str:
        """The subject in a line: `gemm m=4096 n=4096 k=4096 bf16 on H200-SXM (sm_90a)`."""
        if self.gpu is None or self.workload is None:
            return self.name or (self.space.problem.name if self.space is not None else "") or "a search space"
        kernel = self.about.spec.full_name if self.about is not None else self.workload.operation
        sizes = str(self.workload).removeprefix(self.workload.operation)
        return f"{kernel}{sizes} on {self.gpu.name} ({self.gpu.arch.target})"

    @property
    def figures(self) -> str:
        """The source of the resources: `compiled` if a compiler stated them for any candidate, else `modelled`."""
        rows = self.ranking.candidates if self.ranking is not None else ()
        is_compiled = any(row.resources is not None and row.resources.compiled is not None for row in rows)
        return "compiled" if is_compiled else "modelled"

    @property
    def header(self) -> list[str]:
        """The first lines of a file: the subject, the writer, and whether times are modelled."""
        lines = [self.title, f"Written by constrint {__version__}."]
        if self.ranking is not None:
            compiled = " Resources of some are what the compiler says." if self.figures == "compiled" else ""
            lines[1] += f" Times are modelled, not measured.{compiled}"
        return lines

    @property
    def provenance(self) -> dict[str, Any]:
        """The provenance as data."""
        fields: dict[str, Any] = {"constrint": __version__}
        if self.ranking is not None:
            fields["figures"] = self.figures
        if self.gpu is not None and self.workload is not None:
            fields |= {"gpu": self.gpu.name, "target": self.gpu.arch.target, "operation": self.workload.operation}
            fields |= {"sizes": dict(self.workload.sizes), "options": dict(self.workload.options)}
            fields["dtype"] = self.workload.dtype
        return fields

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of all rows, by their own names."""
        if self.space is not None:
            return self.space.names
        rows = self.ranking.candidates if self.ranking is not None else ()
        return tuple(dict.fromkeys(name for row in rows for name in row.config))

    @property
    def shown(self) -> dict[str, str]:
        """The written names by the parameters' own names, without parameters that are left out."""
        names = {name: self.rename.get(name, name) for name in self.names}
        return {name: shown for name, shown in names.items() if shown}

    def check(self) -> None:
        """Reject unknown or colliding names.

        Raises:
            UnknownNameError: When a renamed parameter does not exist.
            UsageError: When two parameters get the same name, or `top` is below 1.
            InfeasibleError: When no configuration is valid.
        """
        if self.space is not None and not self.space.size:
            raise InfeasibleError(f"{self.title} has no valid configuration to export; minimal_conflict says why.")
        if self.top is not None and self.top < 1:
            raise UsageError(f"top must be at least 1, got {self.top}.")
        for name in self.rename:
            if name not in self.names:
                raise UnknownNameError("parameter", name, self.names, "Only a parameter can be renamed.")
        owners: dict[str, str] = {}
        for name, shown in self.shown.items():
            if owners.setdefault(shown, name) != name:
                raise UsageError(f"{owners[shown]!r} and {name!r} would both be called {shown!r}; rename one of them.")

    def rows(self) -> list[Row]:
        """The configurations to write, the best first if they are ordered.

        Raises:
            UsageError: When a parameter that is left out has several values, or the rows are too many.
        """
        listed = list(itertools.islice(self._all_rows(), self.top))
        for name in self.names:
            if name not in self.shown:
                self._check_left_out(name, listed)
        return [Row(row.kernel, self._renamed(row.config), row.candidate) for row in listed]

    def _all_rows(self) -> Iterator[Row]:
        if self.ranking is not None:
            for candidate in self.ranking.candidates:
                spec = self.ranking.operation.spec(candidate.kernel)
                yield Row(candidate.kernel, spec.values_of(candidate.config), candidate)
        if self.space is None:
            return
        kernel = "" if self.about is None else self.about.spec.full_name
        number = min(self.top or self.space.size, self.space.size)
        if number > MAX_ROWS:
            raise UsageError(f"{number:,} configurations are too many for a list; ask for the best {MAX_ROWS:,} (top).")
        for config in _best_first(self.space, number):
            yield Row(kernel, self.about.spec.values_of(config) if self.about is not None else config)

    def _check_left_out(self, name: str, rows: list[Row]) -> None:
        values = list(dict.fromkeys(row.config[name] for row in rows if name in row.config))
        if len(values) > 1:
            raise UsageError(
                f"{name} cannot be left out: it is {', '.join(map(str, values[:8]))} in the configurations to export, "
                "and they would not say which. Fix it first (--set), or give it a name."
            )

    def _renamed(self, config: Mapping[str, Any]) -> dict[str, Any]:
        shown = self.shown
        return {shown[name]: value for name, value in config.items() if name in shown}


def _best_first(space: SearchSpace, number: int) -> Iterator[Mapping[str, Any]]:
    """The best solutions of a space by its problem's objectives; without objectives, the first by index."""
    problem = space.problem
    if not problem.objectives and not problem.soft_constraints:
        yield from itertools.islice(space, number)
        return
    if problem.objective is not None and len(problem.objectives) == 1 and not problem.soft_constraints:
        best = space.best(number, problem.objective.expr, maximise=problem.objective.maximise)
        yield from (ranked.config for ranked in best)
        return
    limit = number
    while True:
        # Solutions of the problem; a space that was narrowed since may lack some of them.
        answers = best_solutions(problem, limit)
        solutions = [answer.assignment for answer in answers if space.contains(answer.assignment)]
        if len(solutions) >= number or len(answers) < limit:
            yield from solutions[:number]
            return
        limit *= 2
