"""The figures of a page: each is a file of `constrint.report.figures` that registers its function here.

A new figure is a new file: `load_figures` imports every file of that folder.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

from constrint.answers.facts import GpuFacts, Report
from constrint.report.drawing import Drawing

OfGpu = Callable[[GpuFacts], Iterable[Drawing]]
OfReport = Callable[[Report], Iterable[Drawing]]


@dataclass(frozen=True)
class Figures:
    """The functions that draw, in the order of the page.

    Args:
        of_gpu: Those that draw one GPU.
        of_report: Those that draw all of them together.
    """

    of_gpu: tuple[OfGpu, ...]
    of_report: tuple[OfReport, ...]


_OF_GPU: dict[str, tuple[int, OfGpu]] = {}
_OF_REPORT: dict[str, tuple[int, OfReport]] = {}


def draws_gpu(order: int) -> Callable[[OfGpu], OfGpu]:
    """Register a function that draws one GPU; smaller orders come first."""

    def register(function: OfGpu) -> OfGpu:
        _OF_GPU[function.__module__] = (order, function)
        return function

    return register


def draws_report(order: int) -> Callable[[OfReport], OfReport]:
    """Register a function that draws all GPUs together."""

    def register(function: OfReport) -> OfReport:
        _OF_REPORT[function.__module__] = (order, function)
        return function

    return register


def load_figures() -> Figures:
    """Every figure that there is a file of."""
    folder = import_module("constrint.report.figures")
    for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        import_module(module.name)
    of_gpu = [function for _, (_, function) in sorted(_OF_GPU.items(), key=lambda item: (item[1][0], item[0]))]
    of_report = [function for _, (_, function) in sorted(_OF_REPORT.items(), key=lambda item: (item[1][0], item[0]))]
    return Figures(tuple(of_gpu), tuple(of_report))
