"""Launches of the CUDA GEMM: maps of operands and results, tiles and their parts, by plans and without; on the CPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import numpy as np
import torch

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda import launch as cuda_launch
from constrint.kernels.gemm.cuda.launch import TileSchedule, cuda_launches
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.launch.cuda import CudaLaunch, TensorMap
from constrint.kernels.launch.plan.direct import DirectCuda
from constrint.kernels.launch.plan.recipe import plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, SPILL_FREE, LoadedLaunch, launch_bench_of

H200 = load_gpu("h200")
CONFIG = {
    "tile_m": 128, "tile_n": 152, "tile_k": 64, "num_stages": 5, "consumers": 2, "by_columns": 1, "in_turns": 0,
    "cluster_m": 2, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 8,
}  # fmt: skip
TURNED = CONFIG | {"tile_m": 152, "tile_n": 128, "cluster_m": 1, "cluster_n": 2, "turned": 1}
#: Names of the numbers that follow the tensors.
NUMBERS = (
    *("rows", "columns", "depth", "row_tiles", "column_tiles", "group", "whole", "parts", "stride", "is_aligned"),
    *("source_row", "source_column", "alpha", "beta", "by_group", "by_height", "by_last", "by_parts"),
)


def call_of(
    m: int, n: int, k: int, end: Epilogue | None = None, *, out: torch.Tensor | None = None, dtype: Any = torch.bfloat16
) -> GemmCall:
    a, b = torch.zeros(1, m, k, dtype=dtype), torch.zeros(1, n, k, dtype=dtype).transpose(1, 2)
    c = torch.zeros(1, m, n, dtype=dtype) if out is None else out
    return GemmCall(a, b, c, Machine.of(H200), end or Epilogue(), "tf32")


def launch_of(call: GemmCall, config: dict[str, int]) -> CudaLaunch:
    (launch,) = cuda_launches(call, config)
    return launch


def numbers_of(launch: CudaLaunch) -> dict[str, Any]:
    return dict(zip(NUMBERS, launch.arguments[-len(NUMBERS) :], strict=True))


def maps_of(launch: CudaLaunch) -> list[TensorMap]:
    return [value for value in launch.arguments if isinstance(value, TensorMap)]


def test_operands_are_loaded_by_the_parts_that_blocks_of_a_cluster_share() -> None:
    call = call_of(1000, 600, 320)
    rows, columns, whole, rest = maps_of(launch_of(call, CONFIG))
    assert rows.data_ptr() == call.a.data_ptr()
    assert (rows.element, rows.shape, rows.stride, rows.box) == ("bf16", (1000, 320), 320, (128, 64))
    # 152 columns are 19 atoms of 8, which two blocks cannot share evenly: they load whole slices in turns.
    assert columns.data_ptr() == call.b.data_ptr()
    assert (columns.shape, columns.stride, columns.box) == ((600, 320), 320, (152, 64))
    assert {whole.data_ptr(), rest.data_ptr()} == {call.out.data_ptr()}
    assert (whole.shape, whole.stride, whole.box, whole.swizzle) == ((1000, 600), 600, (64, 64), 128)
    # Two boxes of 64 columns, and what is left of 152.
    assert (rest.box, rest.swizzle) == ((64, 24), 0)
    halves = maps_of(launch_of(call, CONFIG | {"tile_n": 144}))
    assert halves[1].box == (72, 64)


def test_a_turned_launch_exchanges_the_operands_and_the_sides_of_boxes() -> None:
    call = call_of(600, 1000, 320)
    rows, columns, _, rest = maps_of(launch_of(call, TURNED))
    assert (rows.data_ptr(), columns.data_ptr()) == (call.b.data_ptr(), call.a.data_ptr())
    assert (rows.box, columns.box) == ((128, 64), (152, 64))
    assert (rest.box, rest.swizzle) == ((24, 64), 128)
    numbers = numbers_of(launch_of(call, TURNED))
    assert (numbers["rows"], numbers["columns"], numbers["depth"]) == (1000, 600, 320)


def test_operands_across_k_are_loaded_in_slabs() -> None:
    a, b = (
        torch.zeros(1, 320, 1000, dtype=torch.bfloat16).transpose(1, 2),
        torch.zeros(1, 320, 600, dtype=torch.bfloat16),
    )
    out = torch.zeros(1, 1000, 600, dtype=torch.bfloat16)
    launch = launch_of(GemmCall(a, b, out, Machine.of(H200), Epilogue(), "tf32"), CONFIG | {"num_stages": 3})
    rows, columns, *_ = maps_of(launch)
    assert (rows.shape, rows.stride, rows.box) == ((320, 1000), 1000, (64, 64))
    assert (columns.shape, columns.stride, columns.box) == ((320, 600), 600, (64, 64))
    assert (launch.source.macros["ROWS_K_MAJOR"], launch.source.macros["COLUMNS_K_MAJOR"]) == (0, 0)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # 20 x 33 tiles of clusters of two: five rounds of 66.
        ({"tile_m": 256, "tile_n": 152, "num_stages": 4}, (10, 33, 330, 1, 132)),
        ({"tile_m": 128, "split_k": 3}, (20, 33, 0, 3, 132)),
        ({"tile_m": 128, "tile_n": 256, "split_k": 4, "only_last": 1}, (20, 20, 396, 4, 132)),
        ({"tile_m": 128, "cluster_n": 2, "split_k": 4, "only_last": 1}, (20, 17, 330, 4, 120)),
    ],
)
def test_tiles_are_dealt_to_as_many_clusters_as_are_resident(config: dict[str, int], expected: tuple[int, ...]) -> None:
    launch = launch_of(call_of(5000, 5000, 640), CONFIG | config)
    numbers = numbers_of(launch)
    dealt = (*(int(numbers[name]) for name in ("row_tiles", "column_tiles", "whole", "parts")), launch.grid[0])
    assert dealt == expected
    assert launch.grid[0] % launch.cluster == 0


@pytest.mark.parametrize(("there", "blocks"), [(112, 112), (120, 120), (132, 120), (0, 120), (None, 120)])
def test_no_more_clusters_of_four_are_launched_than_the_device_holds(
    monkeypatch: pytest.MonkeyPatch, there: int | None, blocks: int
) -> None:
    launch = launch_of(call_of(5000, 5000, 640), CONFIG | {"cluster_n": 2})
    assert launch.grid == (120,)
    on_a_gpu = replace(
        launch, arguments=(SimpleNamespace(device=torch.device("cuda"), data_ptr=None), *launch.arguments[1:])
    )
    monkeypatch.setattr(cuda_launch, "resident_blocks", lambda launch: there)
    assert cuda_launch.as_resident(on_a_gpu).grid == (blocks,)
    # Pairs fill every GPC: nobody is asked.
    assert cuda_launch.as_resident(replace(launch, cluster=2, grid=(132,))).grid == (132,)


def quotient(number: int, by: np.uint64) -> int:
    """As `source/kernel.cu` divides, in 32 bits."""
    multiplier, shift = int(by) & 0xFFFFFFFF, int(by) >> 32
    assert 0 <= shift < 32
    return number if multiplier == 0 else (number * multiplier >> 32) >> shift


def test_the_kernel_divides_by_what_the_host_knows() -> None:
    most, draw = 2**31 - 1, random.Random(1)
    divisors = (*range(1, 600), most, most - 1, 2**30, *(draw.randrange(1, most) for _ in range(400)))
    for divisor in divisors:
        near = (divisor * draw.randrange(most // divisor + 1) for _ in range(8))
        numbers = {0, 1, divisor - 1, divisor, most, *(at + off for at in near for off in (-1, 0, 1))}
        by = cuda_launch.reciprocal(divisor)
        for number in numbers:
            if 0 <= number <= most:
                assert quotient(number, by) == number // divisor, (number, divisor)


def test_divisors_are_those_of_tiles_and_parts() -> None:
    """20 x 33 tiles in groups of 8 rows, of which the last has 4, and 3 parts."""
    numbers = numbers_of(launch_of(call_of(5000, 5000, 640), CONFIG | {"split_k": 3}))
    expected = {"by_group": 8 * 33, "by_height": 8, "by_last": 4, "by_parts": 3}
    for name, divisor in expected.items():
        assert numbers[name].dtype == np.uint64
        assert numbers[name] == cuda_launch.reciprocal(divisor)


def test_every_part_of_k_has_a_slice() -> None:
    """A kernel may be launched for a shorter K than it was chosen for: sums of a part without slices are never set."""
    assert numbers_of(launch_of(call_of(128, 152, 128), CONFIG | {"split_k": 8}))["parts"] == 2
    assert TileSchedule.of(H200, CONFIG | {"split_k": 8}, 128, 152, 1).parts == 1


@pytest.mark.parametrize(("in_turns", "users"), [(0, 2), (1, 1)])
def test_every_consumer_of_a_split_tile_has_memory_for_its_sums(in_turns: int, users: int) -> None:
    scratch = NotedScratch()
    config = CONFIG | {"split_k": 4, "in_turns": in_turns, "tile_n": 144}
    cuda_launches(call_of(300, 300, 640).with_scratch(scratch), config)
    tiles = 2 * 3 * 2
    (sums,), (counters,) = scratch.fresh, scratch.counted
    assert counters.numel() == 2 * tiles * users
    assert (sums.numel(), sums.dtype) == (tiles * 4 * 128 * 144, torch.float32)
    assert not scratch.zeroed


def test_ends_are_compiled_in_and_their_strides_are_given() -> None:
    bias, source = torch.zeros(600), torch.zeros(1, 600, 1000, dtype=torch.float16).transpose(1, 2)
    launch = launch_of(call_of(1000, 600, 320, Epilogue(bias, source, 0.5, 2.0, "gelu")), CONFIG)
    macros, numbers = launch.source.macros, numbers_of(launch)
    assert (macros["BIAS"], macros["SOURCE"], macros["ACTIVATION"], macros["OUT"]) == (3, 1, 2, 1)
    assert macros["STORES_BOXES"] == 0
    assert (numbers["source_row"], numbers["source_column"]) == (1, 1000)
    assert (numbers["alpha"], numbers["beta"]) == (0.5, 2.0)
    assert [value is bias or value is source for value in launch.arguments[2:5]] == [False, True, True]


def test_results_leave_in_boxes_where_their_rows_allow_it() -> None:
    wide = torch.zeros(1, 1000, 1024, dtype=torch.bfloat16)
    for columns, pad, in_boxes in ((600, 0, 1), (601, 0, 0), (600, 8, 1), (601, 7, 0), (600, 1, 0)):
        out = wide.flatten()[: 1000 * (columns + pad)].view(1, 1000, columns + pad)[:, :, :columns]
        launch = launch_of(call_of(1000, columns, 320, out=out), CONFIG)
        assert launch.source.macros["STORES_BOXES"] == in_boxes, (columns, pad)
        assert numbers_of(launch)["stride"] == columns + pad
    shifted = wide.flatten()[1 : 1 + 1000 * 600].view(1, 1000, 600)
    launch = launch_of(call_of(1000, 600, 320, out=shifted), CONFIG)
    assert (launch.source.macros["STORES_BOXES"], numbers_of(launch)["is_aligned"]) == (0, 0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"machine": Machine(132, 1, True)}, "needs a model"),
        ({"precision": "tf32x3"}, "one pass"),
        ({"a": torch.zeros(1, 64, 0, dtype=torch.bfloat16)}, "without elements"),
        ({"a": torch.zeros(1, 128, 64, dtype=torch.bfloat16)[:, ::2, ::2]}, "lie along K"),
        ({"out": torch.zeros(1, 64, 64, dtype=torch.float64)}, "results of torch.float64"),
        ({"out": torch.zeros(1, 64, 64, dtype=torch.bfloat16).transpose(1, 2)}, "follow each other"),
    ],
)
def test_what_it_is_not_for_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        cuda_launches(replace(call_of(64, 64, 64), **change), CONFIG)


@pytest.mark.parametrize(
    ("config", "splits"), [({}, 0), ({"split_k": 3}, 1), ({"split_k": 3, "only_last": 1, "tile_n": 144}, 1)], ids=str
)
def test_a_kernel_that_splits_no_tile_has_no_code_for_it(config: dict[str, int], splits: int) -> None:
    assert launch_of(call_of(5000, 5000, 640), CONFIG | config).source.macros["SPLITS"] == splits


def test_rows_at_odd_addresses_are_refused() -> None:
    a = torch.zeros(64 * 65 + 8, dtype=torch.bfloat16)
    for odd in (a[: 64 * 65].view(1, 64, 65)[:, :, :64], a[1 : 1 + 64 * 64].view(1, 64, 64)):
        with pytest.raises(UsageError, match="rows at multiples of 16 bytes"):
            cuda_launches(replace(call_of(64, 64, 64), a=odd), CONFIG)


def test_a_map_as_the_driver_encodes_it_needs_a_driver_alone_for_its_bytes() -> None:
    """What plans get is plain data."""
    made = TensorMap(torch.zeros(64, 64, dtype=torch.bfloat16), "bf16", (64, 64), 64, (8, 64))
    assert made.facts == (9, 2, 3, 0, [8, 64], [64, 64], [64, 1])
    with pytest.raises(UsageError, match="up to 256"):
        replace(made, box=(257, 64))


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def loaded(launch: CudaLaunch) -> LoadedLaunch:
    """The same launch, whose kernel was compiled and loaded already."""
    kept = ("gpu", "source", "grid", "block", "arguments", "smem_bytes", "constants", "cluster", "is_cooperative")
    made = LoadedLaunch(**{name: getattr(launch, name) for name in kept})
    made.__dict__["binary"] = SPILL_FREE
    return made


def test_a_plan_launches_it_with_maps_and_memory_of_the_call(bench: LaunchBench) -> None:
    call, scratch = call_of(300, 304, 640), NotedScratch()
    launch = loaded(launch_of(call.with_scratch(scratch), CONFIG | {"split_k": 4}))
    numbers = launch.arguments[-len(NUMBERS) :]
    bench.fake.sizes([*[128] * 4, *[8] * 4, *(number.itemsize for number in numbers)], LOADED)
    made = recipe_of([launch], [call.a, call.b], [call.out], scratch)
    assert made.direct == []
    assert made.recipe.num_counters == 2 * (2 * 2 * 2 * 2)
    a, b, out, memory, counters = (1 << place for place in range(40, 45))
    assert bench.core.launch(plan_of(made.recipe, 2), STREAM, a, b, out, memory, counters) is True
    calls = bench.fake.calls()
    (seen,) = (each for each in calls if each["call"] == "cuLaunchKernelEx")
    places = [int.from_bytes(bytes.fromhex(value)[:8], "little") for value in seen["arguments"]]
    assert places[:8] == [a, b, out, out, 0, 0, memory, counters]
    assert [bytes.fromhex(value) for value in seen["arguments"][8:]] == [number.tobytes() for number in numbers]
    assert (seen["grid"][0], seen["block"][0]) == (2 * 2 * 4 * 2, 384)
    encoded = [each for each in calls if each["call"] == "cuTensorMapEncodeTiled"]
    assert [each["block"] for each in encoded] == [[64, 128], [64, 152], [64, 64], [24, 64]]
    assert [each["options"][1] for each in encoded] == [3, 3, 3, 0]


def test_without_the_core_maps_get_the_addresses_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_of(300, 304, 640)
    launch = loaded(launch_of(call, CONFIG))
    monkeypatch.setattr(LoadedLaunch, "check_resident", lambda self: None)
    slots = {call.a.data_ptr(): 0, call.b.data_ptr(): 1, call.out.data_ptr(): 2}
    step = DirectCuda.of(launch, lambda address: (slots[address], 0))
    seen: list[Any] = []
    monkeypatch.setattr(LoadedLaunch, "enqueue", lambda self, values: seen.extend(values))
    step.run([None] * 3, [1 << 20, 1 << 21, 1 << 22])
    assert [value.data_ptr() for value in seen[:4]] == [1 << 20, 1 << 21, 1 << 22, 1 << 22]
    assert all(isinstance(value, TensorMap) for value in seen[:4])
    assert [value for value in seen if isinstance(value, torch.Tensor)] == []
    assert isinstance(seen[-1], np.uint64)
