"""The searches by name: built-in ones, those of installed packages, and those that a program registers.

A name may carry an argument behind a colon: `optuna:cmaes`. Another package offers its search as an entry point of the
group `constrint.searches` that names a function like those of `_BUILT_IN`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from constrint import plugins
from constrint.errors import UnknownNameError
from constrint.select.candidates import Candidates
from constrint.tune.search.interface import Search, SearchTask

ENTRY_POINTS = "constrint.searches"
#: Makes a search from a task, its configurations, and the argument behind the colon of its name.
Maker = Callable[[SearchTask, Candidates, str], Search]
#: Makers of the built-in searches.
_BUILT_IN = {
    "model": "constrint.tune.search.model:make",
    "random": "constrint.tune.search.at_random:make",
    "optuna": "constrint.tune.search.samplers:make",
    "llm": "constrint.tune.search.llm.search:make",
}
_REGISTERED: dict[str, Maker] = {}


def register_search(name: str, maker: Maker) -> None:
    """Register a search; one of the same name is replaced."""
    _REGISTERED[name] = maker


def list_searches() -> tuple[str, ...]:
    """Names of all searches, the default one first."""
    return tuple(dict.fromkeys((*_BUILT_IN, *_REGISTERED, *(point.name for point in plugins.offered(ENTRY_POINTS)))))


def find_search(name: str) -> Callable[[SearchTask], Search]:
    """The maker of a search by its name.

    Raises:
        UnknownNameError: When there is no such search.
    """
    _maker(name.partition(":")[0])
    return partial(make_search, name)


def make_search(name: str, task: SearchTask, candidates: Candidates | None = None) -> Search:
    """Make a search by its name.

    Args:
        name: `model`, `random`, `optuna`, `optuna:cmaes`, or another that is registered.
        task: The workload and the GPU.
        candidates: The valid configurations; those of all kernels of the operation if None.

    Raises:
        UnknownNameError: When there is no such search.
        UsageError: When it needs a package that is not installed, or no kernel can take the workload.
        InfeasibleError: When no configuration is valid.
    """
    base, _, argument = name.partition(":")
    maker = _maker(base)
    if candidates is None:
        candidates = Candidates.of(task.operation, task.gpu, task.workload, task.fixed)
    return maker(task, candidates, argument)


def _maker(name: str) -> Maker:
    if name not in _REGISTERED and name not in _BUILT_IN and (found := plugins.function_named(ENTRY_POINTS, name)):
        register_search(name, found)
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _BUILT_IN:
        raise UnknownNameError("search", name, list_searches(), "`register_search` adds one.")
    module, _, attribute = _BUILT_IN[name].partition(":")
    maker: Maker = getattr(import_module(module), attribute)
    return maker
