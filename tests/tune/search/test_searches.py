"""What every search keeps to: valid configurations only, none twice, the same answers again, whatever it is told."""

from __future__ import annotations

import math
from importlib.util import find_spec

import pytest

from constrint.errors import ConstrintError, UnknownNameError, UsageError
from constrint.select import Operation
from constrint.select.candidates import Candidates
from constrint.solve import enumerate_space
from constrint.tune.search.at_random import RandomSearch
from constrint.tune.search.interface import Proposal, Search, SearchTask
from constrint.tune.search.registry import list_searches, make_search, register_search
from tests.tune.search.spaces import GPU, TOY, NoModelSpec, PlainSpec, ToySpec, WideSpec, key_of, run, task_of

needs_optuna = pytest.mark.skipif(find_spec("optuna") is None, reason="optuna is not installed")
SEARCHES = [
    "model",
    "random",
    pytest.param("optuna:tpe", marks=needs_optuna),
    pytest.param("optuna:cmaes", marks=[needs_optuna, pytest.mark.slow]),
]


def draws(task: SearchTask, candidates: Candidates, argument: str) -> Search:
    """A search as another package offers it."""
    return RandomSearch(task, candidates)


def is_valid(task: SearchTask, proposal: Proposal) -> bool:
    problem = task.operation.spec(proposal.kernel).problem(GPU, task.workload)
    return enumerate_space(problem).contains(proposal.config) if problem.variables else not proposal.config


@pytest.mark.parametrize("name", SEARCHES)
def test_every_configuration_is_proposed_once_and_then_none(name: str) -> None:
    task = task_of()
    # Tiles 1 to 32 with as many warps at most: 1 + 2 + 3 + 4 + 4 + 4, two orders, two knobs; and the plain kernel.
    proposals = run(make_search(name, task), 200, batch=7)
    assert len(proposals) == 18 * 4 + 1
    assert len({key_of(proposal) for proposal in proposals}) == len(proposals)
    for proposal in proposals:
        assert is_valid(task, proposal)
        assert proposal.because


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_calls_give_the_same_proposals(name: str) -> None:
    once, again = (run(make_search(name, task_of(seed=5)), 20, batch=4) for _ in range(2))
    assert [key_of(proposal) for proposal in once] == [key_of(proposal) for proposal in again]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("seconds", [None, math.nan, math.inf, 0.0, -1.0])
def test_failures_and_nonsense_do_not_stop_a_search(name: str, seconds: float | None) -> None:
    search = make_search(name, task_of())
    seen = set()
    for _ in range(12):
        (proposal,) = search.ask(1)
        search.tell(proposal, seconds)
        seen.add(key_of(proposal))
    assert len(seen) == 12


@pytest.mark.parametrize("name", SEARCHES)
def test_what_another_tried_is_not_proposed_again(name: str) -> None:
    search = make_search(name, task_of(Operation("toy", (ToySpec(),))))
    other = {"tile": 16, "warps": 4, "order": 1, "knob": 0}
    search.tell(Proposal("toy.tiled", other), 1e-5)
    search.tell(Proposal("toy.tiled", {"tile": 3, "warps": 4, "order": 1, "knob": 0}), 1e-5)  # not valid
    search.tell(Proposal("toy.other", {}), 1e-5)  # no such kernel
    assert all(dict(proposal.config) != other for proposal in run(search, 200))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_kernel_without_parameters_is_one_configuration(name: str) -> None:
    search = make_search(name, task_of(Operation("toy", (PlainSpec(),))))
    assert [dict(proposal.config) for proposal in run(search, 5, batch=5)] == [{}]
    assert search.ask(1) == []


@pytest.mark.parametrize("name", SEARCHES)
def test_of_millions_of_configurations_a_few_are_taken(name: str) -> None:
    task = task_of(Operation("toy", (WideSpec(),)))
    candidates = Candidates.of(task.operation, GPU, task.workload)
    assert candidates.size == 2000 * 100 * 100 // 2
    search = make_search(name, task, candidates)
    proposals = search.ask(3)
    search.tell(proposals[0], 1e-6)
    search.tell(proposals[1], None)
    proposals += search.ask(3)
    assert len({key_of(proposal) for proposal in proposals}) == 6
    assert all(is_valid(task, proposal) for proposal in proposals)
    # Far fewer than all are held at any time.
    assert candidates.kernels[0].num_rows < 200_000


@pytest.mark.parametrize("name", SEARCHES)
def test_fixed_parameters_keep_their_values(name: str) -> None:
    proposals = run(make_search(name, task_of(fixed={"tile": 8, "elsewhere": 3})), 200)
    tiled = [proposal for proposal in proposals if proposal.kernel == "toy.tiled"]
    assert len(tiled) == 4 * 4
    assert {proposal.config["tile"] for proposal in tiled} == {8}


def test_a_model_that_says_nothing_is_no_obstacle() -> None:
    task = task_of(Operation("toy", (NoModelSpec(),)))
    search = make_search("model", task)
    (first,) = search.ask(1)
    assert math.isnan(first.predicted_s)
    search.tell(first, 1e-4)
    assert len(run(search, 200)) == 18 * 4 - 1


def test_unknown_names_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown search 'modle'\. Nearest: model"):
        make_search("modle", task_of())
    for name in ("model:fast", "random:x"):
        with pytest.raises(UsageError, match="takes nothing behind a colon"):
            make_search(name, task_of())
    assert list_searches()[:3] == ("model", "random", "optuna")


def test_a_search_from_outside_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from constrint.tune.search import registry

    monkeypatch.setattr(registry, "_REGISTERED", {})

    class First:
        def __init__(self, argument: str) -> None:
            self.argument = argument

        def ask(self, number: int) -> list[Proposal]:
            return [Proposal("toy.plain", {}, because=self.argument)]

        def tell(self, proposal: Proposal, seconds: float | None) -> None:
            pass

    register_search("first", lambda task, candidates, argument: First(argument))
    assert make_search("first:it", task_of(TOY)).ask(1)[0].because == "it"
    assert "first" in list_searches()


def test_a_package_offers_a_search_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    from constrint.tune.search import registry

    monkeypatch.setattr(registry, "_REGISTERED", {})
    point = metadata.EntryPoint("theirs", f"{__name__}:draws", registry.ENTRY_POINTS)
    broken = metadata.EntryPoint("broken", f"{__name__}:nothing", registry.ENTRY_POINTS)
    points = {registry.ENTRY_POINTS: [broken, point]}
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: points.get(group, []))
    assert make_search("theirs", task_of()).ask(1)[0].because == "random"
    assert {"theirs", "broken"} <= set(list_searches())
    with pytest.raises(ConstrintError, match=f"'broken'.*{__name__}:nothing.*cannot be loaded: AttributeError"):
        make_search("broken", task_of())
