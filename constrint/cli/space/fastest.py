"""The configuration that is predicted to be the fastest, as asked and of all, with the figures that make it so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from constrint.cli.asked.question import Asked
from constrint.cli.output import Cell, Column, Table
from constrint.cli.space.rules import YOURS, kind_of
from constrint.errors import LimitReachedError
from constrint.select.rank import KernelProblem, rank_requests
from constrint.select.spec import Operation
from constrint.solve import Limits

#: What a configuration is the fastest of.
OF_ASKED, OF_ALL = "as asked", "of all"


@dataclass(frozen=True)
class Fastest:
    """A configuration that is predicted to be the fastest.

    Args:
        of: What of: of what was asked, or of all.
        config: It.
        seconds: Its predicted time.
        figures: What makes it so, by names with units.
    """

    of: str
    config: Mapping[str, int]
    seconds: float
    figures: Mapping[str, float]

    def document(self) -> dict[str, Any]:
        """As it stands in JSON."""
        shown = {"of": self.of, "config": dict(self.config), "seconds": self.seconds}
        return shown | {"figures": dict(self.figures)}


def fastest_of(asked: Asked, limits: Limits | None = None) -> tuple[Fastest, ...]:
    """The fastest as asked and, where something was asked, of all; none for kernels that state no figures."""
    request = asked.request
    if request is None or not request.spec.has_figures or not asked.problem.variables:
        return ()
    found = [_fastest(OF_ASKED, replace(request, problem=asked.problem), limits)]
    if any(kind_of(asked, rule) == YOURS for rule in asked.problem.constraints):
        whole = request.spec.problem(request.gpu, request.workload)
        found.append(_fastest(OF_ALL, replace(request, problem=whole), limits))
    return tuple(one for one in found if one is not None)


def _fastest(of: str, request: KernelProblem, limits: Limits | None) -> Fastest | None:
    spec = request.spec
    try:
        ranking = rank_requests(Operation(spec.full_name, (spec,)), [request], {}, top=1, limits=limits)
    except LimitReachedError:
        return None
    best = ranking.candidates[0]
    figures = spec.figures(request.gpu, request.workload, best.config)
    return Fastest(of, best.config, best.cost.seconds, figures)


def table_of(found: tuple[Fastest, ...]) -> Table:
    """Parameters that differ, the time and the figures, a column for each configuration."""
    columns = [Column("figure", is_text=True, importance=100)]
    columns += [Column(one.of, importance=90) for one in found]
    return Table(tuple(columns), list(_rows(found)))


def _rows(found: tuple[Fastest, ...]) -> Iterator[list[Any]]:
    for name in found[0].config:
        values = [one.config[name] for one in found]
        if len(set(values)) > 1 or len(found) == 1:
            yield [name, *values]
    yield ["predicted us", *(Cell(1e6 * one.seconds, f"{1e6 * one.seconds:,.1f}") for one in found)]
    for name in found[0].figures:
        if name not in found[0].config:
            yield [name, *(_shown(one.figures[name]) for one in found)]


def _shown(value: float) -> Cell:
    if float(value).is_integer():
        return Cell(int(value), f"{int(value):,}")
    return Cell(value, f"{value:.3f}" if abs(value) < 2 else f"{value:,.1f}")
