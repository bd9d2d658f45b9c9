"""Searches that are made in other processes propose what those that are made here do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from constrint.errors import InfeasibleError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.select import Workload
from constrint.tune.search.interface import Proposal, Search, SearchTask
from constrint.tune.search.maker import Make, SearchMaker
from constrint.tune.search.registry import make_search
from constrint.tune.store.record import Figures, TuningRecord

GPU = load_gpu("h200")
GEMM = load_kernel("gemm")
MODEL: Make = partial(make_search, "model")


def task(m: int = 512, **fixed: int) -> SearchTask:
    return SearchTask(GEMM, GPU, Workload("gemm", {"m": m, "n": 512, "k": 512}, "bf16"), fixed=fixed)


def record(m: int, proposal: Proposal, seconds: float) -> TuningRecord:
    """A measurement of a product with that many rows."""
    return TuningRecord(
        kernel=proposal.kernel,
        operation="gemm",
        gpu=GPU.name,
        dtype="bf16",
        sizes=dict(task(m).workload.sizes),
        config=dict(proposal.config),
        outcome="ok",
        run="",
        created=0.0,
        figures=Figures(median_s=seconds, spread_s=0.0, num_rounds=5),
    )


def told(search: Search, number: int) -> list[Proposal]:
    """What a search proposes where every configuration takes three times as long as the one before."""
    proposals = []
    for i in range(number):
        (proposal,) = search.ask(1)
        search.tell(proposal, 1e-6 * 3**i)
        proposals.append(proposal)
    return proposals


@pytest.fixture(scope="module")
def known() -> list[TuningRecord]:
    proposals = MODEL(task(1024)).ask(6)
    return [record(1024, proposal, 1e-5 * (1 + i % 3)) for i, proposal in enumerate(proposals)]


@pytest.fixture(scope="module")
def maker(known: list[TuningRecord]) -> Iterator[SearchMaker]:
    made = SearchMaker(MODEL, GPU, {"gemm": known}, load=load_spec)
    yield made
    made.close()


def test_a_search_of_another_process_proposes_the_same(maker: SearchMaker, known: list[TuningRecord]) -> None:
    away = maker.submit(task(), is_away=True).result()
    here = maker.submit(task(), is_away=False).result()
    proposals = told(away, 5)
    assert proposals == told(here, 5)
    assert proposals != told(MODEL(task()), 5), "what is known of other workloads has no effect"


def test_records_of_the_same_workload_are_not_told(maker: SearchMaker) -> None:
    assert told(maker.submit(task(1024), is_away=True).result(), 3) == told(MODEL(task(1024)), 3)


def test_what_cannot_be_made_elsewhere_says_why_here(maker: SearchMaker) -> None:
    with pytest.raises(InfeasibleError, match="gemm"):
        maker.submit(replace(task(tile_m=17), operation=load_kernel("gemm.pointer")), is_away=True).result()


def test_what_cannot_travel_is_made_here() -> None:
    maker = SearchMaker(lambda task: MODEL(task), GPU, {"gemm": ()}, load=load_spec)
    try:
        assert maker.submit(task(), is_away=True).result().ask(1) == MODEL(task()).ask(1)
    finally:
        maker.close()


@pytest.mark.parametrize("load", [exit, int])
def test_kernels_that_are_not_found_elsewhere_are_those_of_here(load: Any) -> None:
    maker = SearchMaker(MODEL, GPU, {"gemm": ()}, load=load)
    try:
        assert maker.submit(task(), is_away=True).result().ask(1) == MODEL(task()).ask(1)
    finally:
        maker.close()


def test_where_the_processes_die_it_is_made_here() -> None:
    maker = SearchMaker(MODEL, GPU, {"gemm": ()}, load=load_spec)
    others = multiprocessing.active_children()
    try:
        assert maker.submit(task(), is_away=True).result().ask(1) == MODEL(task()).ask(1)
        for process in set(multiprocessing.active_children()) - set(others):
            process.kill()
        for m in (512, 1024):
            assert maker.submit(task(m), is_away=True).result().ask(1) == MODEL(task(m)).ask(1)
    finally:
        maker.close()
