"""Launches of the GEMM for short sides: what the kernel is told, memory for shared tiles, by plans; on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_driver import MISSING
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if MISSING or missing_packages("torch", "triton"):
    pytest.skip(MISSING or "needs the extra [torch]", allow_module_level=True)

import torch

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.skinny.launch import SIZES, skinny_launches
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.launch.plan.recipe import plan_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from tests.support.launch_bench import STREAM, LaunchBench
from tests.support.planned import LOADED, SPILL_FREE, LoadedLaunch, launch_bench_of

H200 = load_gpu("h200")
CONFIG = {
    "tile_m": 8, "tile_n": 128, "tile_k": 256, "num_warps": 8, "warps_k": 4, "mma": 1, "resident": 2, "turned": 1,
    "split_k": 1, "num_stages": 1, "fan_in": 0, "persistent": 0,
}  # fmt: skip
TALL = CONFIG | {"tile_m": 128, "tile_n": 8, "turned": 0}


def call_of(m: int, n: int, k: int, end: Epilogue | None = None, *, dtype: Any = torch.bfloat16) -> GemmCall:
    a, b = torch.zeros(1, m, k, dtype=dtype), torch.zeros(1, n, k, dtype=dtype).transpose(1, 2)
    return GemmCall(a, b, torch.zeros(1, m, n, dtype=dtype), Machine.of(H200), end or Epilogue(), "ieee")


def launch_of(call: GemmCall, config: dict[str, int]) -> CudaLaunch:
    (launch,) = skinny_launches(call, config)
    return launch


def told(launch: CudaLaunch) -> dict[str, float]:
    names = SIZES.names or ()
    return {name: value.item() for name, value in zip(names, launch.arguments[-len(names) :], strict=True)}


def test_the_long_operand_comes_first_whichever_side_it_is() -> None:
    wide, tall = launch_of(call_of(3, 1000, 512), CONFIG), launch_of(call_of(1000, 3, 512), TALL)
    for launch, is_turned in ((wide, 1), (tall, 0)):
        numbers = told(launch)
        assert (numbers["rows"], numbers["small"], numbers["depth"]) == (1000, 3, 512)
        assert (numbers["pitch"], numbers["small_row"], numbers["small_step"]) == (512, 512, 1)
        assert (numbers["tiles"], numbers["steps"]) == (8, 2)
        assert launch.source.macros["TURNED"] == is_turned
        assert launch.grid == (8, 1)
        assert launch.arguments[0].shape == (1000, 512)
    assert (told(wide)["out_row"], told(wide)["out_small"]) == (1, 1000)
    assert (told(tall)["out_row"], told(tall)["out_small"]) == (3, 1)


def test_odd_rows_are_read_as_they_are() -> None:
    """No launch copies an operand, whatever its strides are."""
    call = call_of(3, 1001, 777)
    launch = launch_of(call, CONFIG)
    assert launch.arguments[0].data_ptr() == call.b.data_ptr()
    assert (launch.source.macros["LARGE_MODE"], launch.source.macros["SMALL_MODE"]) == (1, 1)
    across = replace(call, a=torch.zeros(1, 777, 3, dtype=torch.bfloat16).transpose(1, 2))
    assert launch_of(across, CONFIG).source.macros["SMALL_MODE"] == 2


@pytest.mark.parametrize(
    ("config", "blocks", "sums", "counters"),
    [
        ({}, 8, 0, 0),
        ({"split_k": 4}, 32, 2 * 32 * 128 * 8, 8),
        ({"split_k": 8, "fan_in": 3}, 64, 2 * 64 * 128 * 8, 8 * (1 + 3)),
        ({"persistent": 1}, 264, 2 * 264 * 128 * 8, 8),
        ({"split_k": 384}, 8 * 64, 2 * 8 * 64 * 128 * 8, 8),
    ],
)
def test_blocks_that_share_tiles_have_memory_for_their_sums(
    config: dict[str, int], blocks: int, sums: int, counters: int
) -> None:
    scratch = NotedScratch()
    launch = launch_of(call_of(3, 1000, 64 * 256).with_scratch(scratch), CONFIG | config)
    assert launch.grid == (blocks, 1)
    assert [t.numel() for t in scratch.fresh] == ([sums] if sums else [])
    assert [t.numel() for t in scratch.counted] == ([counters] if counters else [])


def test_ends_are_compiled_in_and_their_strides_are_given() -> None:
    bias, source = torch.zeros(1000), torch.zeros(1, 1000, 3, dtype=torch.float16).transpose(1, 2)
    launch = launch_of(call_of(3, 1000, 512, Epilogue(bias, source, 0.5, 2.0, "gelu")), CONFIG)
    macros, numbers = launch.source.macros, told(launch)
    assert (macros["BIAS"], macros["SOURCE"], macros["ACTIVATION"], macros["OUT"]) == (3, 1, 2, 1)
    assert (numbers["source_row"], numbers["source_column"]) == (1, 3)
    assert (numbers["alpha"], numbers["beta"]) == (0.5, 2.0)
    assert [value is bias or value is source for value in launch.arguments[2:5]] == [False, True, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": Machine(132, 1, True)}, "needs a model"),
        ({"a": torch.zeros(1, 3, 0, dtype=torch.bfloat16)}, "without elements"),
        ({"b": torch.zeros(1, 128, 128, dtype=torch.bfloat16)[:, ::2, ::2]}, "follow each other along an axis"),
        ({"out": torch.zeros(1, 3, 64, dtype=torch.float64)}, "results of torch.float64"),
    ],
)
def test_what_it_is_not_for_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        skinny_launches(replace(call_of(3, 64, 64), **change), CONFIG)


def test_more_steps_than_are_counted_are_refused() -> None:
    call = call_of(1, 8, 64)
    far = torch.zeros(1, 64, 1, dtype=torch.bfloat16).expand(1, 64, 1 << 28).transpose(1, 2)
    long = replace(call, b=far.transpose(1, 2), out=torch.empty(1, 1, 1 << 28, dtype=torch.bfloat16, device="meta"))
    with pytest.raises(UsageError, match="too many"):
        skinny_launches(long, CONFIG)


@pytest.fixture
def bench(shared_results: SharedResults, tmp_path: Path) -> Iterator[LaunchBench]:
    with launch_bench_of(shared_results, tmp_path) as made:
        yield made


def test_a_plan_launches_it_with_memory_of_the_call(bench: LaunchBench) -> None:
    call, scratch = call_of(3, 1000, 512), NotedScratch()
    launch = launch_of(call.with_scratch(scratch), CONFIG | {"split_k": 2})
    kept = ("gpu", "source", "grid", "block", "arguments", "smem_bytes", "constants", "cluster", "is_cooperative")
    loaded = LoadedLaunch(**{name: getattr(launch, name) for name in kept})
    loaded.__dict__["binary"] = SPILL_FREE
    sizes = launch.arguments[7:]
    bench.fake.sizes([*[8] * 7, *(number.itemsize for number in sizes)], LOADED)
    made = recipe_of([loaded], [call.a, call.b], [call.out], scratch)
    assert made.direct == []
    assert made.recipe.num_counters == 8
    a, b, out, memory, counters = (1 << place for place in range(40, 45))
    assert bench.core.launch(plan_of(made.recipe, 2), STREAM, a, b, out, memory, counters) is True
    (seen,) = (each for each in bench.fake.calls() if each["call"].startswith("cuLaunchKernel"))
    places = [int.from_bytes(bytes.fromhex(value)[:8], "little") for value in seen["arguments"]]
    # The long operand is B, and nothing is added.
    assert places[:7] == [b, a, out, 0, 0, memory, counters]
    assert [bytes.fromhex(value) for value in seen["arguments"][7:]] == [number.tobytes() for number in sizes]
    assert (seen["grid"][0], seen["block"][0]) == (16, 256)
