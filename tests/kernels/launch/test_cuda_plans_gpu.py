"""Kernels in CUDA C++ whose blocks wait for each other, by plans and without, on the GPU of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import gpu_capability, missing_packages, needs_gpu

if missing_packages("torch", "triton", "cuda"):
    pytest.skip("needs the extras [torch] and [cuda]", allow_module_level=True)

import torch

from constrint.errors import RESIDENT, DoesNotFitError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch import FillLaunch, check_resident, resident_blocks
from constrint.kernels.launch.cuda import compile_cuda, nvrtc
from constrint.kernels.launch.plan import recipe
from constrint.kernels.launch.plan import table as tables
from constrint.kernels.launch.plan.scratch import NotedScratch
from tests.support.waiting_kernels import (
    BUILDS,
    CLUSTER_SUM,
    GRID_SUM,
    NAN_WORD,
    SUMS,
    cluster_launches,
    grid_launches,
)

ROOT = Path(__file__).parents[3]
needs_hopper = pytest.mark.skipif((gpu_capability() or (0, 0)) != (9, 0), reason="needs a Hopper GPU")


def expected_of(x: Any, cluster: int) -> Any:
    """What `SUMS` gives."""
    if not cluster:
        return x.sum().expand_as(x)
    groups = x.view(-1, cluster, x.shape[1])
    return 3 * groups.sum(1, keepdim=True).expand_as(groups).reshape(x.shape)


def numbers(cluster: int, blocks: int = 32) -> Any:
    """Whole numbers, whose sums are exact."""
    shape = (blocks, 64) if cluster else (blocks,)
    return torch.randint(-9, 9, shape, device="cuda").float()


def test_the_kernels_compile_without_a_gpu() -> None:
    try:
        nvrtc.nvrtc_version()
    except UsageError as error:
        pytest.skip(str(error))
    for source in (CLUSTER_SUM, GRID_SUM):
        assert compile_cuda(load_gpu("h200"), source).spill_bytes == 0


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("cluster", [0, 1, 2, 8, 16])
def test_blocks_meet_by_plans_and_without(cluster: int) -> None:
    x = numbers(cluster)
    out = torch.empty_like(x)
    launches = cluster_launches(x, out, cluster) if cluster else grid_launches(x, out)
    for launch in launches:
        launch.run()
    assert torch.equal(out, expected_of(x, cluster))
    builds = len(BUILDS)
    for _ in range(3):
        x = numbers(cluster)
        assert torch.equal(SUMS.run(cluster, x), expected_of(x, cluster))
    assert len(BUILDS) <= builds + 1


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("cluster", [0, 16])
def test_plans_of_blocks_that_meet_are_captured(cluster: int) -> None:
    x = numbers(cluster)
    SUMS.run(cluster, x)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = SUMS.run(cluster, x)
    for _ in range(3):
        x.copy_(numbers(cluster))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected_of(x, cluster))


@pytest.mark.gpu
@needs_gpu
def test_fills_on_the_gpu_by_plans_and_without() -> None:
    x = torch.zeros(6, 33, device="cuda", dtype=torch.int32)
    FillLaunch(x[2:4], NAN_WORD).run()
    assert x.sum(1).tolist() == [0, 0, -33, -33, 0, 0]

    def build(tensors: tuple[Any, ...], extra: Any) -> Any:
        out = torch.empty(8, 16, dtype=torch.bfloat16, device="cuda")
        fills = [FillLaunch(out, NAN_WORD), FillLaunch(out[4:], 0x3F803F80)]
        return recipe.recipe_of(fills, tensors, [out], NotedScratch())

    table = tables.PlanTable("fills", build, lambda: None)
    for _ in range(2):
        out = table.run(None, x)
        assert out[:4].isnan().all()
        assert (out[4:] == 1).all()
    assert table.state().hits == 2


@pytest.mark.gpu
@needs_hopper
def test_what_is_not_resident_is_told_before_the_launch() -> None:
    num_sms = torch.cuda.get_device_properties(0).multi_processor_count
    fits, out = numbers(0, num_sms), torch.empty(num_sms, device="cuda")
    check_resident(grid_launches(fits, out)[-1])
    many = numbers(0, 64 * num_sms)
    launch = grid_launches(many, torch.empty_like(many))[-1]
    assert (resident_blocks(launch) or 0) < 64 * num_sms
    for refused in (lambda: check_resident(launch), launch.run, lambda: SUMS.run(0, many)):
        with pytest.raises(DoesNotFitError) as error:
            refused()
        assert error.value.name == RESIDENT
    torch.cuda.synchronize()
    wide = cluster_launches(numbers(16), torch.empty(32, 64, device="cuda"), 16)[-1]
    assert (resident_blocks(wide) or 0) >= 16


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("cluster", [0, 16])
def test_without_the_core_cuda_launches_are_the_same(cluster: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "reads_tensors", lambda: False)
    monkeypatch.setattr(recipe, "reads_tensors", lambda: False)
    table = tables.PlanTable("directly", SUMS.build, lambda: None)
    for _ in range(3):
        x = numbers(cluster)
        assert torch.equal(table.run(cluster, x), expected_of(x, cluster))
    assert table.state().hits == 3


PROGRAM = """
import json
import torch
from tests.support.waiting_kernels import BUILDS, SUMS
sums = [SUMS.run(cluster, torch.arange(32.0 * 64, device="cuda").view(32, 64) if cluster else
                 torch.arange(32.0, device="cuda")).sum().item() for cluster in (0, 16)]
print(json.dumps([len(BUILDS), sums]))
"""


@pytest.mark.gpu
@needs_hopper
def test_later_processes_launch_what_the_first_one_kept(tmp_path: Path) -> None:
    environment = os.environ | {"CONSTRINT_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}

    def run() -> Any:
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    (first_builds, first), (later_builds, later) = run(), run()
    assert (first_builds, later_builds) == (2, 0)
    assert later == first
