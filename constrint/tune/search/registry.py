"""The searches by name: built-in ones, those of installed packages, and those that a program registers.

A name may carry an argument behind a colon: `optuna:cmaes`. Another package offers its search as an entry point of the
group `constrint.searches`: a `Maker`, which is loaded where its search is named, and at no other time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from constrint import plugins
from constrint.errors import UnknownNameError, UsageError
from constrint.select.candidates import Candidates
from constrint.tune.search.interface import Search, SearchTask

ENTRY_POINTS = "constrint.searches"
#: Makes a search from a task, its configurations, and the argument behind the colon of its name.
Maker = Callable[[SearchTask, Candidates, str], Search]
#: Built-in searches: classes, which take no argument, and makers.
_CLASSES = {
    "model": "constrint.tune.search.model:ModelSearch",
    "random": "constrint.tune.search.at_random:RandomSearch",
}
_MAKERS = {"optuna": "constrint.tune.search.samplers:make", "llm": "constrint.tune.search.llm.search:make"}
_REGISTERED: dict[str, Maker] = {}


def register_search(name: str, maker: Maker) -> None:
    """Register a search; one of the same name is replaced."""
    _REGISTERED[name] = maker


def list_searches() -> tuple[str, ...]:
    """Names of all searches, the default one first."""
    offered = (point.name for point in plugins.offered(ENTRY_POINTS))
    return tuple(dict.fromkeys((*_CLASSES, *_MAKERS, *_REGISTERED, *offered)))


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
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _CLASSES:
        return partial(_without_argument, name)
    if name in _MAKERS:
        module, _, attribute = _MAKERS[name].partition(":")
        built_in: Maker = getattr(import_module(module), attribute)
        return built_in
    if offered := plugins.function_named(ENTRY_POINTS, name):
        return offered
    raise UnknownNameError("search", name, list_searches(), "`register_search` adds one.")


def _without_argument(name: str, task: SearchTask, candidates: Candidates, argument: str) -> Search:
    if argument:
        raise UsageError(f"search '{name}:{argument}': {name!r} takes nothing behind a colon.")
    module, _, attribute = _CLASSES[name].partition(":")
    search: Search = getattr(import_module(module), attribute)(task, candidates)
    return search
