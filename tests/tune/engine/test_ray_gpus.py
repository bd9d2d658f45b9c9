"""On two real GPUs of one host: the Ray engine keeps both at work, and a fault on one costs its own trial alone.

pytest -q tests/tune/engine/test_ray_gpus.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune import Outcome, Trial
from constrint.tune.engine.interface import Job, Setup
from tests.support.needs import needs_gpu
from tests.tune.engine.test_local import answers

KERNEL = f"{Path(__file__).parents[1] / 'hostile_gpu.py'}:SPEC"


def num_gpus() -> int:
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count()


pytestmark = [
    pytest.mark.gpu,
    needs_gpu,
    pytest.mark.skipif(num_gpus() < 2, reason=f"needs two GPUs of one host; this machine has {num_gpus()}"),
]


def test_both_gpus_run_trials_of_one_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs the extra [ray]: ray is not installed")
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    command = [sys.executable, "-m", "constrint.tune", "--kernel", "gemm", "--m", "2048", "--n", "2048", "--k", "2048"]
    command += ["--engine", "ray", "--trials", "16", "--json", "--store", str(tmp_path / "records.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    names = [device["name"] for device in report["devices"]]
    assert len(set(names)) == len(names) == num_gpus(), names
    assert all(device["jobs"] >= 2 and device["busy_s"] > 0 for device in report["devices"]), report["devices"]
    (result,) = report["results"]
    assert report["is_whole"]
    assert sum(result["outcomes"].values()) == 16
    assert result["winner"]["seconds"] > 0


def test_a_fault_on_one_gpu_leaves_the_other_at_work() -> None:
    pytest.importorskip("ray", reason="needs the extra [ray]: ray is not installed")
    from constrint.tune.engine.local import devices_of
    from constrint.tune.engine.ray import RayEngine

    gpu, _ = devices_of(None)
    behaviours = sys.modules[type(load_spec(KERNEL)).__module__].BEHAVIOURS
    names = list(behaviours)
    workload = Workload("hostile_gpu", {"n": 4096}, "fp32")
    engine = RayEngine(Setup(load_spec, gpu, run_patience_s=15.0))
    try:
        assert len(engine.slots) == num_gpus()
        # The first GPU has every fault; the others have correct candidates only.
        jobs = [(0, name) for name in names] + [(slot, "right") for slot in range(1, num_gpus()) for _ in names]
        for number, (slot, name) in enumerate(jobs):
            config = {"what": names.index(name), "tile": 128 + 128 * (number % 2)}
            engine.submit(slot, Job(number, (Trial(KERNEL, workload, config),)))
        results = answers(engine, len(jobs), limit_s=300)
    finally:
        engine.close()
    outcomes = [(slot, results[number].answers[0].outcome) for number, (slot, _) in enumerate(jobs)]
    assert outcomes == [(slot, behaviours[name] if slot == 0 else Outcome.OK) for slot, name in jobs]
    assert {results[number].slot for number in range(len(jobs))} == set(range(num_gpus()))
