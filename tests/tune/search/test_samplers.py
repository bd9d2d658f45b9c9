"""Optuna's samplers, and what is said where Optuna is missing."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from constrint.errors import UnknownNameError, UsageError
from constrint.tune.search.registry import make_search
from tests.tune.search.spaces import run, task_of


def test_without_optuna_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any) -> Any:
        if name == "optuna":
            raise ImportError("no module named optuna")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"pip install 'constrint\[optuna\]', or use --search model"):
        make_search("optuna:tpe", task_of())


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown sampler of Optuna 'tp'\. Nearest: tpe"):
        make_search("optuna:tp", task_of())


@pytest.mark.parametrize("name", ["optuna", "optuna:nsgaii", "optuna:qmc"])
def test_samplers_propose_what_is_valid(name: str) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    proposals = run(make_search(name, task_of()), 15, batch=5)
    assert len(proposals) == 15
    assert all(not p.config or p.config["warps"] <= p.config["tile"] for p in proposals)


def test_the_sampler_is_told_what_was_tried_in_place_of_its_suggestion() -> None:
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    search: Any = make_search("optuna:tpe", task_of())
    run(search, 15)
    done = [t for t in search._study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert len(done) == 15
    for trial in done:
        values = {n: int(search._values[n][place]) for n, place in trial.params.items() if n != "kernel"}
        if trial.params["kernel"] == "toy.tiled":
            assert values["warps"] <= values["tile"]
