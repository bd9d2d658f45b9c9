"""On a real device: a kernel that hangs it or breaks its context costs its own trial, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune import Trial
from constrint.tune.engine.interface import Job, Setup
from constrint.tune.engine.local import LocalEngine
from constrint.tune.goals import goals_of
from constrint.tune.search.registry import make_search
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Settings, Tuner
from tests.support.decisions import forget_products
from tests.support.needs import needs_gpu
from tests.tune.engine.test_local import answers

pytestmark = [pytest.mark.gpu, needs_gpu]
KERNEL = f"{Path(__file__).parents[1] / 'hostile_gpu.py'}:SPEC"


def test_real_faults_have_their_outcomes_and_the_run_goes_on() -> None:
    from constrint.tune.engine.local import devices_of

    gpu, devices = devices_of(None)
    spec = load_spec(KERNEL)
    behaviours = sys.modules[type(spec).__module__].BEHAVIOURS
    names = list(behaviours)
    workload = Workload("hostile_gpu", {"n": 4096}, "fp32")
    engine = LocalEngine(Setup(load_spec, gpu, run_patience_s=15.0), devices[:1])
    try:
        order = [name for each in names for name in (each, "right")]
        for number, name in enumerate(order):
            config = {"what": names.index(name), "tile": 128 + 128 * (number % 2)}
            engine.submit(0, Job(number, (Trial(KERNEL, workload, config),)))
        found = answers(engine, len(order), limit_s=300)
    finally:
        engine.close()
    told = [(name, found[number].answers[0].outcome) for number, name in enumerate(order)]
    assert told == [(name, behaviours[name]) for name in order], {n: d.answers[0].message for n, d in found.items()}


def test_a_product_is_tuned_and_is_what_matmul_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from constrint.kernels.gemm.product import Product
    from constrint.kernels.registry import load_kernel
    from constrint.select import winners
    from constrint.tune.engine.local import LocalEngine, devices_of
    from constrint.tuning import tune

    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    gpu, devices = devices_of(None)
    # Large enough that a winner of the library is launched, too: it takes longer than the host does for its call.
    workload = Workload("gemm", {"m": 4096, "n": 2048, "k": 2048}, "bf16")
    torch.zeros(1, device="cuda")
    with RecordStore.open(tmp_path / "records.sqlite") as store:
        engine = LocalEngine(Setup(load_spec, gpu), devices[:1])
        try:
            settings = Settings(gpu, lambda task: make_search("model", task), trials=6)
            (tuned,) = tune(goals_of(load_kernel("gemm"), gpu, [workload]), settings, engine, store).tuned
        finally:
            engine.close()
        assert tuned.winner is not None
        assert tuned.is_whole
        assert store.count() >= 7
        winners.reload()
        forget_products()
        choice = decide_product(gpu, Product.of(workload))
        assert (choice.kernel, dict(choice.config)) == (tuned.winner.kernel, tuned.winner.config)
        assert choice.seconds == tuned.best_s
        # What is known is not measured again.
        nothing = Settings(gpu, lambda task: make_search("model", task), trials=6, resume=True)
        (again,) = Tuner(nothing, engine, store).run(goals_of(load_kernel("gemm"), gpu, [workload])).tuned
        assert again.winner == tuned.winner
    forget_products()
    winners.reload()
