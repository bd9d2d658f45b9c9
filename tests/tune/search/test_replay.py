"""The searches over recorded trials of an H200: the default one finds the best where the cost model's choice is not."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.space import Measured, read_space
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select.candidates import Candidates, KernelCandidates
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.registry import make_search

GPU = load_gpu("h200")
RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "h200"
#: Every valid configuration of 38 recurrent layers in both directions, 20 to 30 each.
LAYERS = RESULTS / "rnn_space.csv"
#: Every configuration of 13 products. That of 16 rows has the fewest, and three implementations.
PRODUCTS, SKINNY = RESULTS / "gemm_exhaustive_bf16.csv.gz", "16,4096,4096,"


def found(of: Measured, name: str, number: int, *, batch: int = 1, seed: int = 0) -> float:
    """The best recorded time over the best one that a search finds in a number of trials; only rows are proposed.

    Kernels have the resource rules of the version of Triton that was measured, whichever version is installed.
    """
    operation, work, seconds = load_kernel(of.workload.operation), of.workload, 1e-6 * of.time_us()
    kernels = [KernelCandidates(of.spec(k), GPU, work, of.of_rows(rows)) for k, rows in of.by_kernel()]
    search = make_search(name, SearchTask(operation, GPU, work, seed=seed), Candidates(kernels))
    times: list[float] = []
    while len(times) < number and (asked := search.ask(min(batch, number - len(times)))):
        for proposal in asked:
            row = of.find(proposal.kernel, dict(proposal.config))
            assert row is not None, "only recorded configurations may be proposed"
            times.append(float(seconds[row]))
            search.tell(proposal, times[-1])
    return float(np.nanmin(seconds)) / min(times)


@cache
def layers() -> list[Measured]:
    return read_space(LAYERS)


@pytest.mark.parametrize(("number", "batch"), [(6, 1), (8, 4)])
def test_the_default_search_is_within_5_percent_of_the_best_of_every_layer_in_a_few_trials(
    number: int, batch: int
) -> None:
    shares = [found(of, "model", number, batch=batch) for of in layers()]
    assert len(shares) == 76
    assert min(shares) >= 0.95
    assert float(np.mean(shares)) >= 0.995


def test_the_cost_models_choices_alone_and_draws_are_not_within_5_percent() -> None:
    assert min(found(of, "model", 2) for of in layers()) < 0.9
    assert min(found(of, "random", 6) for of in layers()) < 0.95


def test_the_default_search_finds_the_best_of_thousands_of_configurations_in_32_trials(tmp_path: Path) -> None:
    with gzip.open(PRODUCTS, "rt") as file:
        lines = [line for number, line in enumerate(file) if number < 2 or line.startswith(SKINNY)]
    (tmp_path / "skinny.csv").write_text("".join(lines))
    (product,) = read_space(tmp_path / "skinny.csv")
    assert len(product.kernels) > 4000
    assert found(product, "model", 1) >= 0.95
    assert found(product, "model", 32, batch=4) >= 0.99
    assert found(product, "random", 32) < 0.95


@pytest.mark.parametrize("installed", ["", "3.8.0", "4.0"])
def test_what_is_replayed_does_not_depend_on_the_installed_version_of_triton(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (of,) = (of for of in layers() if str(of.workload) == "lstm batch=64 time=1024 heads=1 head_dim=1024 bf16")
    assert of.triton == "3.6.0"
    as_measured = of.predicted_us(GPU)
    monkeypatch.setattr("constrint.kernels.rnn.triton.spec.triton_version", lambda: installed)
    np.testing.assert_array_equal(of.predicted_us(GPU), as_measured)
    # The compiler reads weights differently from 3.8 on: other registers, and another first choice.
    newer = replace(of, triton="3.8.0").predicted_us(GPU)
    assert np.argmin(newer) != np.argmin(as_measured)
