"""The plan of a grouped product: maps with three axes, the addresses of the call's tensors, nothing of another call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import numpy as np
import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.grouped.launch import GroupedCall, grouped_launch
from constrint.kernels.launch.plan.recipe import plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from tests.kernels.gemm.test_cuda_launch import loaded
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, launch_bench_of
from tests.support.shared import SharedResults

CONFIG = {"tile_m": 128, "tile_n": 136, "tile_k": 64, "num_stages": 4, "consumers": 2, "by_columns": 1, "in_turns": 0}
CONFIG |= {"cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 16}


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def test_a_plan_has_the_maps_and_addresses_of_the_call(bench: LaunchBench) -> None:
    a, b = torch.zeros(300, 640, dtype=torch.bfloat16), torch.zeros(5, 640, 272, dtype=torch.bfloat16)
    offsets, out = torch.zeros(5, dtype=torch.int32), torch.zeros(300, 272, dtype=torch.bfloat16)
    launch = loaded(grouped_launch(load_gpu("h200"), GroupedCall(a, b, offsets, out), CONFIG))
    sizes = [value.itemsize if isinstance(value, np.generic) else 8 for value in launch.arguments]
    bench.fake.sizes([*[128] * 4, *sizes[4:]], LOADED)
    made = recipe_of([launch], [a, b, offsets, None], [out], NotedScratch())
    assert (made.direct, made.recipe.num_counters) == ([], 0)
    addresses = [1 << place for place in range(40, 44)]
    assert bench.core.launch(plan_of(made.recipe, 4), STREAM, *addresses[:3], 0, addresses[3]) is True
    calls = bench.fake.calls()
    (seen,) = (each for each in calls if each["call"] == "cuLaunchKernelEx")
    places = [int.from_bytes(bytes.fromhex(value)[:8], "little") for value in seen["arguments"]]
    assert places[:4] == [addresses[0], addresses[1], addresses[3], addresses[3]]
    assert (places[-3], places[-1]) == (addresses[2], addresses[3])
    encoded = [each for each in calls if each["call"] == "cuTensorMapEncodeTiled"]
    assert [each["sizes"] for each in encoded] == [[640, 300, 1], [272, 640, 5], [272, 300, 1], [272, 300, 1]]
    assert [each["block"] for each in encoded] == [[64, 128, 1], [64, 64, 1], [64, 64, 1], [8, 64, 1]]
    assert encoded[1]["strides"] == [544, 544 * 640]
