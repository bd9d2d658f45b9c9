"""Kernels in CUDA C++ and fills go by plans: laid out, kept on disk, launched in their order, refused with a reason."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import numpy as np
import torch

from constrint.errors import RESIDENT, DoesNotFitError, UsageError
from constrint.kernels.launch import FillLaunch, check_resident, resident_blocks
from constrint.kernels.launch.plan import recipe
from constrint.kernels.launch.plan.direct import PlainTable, PlanEntry
from constrint.kernels.launch.plan.recipe import Recipe, plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, cuda_launch, launch_bench_of, new_process, triton_launch

#: Where the test says that its slots are.
X, OUT, SCRATCH, COUNTERS = 1 << 40, 1 << 41, 1 << 42, 1 << 43
NAN_WORD = 0xFFFFFFFF


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def kernels_of(bench: LaunchBench) -> list[dict[str, Any]]:
    """What was filled and launched so far, without what is the same in all."""
    left_out = ("stream", "extra", "places")
    seen = [call for call in bench.fake.calls() if call["call"] in ("cuLaunchKernelEx", "cuMemsetD32Async")]
    return [{key: value for key, value in call.items() if key not in left_out} for call in seen]


def word(*values: int) -> list[str]:
    return [struct.pack("<Q", value).hex() for value in values]


def test_a_recipe_runs_as_its_launches_stand_in_this_process_and_in_others(bench: LaunchBench) -> None:
    bench.fake.sizes([8, 8, 8, 4, 4, 8], LOADED)
    bench.fake.sizes([8, 8, 8], LOADED + 1)
    x, out = torch.zeros(8, dtype=torch.float32), torch.zeros(4, 96, dtype=torch.bfloat16)
    scratch = NotedScratch()
    piece, zeros = scratch.empty((2, 128), torch.bfloat16, out.device), scratch.zeros(64, out.device)
    counted = scratch.counters(3, out.device), scratch.counters(5, out.device)
    wide = cuda_launch(out[1], piece, None, np.int32(-3), np.float32(0.5), out[:0], cluster=16)
    together = cuda_launch(
        x[2:], zeros, counted[1], np.int32(5), np.float32(2), None, grid=(4, 2), is_cooperative=True, smem_bytes=0
    )
    launches = [FillLaunch(out, NAN_WORD), wide, FillLaunch(piece), triton_launch(x), together]
    made = recipe_of(launches, [x], [out], scratch, "a note")
    assert made.direct == []
    written = msgspec.msgpack.encode(made.recipe)
    kept = msgspec.msgpack.decode(written, type=Recipe)
    assert msgspec.msgpack.encode(kept) == written
    assert (kept.num_results, kept.num_counters) == (1, 8)
    assert kept.outputs == [([4, 96], [96, 1], "bfloat16"), ([1024], [1], "uint8")]
    filled = {"call": "cuMemsetD32Async"}
    launched = {"call": "cuLaunchKernelEx", "function": LOADED, "block": [256, 1, 1]}
    expected = [
        filled | {"address": SCRATCH + 512, "value": 0, "words": 64},
        filled | {"address": OUT, "value": NAN_WORD, "words": 4 * 96 // 2},
        launched
        | {
            "grid": [32, 1, 1],
            "shared_bytes": 200_000,
            "attributes": [[4, [16, 1, 1, *[0] * 13]], [5, [1, *[0] * 15]]],
            "arguments": [*word(OUT + 2 * 96, SCRATCH, 0), "fdffffff", "0000003f", *word(0)],
        },
        filled | {"address": SCRATCH, "value": 0, "words": 128},
        launched
        | {
            "function": LOADED + 1,
            "grid": [7, 1, 1],
            "block": [128, 1, 1],
            "shared_bytes": 1024,
            "attributes": [],
            "arguments": word(X, 0, 0),
        },
        launched
        | {
            "grid": [4, 2, 1],
            "shared_bytes": 0,
            "attributes": [[2, [1, *[0] * 15]]],
            "arguments": [*word(X + 8, SCRATCH + 512, COUNTERS + 12), "05000000", "00000040", *word(0)],
        },
    ]
    assert bench.core.launch(plan_of(kept, 1), STREAM, X, OUT, SCRATCH, COUNTERS) is True
    assert kernels_of(bench) == expected
    new_process()
    # The fake driver gives every kernel that is loaded one handle, and Triton's has three arguments.
    bench.fake.sizes([8, 8, 8], LOADED)
    assert bench.core.launch(plan_of(kept, 1), STREAM, X, OUT, SCRATCH, COUNTERS) is True
    calls = bench.fake.calls()
    images = [bytes.fromhex(call["image"]) for call in calls if call["call"] == "cuModuleLoadData"]
    assert images == [b"an image of CUDA's", b"an image of Triton's"]
    names = [call["name"] for call in calls if call["call"] == "cuModuleGetFunction"]
    assert names == ["lowered", "of_triton"]
    # The clusters of the first one were allowed before they were launched.
    allowed = [(call["attribute"], call["value"]) for call in calls if call["call"] == "cuFuncSetAttribute"]
    assert allowed == [(8, 97_000), (14, 1)]
    asked = [call["call"] for call in calls if call["call"].startswith("cuOccupancy")]
    assert asked == ["cuOccupancyMaxActiveClusters", "cuOccupancyMaxActiveBlocksPerMultiprocessor"]
    assert [call["grid"] for call in calls if call["call"] == "cuLaunchKernelEx"] == [[32, 1, 1], [7, 1, 1], [4, 2, 1]]


def test_what_cannot_be_resident_is_refused_before_anything_is_launched(bench: LaunchBench) -> None:
    x = torch.zeros(64)
    cluster, grid = cuda_launch(x, cluster=16), cuda_launch(x, grid=(133,), is_cooperative=True)
    assert (resident_blocks(cluster), resident_blocks(grid)) == (16, 132)
    check_resident(cluster)
    check_resident(replace_grid(grid, 132))
    check_resident(cuda_launch(x, grid=(100_000,)))
    told = r"the 133 blocks of its grid wait for each other, and a slice of an H200 \(132 SMs here\) holds 132 of them"
    with pytest.raises(DoesNotFitError, match=told) as refused:
        recipe_of([FillLaunch(x), grid], [x], [], NotedScratch())
    assert (refused.value.name, refused.value.required, refused.value.limit) == (RESIDENT, 133, 132)
    bench.fake.resident(0)
    with pytest.raises(DoesNotFitError, match=r"the 16 blocks of a cluster wait .* and .* holds 0 of them"):
        recipe_of([cluster], [x], [], NotedScratch())
    assert bench.fake.called("cuLaunchKernelEx") == []


def replace_grid(launch: Any, blocks: int) -> Any:
    made = replace(launch, grid=(blocks,))
    made.__dict__["binary"] = launch.binary
    return made


@pytest.mark.parametrize("fewer", ["blocks", "threads"])
def test_a_recipe_of_a_larger_device_is_not_launched_on_a_smaller_one(bench: LaunchBench, fewer: str) -> None:
    x = torch.zeros(64)
    made = recipe_of([cuda_launch(x, grid=(64,), is_cooperative=True)], [x], [], NotedScratch()).recipe
    assert plan_of(made, 1) is not None
    new_process()
    if fewer == "blocks":
        bench.fake.resident(0)
    else:
        bench.fake.value(0, 255)
    with pytest.raises(NotPlannedError, match=r"64 blocks of its grid wait|takes more registers"):
        plan_of(made, 1)


def test_a_recipe_whose_image_is_gone_is_made_again(bench: LaunchBench, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(64)
    made = recipe_of([cuda_launch(x)], [x], [], NotedScratch()).recipe
    new_process()
    monkeypatch.setenv("CONSTRINT_CACHE", "0")
    with pytest.raises(NotPlannedError, match="image is not on disk"):
        plan_of(made, 1)


def test_arguments_of_other_sizes_than_the_kernels_are_told(bench: LaunchBench) -> None:
    x = torch.zeros(64)
    bench.fake.sizes([8, 4], LOADED)
    for wrong in (cuda_launch(x, np.int64(4)), cuda_launch(x), cuda_launch(x, np.int32(4), None)):
        with pytest.raises(UsageError, match=r"kernel\.cu: the kernel takes arguments of \[8, 4\] bytes, and got"):
            recipe_of([wrong], [x], [], NotedScratch())
    assert recipe_of([cuda_launch(x, np.uint32(4))], [x], [], NotedScratch()).recipe.steps
    # A driver that does not tell sizes is not asked twice.
    bench.fake.sizes([], LOADED)
    assert recipe_of([cuda_launch(x)], [x], [], NotedScratch()).recipe.steps


def test_what_no_plan_can_hold_goes_the_long_way(bench: LaunchBench) -> None:
    x, other = torch.zeros(64), torch.zeros(64)
    for launch, why in (
        (cuda_launch(other), "lies in 0 tensors"),
        (FillLaunch(other), "lies in 0 tensors"),
        (cuda_launch(x, block=(16, 16)), r"blocks of \(16, 16\) threads"),
        (cuda_launch(x, constants={"weights": other}), "constants of its own"),
        (object(), "object is a launch of another kind"),
    ):
        with pytest.raises(NotPlannedError, match=why):
            recipe_of([launch], [x], [], NotedScratch())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cluster": 0}, r"clusters of 0 in a grid of \(32,\)"),
        ({"cluster": 17, "grid": (34,)}, "1 to 16 blocks"),
        ({"cluster": 16, "grid": (24,)}, "divides the grid"),
        ({"arguments": 3}, "argument 0 is int: give tensors, None for a null address, and numbers as numpy"),
    ],
)
def test_launches_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    argument = options.pop("arguments", None)
    with pytest.raises(UsageError, match=told):
        cuda_launch(argument, **options)


def test_without_the_core_the_same_is_launched_directly(bench: LaunchBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "reads_tensors", lambda: False)
    enqueued: list[Any] = []

    def enqueue(launch: Any, values: Any) -> None:
        numbers = [value.data_ptr() if hasattr(value, "data_ptr") else value for value in values]
        enqueued.append((launch.cluster, numbers, out.flatten()[:3].tolist()))

    x, out = torch.zeros(8), torch.zeros(4, 6, dtype=torch.int32)
    launch = cuda_launch(out[1], None, x[:0], np.int32(-3), cluster=16)
    monkeypatch.setattr(type(launch), "enqueue", enqueue)
    made = recipe_of([FillLaunch(out[0], NAN_WORD), launch, FillLaunch(out, 7)], [x], [out], NotedScratch())
    assert made.recipe.steps == []
    later, out = torch.zeros(8), torch.zeros(4, 6, dtype=torch.int32)
    for step in made.direct:
        step.run([later, out], [later.data_ptr(), out.data_ptr()])
    assert enqueued == [(16, [out.data_ptr() + 24, None, None, -3], [-1, -1, -1])]
    assert bool((out == 7).all())
    assert PlainTable(1, (), bool).state()[0] == 0
    assert PlanEntry(made.direct, (), 1, 0, 0).launches == made.direct


# Fills


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.uint8])
def test_a_fill_sets_every_bit_of_a_tensor_and_none_beside_it(dtype: Any) -> None:
    memory = torch.zeros(8, 16, dtype=dtype)
    FillLaunch(memory[2:5], NAN_WORD).run()
    bits = memory.view(torch.uint8)
    assert bool((bits[2:5] == 255).all())
    assert not bits[:2].any()
    assert not bits[5:].any()
    FillLaunch(memory[3:4]).run()
    assert not bits[3:4].any()
    FillLaunch(memory[:0], NAN_WORD).run()
    if dtype.is_floating_point:
        assert memory[2].isnan().all()


@pytest.mark.parametrize(
    ("tensor", "value", "told"),
    [
        (torch.zeros(4, 6).t(), 0, r"only contiguous tensors .* \(6, 4\) of torch\.float32: 96 bytes"),
        (torch.zeros(3, dtype=torch.bfloat16), 0, "6 bytes from byte 0"),
        (torch.zeros(5, dtype=torch.bfloat16)[1:], 0, "8 bytes from byte 2"),
        (torch.zeros(4), 1 << 32, "a word from 0 to 0xFFFFFFFF, got 4294967296"),
        (torch.zeros(4), -1, "a word from 0 to 0xFFFFFFFF, got -1"),
    ],
)
def test_what_is_not_filled(bench: LaunchBench, tensor: Any, value: int, told: str) -> None:
    launch = FillLaunch(tensor, value)
    with pytest.raises(UsageError, match=told):
        launch.run()
    with pytest.raises(UsageError, match=told):
        recipe_of([launch], [tensor], [], NotedScratch())
    with pytest.raises(UsageError, match="has no code"):
        launch.compile(cuda_launch().gpu)


def test_fills_are_not_compiled_ahead() -> None:
    """What is compiled ahead is stated for tensors of one element, whose shapes are those of others."""
    alike = torch.empty(1).expand(4, 6)
    assert recipe.compile_all([FillLaunch(alike, NAN_WORD), cuda_launch(alike)])[0] is None
